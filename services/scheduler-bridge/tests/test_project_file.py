"""The project file: a permission that nobody reads protects nothing, so it is read strictly."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.scheduler_bridge.domain.project import DataPool, ProjectFile, parse_project, pool_path, project_schema
from jsonschema import Draft202012Validator

MINIMAL = {"project": "arm-lab", "namespace": "robot-train"}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"queue": ["a"]}, "queue", "no such field"),
        ({"mounts": {"pvc": ["a"]}}, "mounts.pvc", "no such field"),
        ({"mounts": {"host_paths": ["/mnt/../etc"]}}, "mounts.host_paths[0]", "climbs with '..'"),
        ({"mounts": {"host_paths": ["/"]}}, "mounts.host_paths[0]", "open the whole node"),
        ({"mounts": {"host_paths": ["mnt"]}}, "mounts.host_paths[0]", "not absolute"),
        ({"mounts": {"pvcs": ["Team"]}}, "mounts.pvcs[0]", "pattern"),
        ({"mounts": {"default": "team(ftp):/x"}}, "mounts.default", "unknown type 'ftp'; known are"),
        ({"mounts": {"max_memory": "lots"}}, "mounts.max_memory", "is no amount"),
        ({"pod": {"allow": ["everything"]}}, "pod.allow[0]", "hostNetwork"),
        ({"outputs": {"pvc": "o", "sub_path": "../x"}}, "outputs.sub_path", "no relative path"),
        ({"project": "Arm Lab"}, "project", "pattern"),
        ({"data": {"pvc": "pool"}, "mounts": {"pvcs": ["pool"]}}, "mounts.pvcs", "jobs may only read it"),
    ],
)
def test_a_mistake_is_named(fields: dict[str, Any], field: str, said: str) -> None:
    """With the field it is in."""
    found = parse_project({**MINIMAL, **fields})
    assert not isinstance(found, ProjectFile)
    assert [(item.field, said in item.message) for item in found] == [(field, True)], found


def test_what_is_missing_is_named() -> None:
    """And a file that is no mapping."""
    found = parse_project({})
    assert not isinstance(found, ProjectFile)
    assert {item.field for item in found} == {"project", "namespace"}
    assert not isinstance(parse_project(["x"]), ProjectFile)


def test_nothing_is_allowed_that_is_not_written() -> None:
    """The smallest file opens nothing."""
    found = parse_project(MINIMAL)
    assert isinstance(found, ProjectFile)
    assert found.overlay_rules().allow == ()
    assert (found.mounts.pvcs, found.mounts.host_paths, found.queues) == ((), (), ())


def test_the_schema_takes_what_the_parser_takes() -> None:
    """For editors: `forebay mounts schema`."""
    validator = Draft202012Validator(project_schema())
    assert validator.is_valid(MINIMAL)
    assert not validator.is_valid({**MINIMAL, "queue": []})


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("file:///pool/datasets/a/v1", "sub/datasets/a/v1"),
        ("/pool/datasets/a/v1", "sub/datasets/a/v1"),
        ("file:///pool", None),
        ("file:///pools/a", None),
        ("/pool/../etc", None),
        ("s3://bucket/a", None),
    ],
)
def test_a_version_lies_below_the_pools_root(root: str, path: str | None) -> None:
    """What lies elsewhere is not mounted from this claim."""
    assert pool_path(DataPool(pvc="pool", root="file:///pool", sub_path="sub"), root) == path
