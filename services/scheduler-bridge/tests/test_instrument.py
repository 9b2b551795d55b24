"""A plain `kubectl apply` Job gets gate, checks and agent by a JSON patch; every other Job is left alone."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.instrument import (
    Instrumented,
    NotInstrumentableError,
    admission_response,
    instrument,
)
from forebay.scheduler_bridge.domain.json_patch import json_patch
from hypothesis import given
from hypothesis import strategies as st

from .cluster_jobs import site

Json = dict[str, Any]


def plain_job(**annotations: str) -> Json:
    """What people apply."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "by-hand",
            "namespace": "robot-train",
            "annotations": {layout.DATASET_ANNOTATION: "pick-place@train-ready", **annotations},
        },
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "trainer:1",
                            "command": ["python"],
                            "args": ["train.py", "--root={data:pick-place}"],
                            "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}},
                            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                        },
                        {"name": "logger", "image": "logger:1"},
                    ],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                }
            }
        },
    }


def applied(document: Any, patch: list[Json]) -> Any:
    """RFC 6902, as far as it is used."""
    found = copy.deepcopy(document)
    for operation in patch:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target = found
        for part in path:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "remove":
            del target[last]
        elif isinstance(target, list):
            assert last == "-" or operation["op"] == "replace"
            if last == "-":
                target.append(operation["value"])
            else:
                target[int(last)] = operation["value"]
        else:
            target[last] = operation["value"]
    return found


def instrumented(job: Json) -> tuple[Json, Instrumented]:
    found = instrument(job, user="alice", site=site())
    after: Json = applied(job, found.patch)
    return after, found


def test_an_annotated_job_waits_behind_the_gate_with_everything_in_it() -> None:
    """Suspended, gated, checked, watched; the first container runs through the shim, the others as they were."""
    job = plain_job()
    after, found = instrumented(job)
    assert found.warnings == ()
    assert after["spec"]["suspend"] is True
    assert after["metadata"]["annotations"][layout.KUEUE_GATED_BY] == layout.GATE
    assert after["metadata"]["labels"][layout.KUEUE_QUEUE] == "team-a"
    pod = after["spec"]["template"]["spec"]
    assert [item["name"] for item in pod["initContainers"]] == [layout.PREPARE, layout.WATCH]
    main, logger = pod["containers"]
    assert logger == job["spec"]["template"]["spec"]["containers"][1]
    assert main["command"] == ["/bin/sh", "/forebay/run/start.sh"]
    assert main["args"] == ["python", "train.py", "--root=/forebay/data/pick-place"]
    prepare = pod["initContainers"][0]
    assert {"name": "shm", "mountPath": "/dev/shm"} in prepare["volumeMounts"]
    assert prepare["resources"]["limits"]["nvidia.com/gpu"] == "2"
    volumes = {item["name"] for item in pod["volumes"]}
    for container in [*pod["initContainers"], main]:
        assert {item["name"] for item in container["volumeMounts"]} <= volumes
    assert after["spec"]["template"]["metadata"]["annotations"][layout.pin_annotation("dataset", "pick-place")] == (
        layout.UNPINNED
    )


def test_it_is_done_once() -> None:
    """The same Job again (a webhook may be called twice) is left as it is."""
    after, _ = instrumented(plain_job())
    assert instrument(after, user="alice", site=site()).patch == []


def test_a_job_without_the_annotation_is_left_alone() -> None:
    """Whatever else it says."""
    job = plain_job()
    del job["metadata"]["annotations"]
    assert instrument(job, user="alice", site=site()).patch == []


def test_what_the_owner_wrote_stands() -> None:
    """Queue, policies, tolerations, other gates, init containers."""
    job = plain_job(**{layout.KUEUE_GATED_BY: "lab.example/size"})
    job["metadata"]["labels"] = {layout.KUEUE_QUEUE: "mine"}
    job["spec"]["podFailurePolicy"] = {"rules": []}
    job["spec"]["template"]["spec"]["tolerations"] = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    job["spec"]["template"]["spec"]["initContainers"] = [{"name": "own", "image": "x"}]
    after, _ = instrumented(job)
    pod = after["spec"]["template"]["spec"]
    assert after["metadata"]["labels"][layout.KUEUE_QUEUE] == "mine"
    assert after["metadata"]["annotations"][layout.KUEUE_GATED_BY] == f"lab.example/size,{layout.GATE}"
    assert after["spec"]["podFailurePolicy"] == {"rules": []}
    assert pod["initContainers"][-1] == {"name": "own", "image": "x"}
    assert [item["key"] for item in pod["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


def test_a_container_without_a_command_runs_as_it_is() -> None:
    """Its image's own command is not known here, and that is said."""
    job = plain_job()
    del job["spec"]["template"]["spec"]["containers"][0]["command"]
    after, found = instrumented(job)
    assert "command" not in after["spec"]["template"]["spec"]["containers"][0]
    assert ["not told where to resume" in warning for warning in found.warnings] == [True]


@pytest.mark.parametrize("asked", ["", "  ,", "model:base@v1", "pick-place@@", "image:x"])
def test_an_annotation_that_cannot_be_read_refuses_the_job(asked: str) -> None:
    """Starting it without its data would be worse."""
    with pytest.raises(NotInstrumentableError, match=layout.DATASET_ANNOTATION):
        instrument(plain_job(**{layout.DATASET_ANNOTATION: asked}), user="alice", site=site())


def test_the_webhooks_answer() -> None:
    """A patch in base64, warnings for the person at the keyboard, or a refusal with its sentence."""
    found = instrument(plain_job(), user="alice", site=site())
    answer = admission_response("u-1", found)["response"]
    assert (answer["uid"], answer["allowed"], answer["patchType"]) == ("u-1", True, "JSONPatch")
    assert json.loads(base64.b64decode(answer["patch"])) == found.patch
    assert admission_response("u-1", Instrumented(patch=[]))["response"] == {"uid": "u-1", "allowed": True}
    refused = admission_response("u-1", None, problem="no")["response"]
    assert (refused["allowed"], refused["status"]["message"]) == (False, "no")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab~/", max_size=3), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("ab~/", max_size=3), VALUES, max_size=5)


@given(OBJECTS, OBJECTS)
def test_a_patch_makes_the_second_out_of_the_first(before: Json, after: Json) -> None:
    """For any two objects, and none for equal ones."""
    assert applied(before, json_patch(before, after)) == after
    assert json_patch(before, before) == []
