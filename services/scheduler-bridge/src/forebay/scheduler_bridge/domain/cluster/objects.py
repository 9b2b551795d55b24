"""Kubernetes objects as they go on record: what a judgement may need, nothing that moves by itself, no secret.

`trim` is applied before an object becomes an event, so equal digests mean that
nothing of interest has changed. Called by `workers/observe.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from forebay.contracts.identifiers import content_digest
from forebay.scheduler_bridge.domain.masking import mask
from forebay.scheduler_bridge.domain.pod_layout import JOB_LABEL, PROJECT_LABEL

Json = dict[str, Any]
MAX_TEXT = 4096
"""Characters of one text; the kubelet's own messages end there."""
_OURS = ("forebay.dev/", "kueue.x-k8s.io/", "batch.kubernetes.io/", "job-name", "controller-uid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """One collection of the API that is watched."""

    kind: str
    path: str
    namespaced: bool = True
    optional: bool = False
    """Not every cluster serves it (Kueue)."""


WHY = "forebay.dev/why"
"""Annotation with the sentence of `forebay why`."""
PENDING = "PendingWorkload"
"""A workload's place in its queue, as Kueue's visibility API tells it."""
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
COLLECTIONS: tuple[Collection, ...] = (
    Collection(kind="Job", path="/apis/batch/v1/jobs"),
    Collection(kind="Pod", path="/api/v1/pods"),
    Collection(kind="Event", path="/api/v1/events"),
    Collection(kind="PersistentVolumeClaim", path="/api/v1/persistentvolumeclaims"),
    Collection(kind="Node", path="/api/v1/nodes", namespaced=False),
    Collection(kind="Workload", path=f"{KUEUE}/workloads", optional=True),
    Collection(kind="ClusterQueue", path=f"{KUEUE}/clusterqueues", namespaced=False, optional=True),
    Collection(kind="LocalQueue", path=f"{KUEUE}/localqueues", optional=True),
    Collection(kind=PENDING, path="/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues", optional=True),
)


def trim(item: Mapping[str, Any]) -> Json:
    """The object without what nobody judges by; every text masked."""
    kind = str(item.get("kind", ""))
    shape = _SHAPES.get(kind, _anything)
    kept = {"kind": kind, "apiVersion": item.get("apiVersion"), "metadata": _metadata(item.get("metadata") or {})}
    trimmed: Json = _clean({**kept, **shape(item)})
    return trimmed


def digest_of(trimmed: Json) -> str:
    """What makes a state of an object another one; `resourceVersion` alone does not, nor does a sentence of our own."""
    metadata = {name: value for name, value in trimmed["metadata"].items() if name != "resourceVersion"}
    if WHY in metadata.get("annotations", ()):
        metadata["annotations"] = {name: value for name, value in metadata["annotations"].items() if name != WHY}
    return content_digest({**trimmed, "metadata": metadata})


def label_of(item: Mapping[str, Any]) -> str:
    """`Pod/team-a/train-7-x2`: how people name an object."""
    metadata = item.get("metadata") or {}
    parts = (item.get("kind"), metadata.get("namespace"), metadata.get("name"))
    return "/".join(str(part) for part in parts if part)


def job_labels(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """(project, job) when the object says itself that it is ours."""
    labels = (item.get("metadata") or {}).get("labels") or {}
    project, job = labels.get(PROJECT_LABEL), labels.get(JOB_LABEL)
    return (str(project), str(job)) if project and job else None


def owner_uids(item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(owner.get("uid")) for owner in (item.get("metadata") or {}).get("ownerReferences") or ())


def _metadata(metadata: Mapping[str, Any]) -> Json:
    kept = _pick(
        metadata,
        ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation"),
    )
    if metadata.get("deletionTimestamp"):  # before that they come and go and hold nothing
        kept |= _pick(metadata, ("finalizers", "deletionGracePeriodSeconds"))
    for name in ("labels", "annotations"):
        ours = {key: value for key, value in (metadata.get(name) or {}).items() if str(key).startswith(_OURS)}
        if ours:
            kept[name] = ours
    owners = [_pick(owner, ("kind", "name", "uid")) for owner in metadata.get("ownerReferences") or ()]
    if owners:
        kept["ownerReferences"] = owners
    return kept


def _pick(item: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: item[name] for name in names if item.get(name) is not None}


def _containers(items: Iterable[Mapping[str, Any]]) -> list[Json]:
    return [_pick(item, ("name", "image", "resources", "restartPolicy")) for item in items]


def _volumes(items: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Which claims, maps and paths a pod mounts; names only."""
    kinds = ("persistentVolumeClaim", "configMap", "secret", "nfs", "hostPath", "emptyDir", "csi")
    return [{"name": item.get("name"), **_pick(item, kinds)} for item in items if any(kind in item for kind in kinds)]


def _pod(item: Mapping[str, Any]) -> Json:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    kept = _pick(
        spec, ("nodeName", "nodeSelector", "affinity", "tolerations", "schedulingGates", "priority", "restartPolicy")
    )
    kept["containers"] = _containers(spec.get("containers") or ())
    if spec.get("initContainers"):
        kept["initContainers"] = _containers(spec["initContainers"])
    kept["volumes"] = _volumes(spec.get("volumes") or ())
    kept |= _pick(spec, ("imagePullSecrets",))
    names = (
        "phase",
        "reason",
        "message",
        "conditions",
        "containerStatuses",
        "initContainerStatuses",
        "nominatedNodeName",
        "startTime",
        "qosClass",
    )
    return {"spec": kept, "status": _pick(status, names)}


def _job(item: Mapping[str, Any]) -> Json:
    spec = item.get("spec") or {}
    names = (
        "suspend",
        "parallelism",
        "completions",
        "completionMode",
        "backoffLimit",
        "activeDeadlineSeconds",
        "podReplacementPolicy",
    )
    return {"spec": {**_pick(spec, names), **_declared(spec)}, "status": item.get("status") or {}}


def _declared(spec: Mapping[str, Any]) -> Json:
    """The names of the containers in a Job's template: what else is in its pods was put there."""
    template = (spec.get("template") or {}).get("spec") or {}
    kinds = ("initContainers", "containers")
    names = {kind: [_pick(one, ("name",)) for one in template[kind]] for kind in kinds if template.get(kind)}
    return {"template": {"spec": names}} if names else {}


def _workload(item: Mapping[str, Any]) -> Json:
    spec = item.get("spec") or {}
    kept = _pick(spec, ("queueName", "active", "priority", "priorityClassRef", "priorityClassName"))
    kept["podSets"] = [
        {
            **_pick(pods, ("name", "count", "minCount")),
            "template": {
                "spec": {
                    **_pick((pods.get("template") or {}).get("spec") or {}, ("nodeSelector", "tolerations")),
                    "containers": _containers(((pods.get("template") or {}).get("spec") or {}).get("containers") or ()),
                }
            },
        }
        for pods in spec.get("podSets") or ()
    ]
    return {"spec": kept, "status": item.get("status") or {}}


def _event(item: Mapping[str, Any]) -> Json:
    """An event without its count: a repetition is no new fact."""
    kept = _pick(item, ("type", "reason", "message", "action", "firstTimestamp", "eventTime", "reportingComponent"))
    involved = item.get("involvedObject") or item.get("regarding") or {}
    kept["involvedObject"] = _pick(involved, ("kind", "namespace", "name", "uid", "fieldPath"))
    if source := (item.get("source") or {}).get("component"):
        kept["source"] = {"component": source}
    return kept


def _node(item: Mapping[str, Any]) -> Json:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    kept = _pick(status, ("allocatable", "capacity"))
    kept["conditions"] = [
        _pick(one, ("type", "status", "reason", "message", "lastTransitionTime")) | _stopped_heart(one)
        for one in status.get("conditions") or ()
    ]
    return {"spec": _pick(spec, ("taints", "unschedulable", "providerID")), "status": kept}


def _stopped_heart(one: Mapping[str, Any]) -> Json:
    """The last heartbeat of a node that does not answer. That of a node that does moves all the time."""
    beat = one.get("lastHeartbeatTime")
    return {HEARTBEAT: beat} if beat and one.get("type") == "Ready" and one.get("status") == "Unknown" else {}


def _queue(item: Mapping[str, Any]) -> Json:
    """Counts of pending and admitted workloads move all the time and decide nothing."""
    status = item.get("status") or {}
    return {"spec": item.get("spec") or {}, "status": _pick(status, ("conditions",))}


def _claim(item: Mapping[str, Any]) -> Json:
    names = ("accessModes", "storageClassName", "volumeName", "volumeMode", "resources")
    return {
        "spec": _pick(item.get("spec") or {}, names),
        "status": _pick(item.get("status") or {}, ("phase", "conditions")),
    }


def _pending(item: Mapping[str, Any]) -> Json:
    return _pick(item, ("positionInClusterQueue",))


def _anything(item: Mapping[str, Any]) -> Json:
    return _pick(item, ("spec", "status"))


_SHAPES: dict[str, Callable[[Mapping[str, Any]], Json]] = {
    "Pod": _pod,
    "Job": _job,
    "Workload": _workload,
    "Event": _event,
    "Node": _node,
    "ClusterQueue": _queue,
    "LocalQueue": _queue,
    "PersistentVolumeClaim": _claim,
    PENDING: _pending,
}
HEARTBEAT = "lastHeartbeat"
"""Of a node's condition Ready, while it is Unknown."""
_RESTLESS = frozenset({"lastHeartbeatTime", "lastProbeTime", "managedFields", "observedGeneration"})
"""They move although nothing has happened."""


def _clean(value: Any) -> Any:
    """Texts masked and bounded, restless fields gone. What is JSON has these types and no others."""
    if isinstance(value, str):
        return _masked(value) if len(value) <= _SHORT else mask(value[:MAX_TEXT])
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in value.items() if name not in _RESTLESS}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


_SHORT = 80
_masked = lru_cache(maxsize=20_000)(mask)
"""Names, states and images come again and again, and a look for credentials costs more than all else."""
