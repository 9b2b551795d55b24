"""A plain `kubectl apply` Job gets gate, checks and agent by a JSON patch; every other Job is left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.applied import NotInstrumentableError, described
from forebay.scheduler_bridge.domain.cluster.moves import GateKind
from forebay.scheduler_bridge.domain.instrument import Instrumented, instrument, kept
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
            "podReplacementPolicy": "TerminatingOrFailed",  # as the API server fills it in before it asks
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
            },
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


MARK = "1234abcd"


def instrumented(job: Json, gate: GateKind = "annotation", **project: Any) -> tuple[Json, Instrumented]:
    found = instrument(job, user="alice", site=site(**project), mark=MARK, gate=gate)
    after: Json = applied(job, found.patch)
    return after, found


def test_an_annotated_job_waits_behind_the_gate_with_everything_in_it() -> None:
    """Suspended, gated, checked, watched; the first container runs through the shim, the others as they were."""
    job = plain_job()
    after, found = instrumented(job)
    assert found.warnings == ()
    assert after["spec"]["suspend"] is True
    assert after["spec"]["podReplacementPolicy"] == "Failed"
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
    assert instrument(after, user="alice", site=site(), mark=MARK).patch == []


def test_a_job_without_the_annotation_is_left_alone() -> None:
    """Whatever else it says."""
    job = plain_job()
    del job["metadata"]["annotations"]
    assert instrument(job, user="alice", site=site(), mark=MARK).patch == []


def test_what_the_owner_wrote_stands() -> None:
    """Queue, policies, tolerations, other gates, init containers."""
    job = plain_job(**{layout.KUEUE_GATED_BY: "lab.example/size"})
    job["metadata"]["labels"] = {layout.KUEUE_QUEUE: "mine"}
    job["spec"]["podFailurePolicy"] = {"rules": [{"action": "Count"}]}
    job["spec"]["template"]["spec"]["tolerations"] = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    job["spec"]["template"]["spec"]["initContainers"] = [{"name": "own", "image": "x"}]
    after, _ = instrumented(job)
    pod = after["spec"]["template"]["spec"]
    assert after["metadata"]["labels"][layout.KUEUE_QUEUE] == "mine"
    assert after["metadata"]["annotations"][layout.KUEUE_GATED_BY] == f"lab.example/size,{layout.GATE}"
    assert after["spec"]["podFailurePolicy"] == {"rules": [{"action": "Count"}]}
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
        instrument(plain_job(**{layout.DATASET_ANNOTATION: asked}), user="alice", site=site(), mark=MARK)


def test_each_job_object_has_its_own_id() -> None:
    """The mark is in its labels, its pods' labels, its outputs and its environment."""
    after, _ = instrumented(plain_job())
    assert after["metadata"]["labels"][layout.JOB_LABEL] == "by-hand-1234abcd"
    assert after["spec"]["template"]["metadata"]["labels"][layout.JOB_LABEL] == "by-hand-1234abcd"
    pod = after["spec"]["template"]["spec"]
    assert {"name": "FOREBAY_JOB", "value": "by-hand-1234abcd"} in pod["containers"][0]["env"]
    output = next(item for item in pod["containers"][0]["volumeMounts"] if item["mountPath"] == layout.OUTPUT_DIR)
    assert "/by-hand-1234abcd/" in output["subPath"]


@pytest.mark.parametrize(
    ("gate", "queue", "kept_off"), [("label", None, "team-a"), ("suspend", None, None), ("annotation", "team-a", None)]
)
def test_the_gate_is_the_one_that_the_cluster_honours(gate: GateKind, queue: str | None, kept_off: str | None) -> None:
    """Where Kueue does not know ours, the queue's name is kept off; without Kueue the Job is only suspended."""
    after, _ = instrumented(plain_job(), gate)
    assert after["spec"]["suspend"] is True
    assert after["metadata"]["labels"].get(layout.KUEUE_QUEUE) == queue
    annotations = after["metadata"]["annotations"]
    assert annotations.get(layout.WAITING_QUEUE) == kept_off
    assert (layout.KUEUE_GATED_BY in annotations) is (gate == "annotation")


def test_it_says_the_same_before_and_after() -> None:
    """What goes on record when it is seen on the cluster is what its owner wrote, with the data where it will be."""
    job = plain_job(**{"forebay.dev/allow-cold-start": "true"})
    job["spec"]["backoffLimit"] = 2
    before = described(job, user="alice", site=site(), mark=MARK)
    after = described(instrumented(job)[0], user="alice", site=site(), mark=MARK)
    words = ("python", "train.py", "--root=/forebay/data/pick-place")
    assert after.spec == before.spec.model_copy(update={"command": words, "queue": "team-a"})
    assert (after.job, after.spec.restart.max_attempts) == ("by-hand-1234abcd", 3)
    assert after.spec.restart.allow_cold_start
    assert after.spec.resources.gpus == 2


def test_the_same_file_again_changes_nothing() -> None:
    """`kubectl apply` puts the file's command and tolerations back; the Job's pods cannot be changed, and need not be."""
    job = plain_job()
    job["spec"]["template"]["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    live, _ = instrumented(job)
    again = copy.deepcopy(live)
    pod = again["spec"]["template"]["spec"]
    pod["containers"][0] |= {key: job["spec"]["template"]["spec"]["containers"][0][key] for key in ("command", "args")}
    pod["tolerations"] = job["spec"]["template"]["spec"]["tolerations"]
    assert applied(again, kept(again, live, site=site())) == live
    pod["containers"][0]["args"] = ["another.py"]
    still = applied(again, kept(again, live, site=site()))
    assert still["spec"]["template"]["spec"]["containers"][0]["args"] == ["another.py"], (
        "another command is another Job"
    )


def test_a_file_without_arguments_changes_nothing_either() -> None:
    """Its merge with what stands there has the file's command and our arguments."""
    job = plain_job()
    main = job["spec"]["template"]["spec"]["containers"][0]
    main["command"] = [*main.pop("command"), *main.pop("args")]
    live, _ = instrumented(job)
    again = copy.deepcopy(live)
    again["spec"]["template"]["spec"]["containers"][0]["command"] = main["command"]
    assert applied(again, kept(again, live, site=site())) == live


def test_checkpoints_on_a_volume_of_the_job_are_watched() -> None:
    """The side-car sees the folder in which lerobot-train saves, wherever the owner mounted it."""
    job = plain_job()
    pod = job["spec"]["template"]["spec"]
    pod["containers"][0] |= {"command": ["lerobot-train", "--output_dir=/work/out"], "args": []}
    pod["containers"][0]["volumeMounts"].append({"name": "team", "mountPath": "/work"})
    watch = instrumented(job)[0]["spec"]["template"]["spec"]["initContainers"][1]
    assert {"name": "team", "mountPath": "/work"} in watch["volumeMounts"]


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "pick.place"}, "pick-place"),
        ({"generateName": "sweep-"}, "sweep"),
        ({"generateName": "sweep-", "name": "sweep-x7k2p"}, "sweep"),
        ({"name": "x" * 63}, "x" * 54),
    ],
)
def test_names(metadata: Json, name: str) -> None:
    """The part of a name that people wrote; room is left for what makes it an id."""
    job = {**plain_job(), "metadata": {**metadata, "annotations": plain_job()["metadata"]["annotations"]}}
    found = described(job, user="alice", site=site(), mark=MARK)
    assert (found.spec.name, found.job) == (name, f"{name}-{MARK}")


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
