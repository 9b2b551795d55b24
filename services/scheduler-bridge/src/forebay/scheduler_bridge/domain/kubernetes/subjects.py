"""What a verdict is about: a job with all that belongs to it. Pods and workloads of nobody known stand for themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    Said,
    kind_of,
    labels_of,
    name_of,
    namespace_of,
    owner_names,
    owns,
    texts_at,
)

JOB_KINDS = (
    "Job",
    "JobSet",
    "TrainJob",
    "RayJob",
    "RayCluster",
    "PyTorchJob",
    "MPIJob",
    "TFJob",
    "XGBoostJob",
    "PaddleJob",
    "JAXJob",
    "AppWrapper",
    "LeaderWorkerSet",
    "StatefulSet",
    "Deployment",
    "Workflow",
)
_MOUNT_NAMES = frozenset({"juicefs-mount", "juicefs-csi-mount"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One job (or lone pod, workload, group) and what belongs to it."""

    facts: Facts
    root: Object | None = None
    jobs: tuple[Object, ...] = ()
    """The root and the jobs below it."""
    workloads: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    groups: tuple[Object, ...] = ()
    events: tuple[Said, ...] = ()
    """What was said about the root and the jobs below it, or about something that is not among the objects."""
    answers: tuple[Object, ...] = ()
    """Errors of the API server."""
    label: str = ""

    @property
    def namespace(self) -> str:
        return next((namespace_of(one) for one in (self.root, *self.workloads, *self.pods) if one), "")


def is_mount_pod(pod: Object) -> bool:
    """Whether a pod only serves a mount for others (JuiceFS CSI, Fluid)."""
    labels = labels_of(pod)
    if labels.get("app.kubernetes.io/name") in _MOUNT_NAMES:
        return True
    return any(str(labels.get(name, "")).endswith("-fuse") for name in ("role", "app.kubernetes.io/component", "app"))


def subjects(facts: Facts) -> tuple[Subject, ...]:
    """Everything in the facts that deserves a verdict of its own, in the order of the objects."""
    jobs, pods = facts.all(*JOB_KINDS), facts.all("Pod")
    mounts = tuple(pod for pod in pods if is_mount_pod(pod))
    plain = tuple(pod for pod in pods if not is_mount_pod(pod)) or pods
    by_name: dict[str, list[Object]] = {}
    for job in jobs:
        by_name.setdefault(name_of(job), []).append(job)
    served = {id(pod) for pod in mounts} if plain is not pods else set()
    found: list[Subject] = []
    taken: set[int] = set()
    for root in jobs:
        if any(owns(other, root) for name in owner_names(root) for other in by_name.get(name, ())):
            continue
        family = _family(facts, root)
        mine = _once(pod for one in family for pod in facts.owned(one, "Pod") if id(pod) not in served)
        ours = _once(one for owner in (*family, *mine) for one in facts.owned(owner, "Workload"))
        grouped = _once(one for owner in family for one in facts.owned(owner, "PodGroup"))
        if grouped:
            mine = _once((*mine, *(pod for pod in plain if any(_in_group(pod, one) for one in grouped))))
        taken.update(id(one) for one in (*family, *mine, *ours, *grouped))
        said = tuple(event for one in (*family, *ours) for event in facts.about(one))
        found.append(
            Subject(
                facts=facts,
                root=root,
                jobs=family,
                workloads=ours,
                pods=mine,
                groups=grouped,
                events=said,
                label=label(root),
            )
        )
    found += _loose(facts, taken, plain)
    refused = [
        Subject(facts=facts, answers=(answer,), label=f"API answer {place}")
        for place, answer in enumerate(facts.refusals, 1)
    ]
    if not found and not refused:
        found = _unattached(facts, {label(pod) for pod in mounts})
    return (*found, *refused)


def _family(facts: Facts, root: Object) -> tuple[Object, ...]:
    """The root and every job below it."""
    family = [root]
    for one in family:
        family += [job for job in facts.owned(one, *JOB_KINDS) if not any(job is known for known in family)]
    return tuple(family)


def _once(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Each object once, in order."""
    return tuple({id(one): one for one in objects}.values())


def _in_group(pod: Object, group: Object) -> bool:
    annotations = texts_at(pod, "metadata", "annotations")
    names = {
        annotations.get("scheduling.k8s.io/group-name"),
        annotations.get("pod-group-name"),
        labels_of(pod).get("pod-group.scheduling.sigs.k8s.io"),
        labels_of(pod).get("scheduling.x-k8s.io/pod-group"),
    }
    return namespace_of(pod) == namespace_of(group) and name_of(group) in names


def _loose(facts: Facts, taken: set[int], pods: tuple[Object, ...]) -> list[Subject]:
    """Groups, workloads and pods whose job is not among the objects."""
    loose_groups = [one for one in facts.all("PodGroup") if id(one) not in taken]
    loose_workloads = [one for one in facts.all("Workload") if id(one) not in taken]
    loose_pods = [one for one in pods if id(one) not in taken]
    made: list[Subject] = []
    for group in loose_groups:
        mine = tuple(pod for pod in loose_pods if _in_group(pod, group) or owns(group, pod))
        loose_pods = [pod for pod in loose_pods if not any(pod is one for one in mine)]
        made.append(
            Subject(facts=facts, root=None, pods=mine, groups=(group,), events=facts.about(group), label=label(group))
        )
    for workload in loose_workloads:
        mine = tuple(pod for pod in loose_pods if owns(pod, workload))
        loose_pods = [pod for pod in loose_pods if not any(pod is one for one in mine)]
        made.append(
            Subject(facts=facts, workloads=(workload,), pods=mine, events=facts.about(workload), label=label(workload))
        )
    made += [Subject(facts=facts, pods=(pod,), label=label(pod)) for pod in loose_pods]
    return made


def _unattached(facts: Facts, known: set[str]) -> list[Subject]:
    """Only events, claims, queues or nodes were given: one verdict for each thing they are about."""
    about: dict[str, list[Said]] = {}
    for event in facts.events:
        about.setdefault(f"{event.kind} {event.namespace}/{event.name}".replace(" /", " "), []).append(event)
    made = [Subject(facts=facts, events=tuple(said), label=name) for name, said in about.items() if name not in known]
    made += [
        Subject(facts=facts, root=one, events=facts.about(one), label=label(one))
        for one in facts.all("PersistentVolumeClaim", "LocalQueue", "ClusterQueue", "AdmissionCheck", "Node")
        if label(one) not in about
    ]
    return made


def label(subject: Object) -> str:
    """Kind, namespace and name."""
    place = f"{namespace_of(subject)}/" if namespace_of(subject) else ""
    return f"{kind_of(subject)} {place}{name_of(subject)}"
