"""Our own containers in a training pod, and what wraps the owner's: pure pieces for `manifest.py` and `instrument.py`.

The init container checks the place and writes the shim and the resume decision into
an emptyDir; the native side-car watches checkpoints with the key of the attempt; the
owner's container runs its command through the shim and needs neither Python nor us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forebay.contracts.permissions import TOKEN_AUDIENCE
from forebay.scheduler_bridge.domain.pod_layout import (
    INPUTS,
    KEY_DIR,
    KEY_FILE,
    OUTPUT_DIR,
    POD_DIR,
    PREPARE,
    RUN_DIR,
    SHIM,
    WATCH,
)
from forebay.scheduler_bridge.domain.pod_volumes import Storage

Json = dict[str, Any]
CONFIGURATION_CODES = tuple(range(200, 210))
"""Exit codes of the checks that another attempt would meet again: the job fails at once."""
INFRASTRUCTURE_CODES = tuple(range(210, 220))
"""Exit codes of the checks that another node or a later moment may mend: they cost no attempt."""
_TOKEN_S = 3600
_STATE_DIR = "/forebay/state"
_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentImage:
    """What our containers run and whom they talk to."""

    image: str
    nats_url: str
    command: tuple[str, ...] = ("forebay", "pod")
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """The job that our containers stand beside."""

    project: str
    job: str
    name: str
    """Of the Job object."""
    checkpoints: str
    """The folder that is watched."""
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    lerobot: bool = False
    nodes: int = 1


def our_volumes() -> tuple[Json, ...]:
    """Volumes that every instrumented pod gets.

    The key is a token that the kubelet gets for this very pod and exchanges before it ends. Its
    mode lets our containers read it as whoever they run as; the owner's container mounts none of it.
    """
    inputs = {"path": "inputs.json", "fieldRef": {"fieldPath": f"metadata.annotations['{INPUTS}']"}}
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": _TOKEN_S, "path": KEY_FILE}
    key = {"sources": [{"serviceAccountToken": token}], "defaultMode": 0o444}
    return (
        {"name": "forebay-run", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "forebay-state", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "forebay-pod", "downwardAPI": {"items": [inputs]}},
        {"name": "forebay-key", "projected": key},
    )


def run_mount(*, read_only: bool = False) -> Json:
    """The folder that all three share."""
    mount: Json = {"name": "forebay-run", "mountPath": RUN_DIR}
    return {**mount, "readOnly": True} if read_only else mount


def prepare_container(agent: AgentImage, attended: Attended, storage: Storage) -> Json:
    """Sees what the training will see: the same mounts, /dev/shm and GPUs, which cost no quota twice."""
    limits: Json = {"memory": "512Mi"}
    if attended.gpus:
        limits[attended.gpu_resource] = str(attended.gpus)
    return {
        "name": PREPARE,
        **_common(agent, "prepare"),
        "env": [*storage.pins, *agent_environment(agent, attended)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": limits},
        "volumeMounts": [*_our_mounts(), *storage.ours],
    }


def watch_container(agent: AgentImage, attended: Attended, storage: Storage) -> Json:
    """Outlives the training container by the time it takes to tell the last checkpoint."""
    # The data is not its business. Beside the outputs it notes what it has announced.
    watched = [item for item in storage.ours if "subPathExpr" not in item and _holds(item, attended)]
    return {
        "name": WATCH,
        "restartPolicy": "Always",
        **_common(agent, "watch"),
        "env": agent_environment(agent, attended),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [*_our_mounts(), *watched],
    }


def _holds(mount: Json, attended: Attended) -> bool:
    directory = str(mount["mountPath"])
    return directory.startswith(OUTPUT_DIR) or f"{attended.checkpoints}/".startswith(f"{directory}/")


def wrapped(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """`command` and `args` of the owner's container: its words through the shim."""
    return ["/bin/sh", SHIM], list(command)


def agent_environment(agent: AgentImage, attended: Attended) -> list[Json]:
    """What `forebay pod` reads; who the pod is comes from the API server itself."""
    plain = {
        "FOREBAY_PROJECT": attended.project,
        "FOREBAY_JOB": attended.job,
        "FOREBAY_HOME": _STATE_DIR,
        "FOREBAY_RUN_DIR": RUN_DIR,
        "FOREBAY_OUTPUT": OUTPUT_DIR,
        "FOREBAY_CHECKPOINTS": attended.checkpoints,
        "FOREBAY_INPUTS": f"{POD_DIR}/inputs.json",
        "FOREBAY_NATS_URL": agent.nats_url,
        "FOREBAY_TOKEN_FILE": f"{KEY_DIR}/{KEY_FILE}",
    }
    if attended.nodes > 1:
        plain["FOREBAY_NODES"] = str(attended.nodes)
    if attended.lerobot:
        plain["FOREBAY_TRAINER"] = "lerobot"
    fields = {
        "FOREBAY_POD": "metadata.name",
        "FOREBAY_POD_UID": "metadata.uid",
        "FOREBAY_NODE": "spec.nodeName",
        "FOREBAY_INDEX": f"metadata.annotations['{_INDEX}']",
        "FOREBAY_FAILURES": f"metadata.annotations['{_FAILURES}']",
        "FOREBAY_IGNORED_FAILURES": f"metadata.annotations['{_IGNORED}']",
    }
    return [{"name": name, "value": value} for name, value in plain.items()] + [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]


def _common(agent: AgentImage, duty: str) -> Json:
    return {
        "image": agent.image,
        "imagePullPolicy": agent.pull_policy,
        "command": [*agent.command, duty],
        "terminationMessagePath": "/dev/termination-log",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _our_mounts() -> list[Json]:
    return [
        run_mount(),
        {"name": "forebay-state", "mountPath": _STATE_DIR},
        {"name": "forebay-pod", "mountPath": POD_DIR, "readOnly": True},
        {"name": "forebay-key", "mountPath": KEY_DIR, "readOnly": True},
    ]


def failure_policy() -> Json:
    """What happened to the pod decides, in this order."""
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            _on_codes("FailJob", CONFIGURATION_CODES),
            _on_codes("Ignore", INFRASTRUCTURE_CODES),
        ]
    }


def _on_codes(action: str, codes: Sequence[int]) -> Json:
    return {"action": action, "onExitCodes": {"containerName": PREPARE, "operator": "In", "values": list(codes)}}
