"""Rendered objects: golden files to read, and what must hold for every job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.manifest import owned, pod_annotations, render
from forebay.scheduler_bridge.domain.pod_parts import CONFIGURATION_CODES, INFRASTRUCTURE_CODES

from .cluster_jobs import LEROBOT, job_spec, pin, site, submission

GOLDEN = Path(__file__).parent / "golden"
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

JOBS: dict[str, dict[str, Any]] = {
    "one_pod": {},
    "lerobot": {
        "command": list(LEROBOT),
        "resources": {"cpu": 8, "memory": "32Gi", "gpus": 1, "gpu_type": "H200", "shm": "8Gi"},
    },
    "gang": {
        "nodes": 4,
        "args": ["--data={data:pick-place}"],
        "mounts": "team(pvc):/work, scratch(storage):/scratch, team(pvc-share):/team:ro",
        "priority_class": "high",
        "queue": "team-b",
        "restart": {"max_attempts": 5, "allow_cold_start": True},
        "environment": {"OMP_NUM_THREADS": "4", "RANK": "7"},
        "parameters": {"lr": 0.1, "amp": True},
        "pod": {
            "imagePullSecrets": [{"name": "registry"}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "serviceAccountName": "trainer",
            "envFrom": [{"secretRef": {"name": "wandb"}}],
            "securityContext": {"fsGroup": 1000},
            "labels": {"team": "arms"},
        },
    },
}
MOUNTS = {"pvcs": ["team", "scratch"]}


def objects(name: str, **changes: Any) -> list[dict[str, Any]]:
    return render(submission(**{**JOBS[name], **changes}), [pin()], site(mounts=MOUNTS))


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 the library's signature
        return True


@pytest.mark.parametrize("name", JOBS)
def test_a_job_becomes_what_its_golden_file_shows(name: str) -> None:
    """The file beside this test is what a person reads; write it anew when the change is meant."""
    text = "".join(
        "---\n" + yaml.dump(item, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)
        for item in objects(name)
    )
    assert text == (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = job["spec"]["template"]["spec"]
    return pod


def containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod["initContainers"]
    yield from pod["containers"]


SHAPES: list[dict[str, Any]] = [
    {},
    {"nodes": 1024, "name": "x" * 56, "run": 12345},
    {"nodes": 2, "name": "7dof"},
    {"datasets": [{"name": "a@v1"}, {"name": "b" * 63}], "models": [{"name": "base@v1"}]},
    {"datasets": [], "resources": {"gpus": 8}},
    {"mounts": "a(pvc):/a, a(pvc):/b, 1G(memory):/dev/shm, 1G(memory):/m", "resources": {}},
    {"mounts": ", ".join(f"{'n' * 250}{i}(pvc-share):/m{i}" for i in range(9)), "resources": {"ephemeral_storage": "1Gi"}},
    {"command": list(LEROBOT), "checkpoints": {"folder": "/forebay/output/train/checkpoints"}},
]  # fmt: skip


@pytest.mark.parametrize("fields", SHAPES, ids=[", ".join(shape) or "plain" for shape in SHAPES])
@pytest.mark.parametrize("queues", [["team-a"], []], ids=["Kueue", "no Kueue"])
def test_what_holds_for_every_job(fields: dict[str, Any], queues: list[str]) -> None:
    """Names and labels fit, every mount has its volume and target of its own, nothing ours is a secret."""
    kueue = bool(queues)
    place = site(queues=queues)
    shape = submission(**fields)
    job, *rest = render(shape, [], place)
    pod = pod_of(job)
    assert job["spec"]["suspend"] is True
    gate = job["metadata"]["annotations"].get(layout.KUEUE_GATED_BY)
    assert (gate, layout.KUEUE_QUEUE in job["metadata"]["labels"]) == (layout.GATE if kueue else None, kueue)
    nodes = job["spec"]["completions"]
    assert _DNS_LABEL.fullmatch(f"{job['metadata']['name']}-{nodes - 1}")
    assert all(_DNS_LABEL.fullmatch(item["metadata"]["name"]) for item in rest)
    for meta in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert all(_LABEL.fullmatch(value) for value in meta["labels"].values())
        assert all(len(name.rpartition("/")[2]) <= 63 for name in meta["annotations"])
    volumes = [item["name"] for item in pod["volumes"]]
    assert len(set(volumes)) == len(volumes)
    for container in containers(pod):
        mounts = container["volumeMounts"]
        assert {item["name"] for item in mounts} <= set(volumes)
        targets = [item["mountPath"] for item in mounts]
        assert len(set(targets)) == len(targets)
        names = [item["name"] for item in container["env"]]
        assert len(set(names)) == len(names)
        for mount in mounts:
            if variable := re.fullmatch(r"\$\((\w+)\)", mount.get("subPathExpr", "")):
                assert variable[1] in names
                assert mount["readOnly"] is True
    assert all(_DNS_LABEL.fullmatch(name) for name in volumes)
    assert pod["restartPolicy"] == "Never"


def test_the_owners_container_gets_no_key_and_needs_nothing_of_ours() -> None:
    """Its command runs through /bin/sh; key, state and inputs are mounted only in our containers."""
    (job,) = objects("one_pod")
    (train,) = pod_of(job)["containers"]
    assert train["command"] == ["/bin/sh", "/forebay/run/start.sh"]
    assert train["args"] == ["python", "train.py"]
    assert {item["name"] for item in train["volumeMounts"]} & {"forebay-key", "forebay-state", "forebay-pod"} == set()
    assert "forebay-key" in {item["name"] for item in pod_of(job)["initContainers"][1]["volumeMounts"]}


def test_the_checks_see_what_the_training_will_see() -> None:
    """The same data, outputs, /dev/shm and GPUs; a GPU of an init container is not counted twice."""
    (job,) = objects("lerobot")
    prepare, watch = pod_of(job)["initContainers"]
    (train,) = pod_of(job)["containers"]
    seen = {item["mountPath"] for item in prepare["volumeMounts"]}
    assert {item["mountPath"] for item in train["volumeMounts"]} <= seen
    assert prepare["resources"]["limits"]["nvidia.com/gpu"] == train["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert watch["restartPolicy"] == "Always"
    assert "nvidia.com/gpu" not in watch["resources"]["limits"]
    assert pod_of(job)["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}


def test_data_is_pinned_in_annotations_that_a_suspended_job_may_change() -> None:
    """Before the gate opens the sub-path names no folder; opening needs no other pod."""
    waiting, (ready,) = render(submission(), [], site())[0], objects("one_pod")
    key = layout.pin_annotation("dataset", "pick-place")
    assert waiting["spec"]["template"]["metadata"]["annotations"][key] == layout.UNPINNED
    annotations = ready["spec"]["template"]["metadata"]["annotations"]
    assert annotations[key] == "datasets/arm-lab/pick-place/v4"
    assert annotations == pod_annotations(submission(), [pin()], site())
    assert pod_of(waiting) == pod_of(ready)
    told = json.loads(annotations[layout.INPUTS])
    assert told["places"] == {"pick-place@v4": "/forebay/data/pick-place"}
    assert told["expects"] == ["dataset:pick-place"]


def test_outputs_and_checkpoints_are_folders_of_this_job_apart_from_the_data() -> None:
    """On the claims of the project; two runs share none."""
    (job,) = objects("one_pod")
    mounts = {item["mountPath"]: item for item in pod_of(job)["containers"][0]["volumeMounts"]}
    assert mounts["/forebay/output"]["subPath"] == "runs/arm-lab/pick-1/output"
    assert mounts["/forebay/output/checkpoints"]["subPath"] == "runs/arm-lab/pick-1/checkpoints"
    claims = {item["name"]: item.get("persistentVolumeClaim") for item in pod_of(job)["volumes"]}
    assert claims[mounts["/forebay/data/pick-place"]["name"]] == {"claimName": "pool", "readOnly": True}
    assert claims[mounts["/forebay/output"]["name"]] == {"claimName": "train-output"}


def test_what_is_continued_is_mounted_to_read_only() -> None:
    """The earlier job's outputs and checkpoints, where a resume point can name them; the own ones stay its own."""
    item = objects("one_pod", restart={"start_from": "pick-1"})[-1]
    pod = item["spec"]["template"]["spec"]
    for container in (pod["initContainers"][0], pod["containers"][0]):
        found = {one["mountPath"]: one for one in container["volumeMounts"] if "continued" in one["mountPath"]}
        assert set(found) == {"/forebay/continued/output", "/forebay/continued/checkpoints"}
        assert all(one["readOnly"] and "/pick-1/" in one["subPath"] for one in found.values())
    assert "continued" not in str(objects("one_pod", restart={"start_from": "ck-1"})), "a single checkpoint is no job"


def test_a_gang_finds_its_master() -> None:
    """Index 0's host name under the headless Service, and the rank from the completion index."""
    job, service = objects("gang")
    env = {item["name"]: item for item in pod_of(job)["containers"][0]["env"]}
    assert env["MASTER_ADDR"]["value"] == "pick-1-0.pick-1"
    assert env["WORLD_SIZE"]["value"] == "4"
    assert "job-completion-index" in env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert pod_of(job)["subdomain"] == service["metadata"]["name"]
    assert owned(service, "u-1", "pick-1")["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_a_service_begins_with_a_letter() -> None:
    """A Job may be called 7dof-1; its Service may not."""
    _, service = render(submission(name="7dof", nodes=2), [], site())
    assert service["metadata"]["name"] == "j-7dof-1"


def test_infrastructure_costs_no_attempt_and_configuration_fails_at_once() -> None:
    """A disruption is looked at first; codes are those of our init container only."""
    (job,) = objects("one_pod")
    rules = job["spec"]["podFailurePolicy"]["rules"]
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    actions = {rule["action"]: rule["onExitCodes"]["values"] for rule in rules[1:]}
    assert actions == {"FailJob": list(CONFIGURATION_CODES), "Ignore": list(INFRASTRUCTURE_CODES)}
    assert all(rule["onExitCodes"]["containerName"] == layout.PREPARE for rule in rules[1:])
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    patience = {item["key"]: item["tolerationSeconds"] for item in pod_of(job)["tolerations"]}
    assert patience == {"node.kubernetes.io/not-ready": 60, "node.kubernetes.io/unreachable": 60}


def test_rendering_is_pure() -> None:
    """The same job gives the same objects, and none of them is the job's own data."""
    assert objects("gang") == objects("gang")
    spec = job_spec(pod={"tolerations": [{"key": "a"}]})
    before = spec.model_dump()
    (job,) = render(submission(pod={"tolerations": [{"key": "a"}]}), [], site())
    pod_of(job)["tolerations"].clear()
    assert spec.model_dump() == before


def test_a_project_may_keep_images_that_run_as_root_out() -> None:
    """Also when the job says nothing of users, and beside what it says."""
    strict = site(pod={"run_as_non_root": True})
    (job,) = render(submission(), [], strict)
    assert pod_of(job)["securityContext"] == {"runAsNonRoot": True}
    (job,) = render(submission(pod={"securityContext": {"fsGroup": 1000}}), [], strict)
    assert pod_of(job)["securityContext"] == {"runAsNonRoot": True, "fsGroup": 1000}
