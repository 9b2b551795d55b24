"""What is known about a cluster at one moment, from API objects as they come from list, watch or `kubectl get -o json`.

`facts_from_objects` takes objects, lists of them, and watch events in any order; the newest version of an object
stands. `Facts` only looks things up: which pods belong to a job, which events to a pod (by uid *and* name, since names are used
again), which claim is behind a volume. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeVar

from forebay.scheduler_bridge.domain.kubernetes.asking import Object, items_at, part, requests, text_at, texts_at

__all__ = ["Object", "items_at", "part", "text_at", "texts_at"]

_SHAPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Event", ("involvedObject",)),
    ("Event", ("regarding",)),
    ("Node", ("status", "allocatable")),
    ("Node", ("status", "nodeInfo")),
    ("Node", ("spec", "taints")),
    ("Pod", ("spec", "containers")),
    ("Workload", ("spec", "podSets")),
    ("Job", ("spec", "backoffLimit")),
    ("PersistentVolumeClaim", ("spec", "volumeName")),
)
_NEVER_ROOTS = frozenset({"Node", "ReplicaSet", "Service", "ConfigMap"})


V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An event of the cluster."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    component: str
    at: datetime | None
    first: datetime | None
    field: str = ""
    """The container that it is about: `spec.containers{trainer}`."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """Objects by kind, and what was said about them."""

    objects: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    events: tuple[Said, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    """Place in the queue, from 0, by `namespace/name` of the Workload."""
    refusals: tuple[Object, ...] = ()
    """Answers of the API server that were errors."""
    said_of: Mapping[str, tuple[Said, ...]] = field(default_factory=dict)
    """Events by the name of what they are about."""
    children: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    """Objects by the names of those that may own them."""
    held: Mapping[str, Decimal] = field(default_factory=dict)
    """What the pods that are on nodes ask for, by resource."""
    all_nodes_known: bool = False
    """Every node that a pod is on is among the objects."""
    places: Mapping[int, int] = field(default_factory=dict)
    """Where each object first stood in the input, by its identity."""
    of_one_job: bool = False
    """Only what belongs to one job was given: other pods and nodes are not among the objects."""

    def all(self, *kinds: str) -> tuple[Object, ...]:
        return tuple(found for kind in kinds for found in self.objects.get(kind, ()))

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        return next(
            (one for one in self.objects.get(kind, ()) if name_of(one) == name and _same(namespace_of(one), namespace)),
            None,
        )

    def by_uid(self, uid: str) -> Object | None:
        """The object of that uid, of whatever kind."""
        return next((one for found in self.objects.values() for one in found if uid_of(one) == uid), None)

    def about(self, subject: Object) -> tuple[Said, ...]:
        """Events about an object, oldest first. A uid that differs is an earlier object of the same name."""
        uid, name, namespace = uid_of(subject), name_of(subject), namespace_of(subject)
        return tuple(
            event
            for event in self.said_of.get(name, ())
            if _same(event.namespace, namespace)
            and (not event.uid or not uid or event.uid == uid)
            and (not event.kind or event.kind == kind_of(subject))
        )

    def owned(self, owner: Object, *kinds: str) -> tuple[Object, ...]:
        """Objects that an owner controls, directly."""
        return tuple(one for one in self.children.get(name_of(owner), ()) if kind_of(one) in kinds and owns(owner, one))


def _same(left: str, right: str) -> bool:
    return not left or not right or left == right


def kind_of(subject: Object) -> str:
    return text_at(subject, "kind")


def name_of(subject: Object) -> str:
    return text_at(subject, "metadata", "name")


def namespace_of(subject: Object) -> str:
    return text_at(subject, "metadata", "namespace")


def uid_of(subject: Object) -> str:
    return text_at(subject, "metadata", "uid")


def labels_of(subject: Object) -> dict[str, str]:
    return texts_at(subject, "metadata", "labels")


def moment(value: object) -> datetime | None:
    """A time as Kubernetes writes it; None when it is none."""
    if not isinstance(value, str) or not value:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def condition(subject: Object, kind: str, *path: str) -> Object | None:
    """The newest condition of that type."""
    found = [one for one in items_at(subject, *(path or ("status", "conditions"))) if text_at(one, "type") == kind]
    return max(found, key=lambda one: text_at(one, "lastTransitionTime"), default=None)


def is_true(subject: Object, kind: str) -> bool:
    found = condition(subject, kind)
    return found is not None and found.get("status") in ("True", True)


def owns(owner: Object, owned: Object) -> bool:
    """Whether the owned object says so, or carries the label that a Job gives to its pods."""
    if not _same(namespace_of(owner), namespace_of(owned)) or owner is owned:
        return False
    references = items_at(owned, "metadata", "ownerReferences")
    for reference in references:
        uid = text_at(reference, "uid")
        if text_at(reference, "kind") == kind_of(owner) and text_at(reference, "name") == name_of(owner):
            return not uid or not uid_of(owner) or uid == uid_of(owner)
    if references or kind_of(owner) != "Job" or kind_of(owned) != "Pod":
        return False
    labels = labels_of(owned)
    return name_of(owner) in {labels.get("job-name"), labels.get("batch.kubernetes.io/job-name")}


def facts_from_objects(objects: Iterable[object], *, of_one_job: bool = False) -> Facts:
    """Facts from anything that the API hands out. What is no object is left out.

    `of_one_job`: other jobs' pods are not among them, so what is free on a node is not known.
    """
    kept: dict[tuple[str, str, str], Object] = {}
    positions: dict[str, int] = {}
    refusals: list[Object] = []
    events: dict[tuple[str, ...], Said] = {}
    for watched, found in _flat(objects):
        kind = kind_of(found) or _shape(found)
        if kind == "Status" or (not kind and "message" in found and "code" in found):
            if found.get("code") != 410 and text_at(found, "status") != "Success":
                refusals.append(found)
        elif kind == "Event":
            event = _event(found)
            events[event.kind, event.namespace, event.name, event.uid, event.reason, event.message] = event
        elif "positionInClusterQueue" in found or "positionInLocalQueue" in found:
            place = found.get("positionInClusterQueue", found.get("positionInLocalQueue"))
            if isinstance(place, int):
                positions[f"{namespace_of(found)}/{name_of(found)}"] = place
        elif kind and isinstance(part(found, "metadata"), Mapping) and name_of(found):
            key = (kind, namespace_of(found), name_of(found))
            if watched == "DELETED" and not _ended(found):
                kept.pop(key, None)
            else:
                kept[key] = found if kind_of(found) else {**found, "kind": kind}
    by_kind: dict[str, list[Object]] = {}
    for (kind, _, _), found in kept.items():
        by_kind.setdefault(kind, []).append(found)
    said = tuple(sorted(events.values(), key=lambda one: one.at or datetime.min.replace(tzinfo=UTC)))
    held, known = _held(by_kind.get("Pod", []), by_kind.get("Node", []))
    return Facts(
        objects={kind: tuple(found) for kind, found in by_kind.items()},
        events=said,
        positions=positions,
        refusals=tuple(refusals),
        said_of=_grouped((event.name, event) for event in said),
        children=_grouped((owner, one) for found in by_kind.values() for one in found for owner in owner_names(one)),
        held=held,
        all_nodes_known=known and not of_one_job,
        places={id(found): place for place, found in enumerate(kept.values())},
        of_one_job=of_one_job,
    )


def _grouped(pairs: Iterable[tuple[str, V]]) -> dict[str, tuple[V, ...]]:
    lists: dict[str, list[V]] = {}
    for key, value in pairs:
        lists.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in lists.items()}


def owner_names(subject: Object) -> set[str]:
    """Names of everything that may own an object: by reference, and by the label that a Job gives to its pods."""
    labels = labels_of(subject)
    named = {text_at(one, "name") for one in items_at(subject, "metadata", "ownerReferences")}
    return (named | {labels.get("job-name", ""), labels.get("batch.kubernetes.io/job-name", "")}) - {""}


def _held(pods: list[Object], nodes: list[Object]) -> tuple[dict[str, Decimal], bool]:
    """What pods on nodes ask for together, and whether all those nodes are known."""
    held: dict[str, Decimal] = {}
    known = {name_of(node) for node in nodes}
    complete = True
    for pod in pods:
        place = text_at(pod, "spec", "nodeName")
        if place and text_at(pod, "status", "phase") not in {"Succeeded", "Failed"}:
            complete = complete and place in known
            for name, value in requests(pod).items():
                held[name] = held.get(name, Decimal(0)) + value
    return held, complete


def _flat(objects: Iterable[object], *, depth: int = 0) -> Iterator[tuple[str, Object]]:
    """(kind of watch event, object). Lists are opened, bookmarks left out."""
    for one in objects:
        if isinstance(one, (list, tuple)):
            if depth < 4:
                yield from _flat(one, depth=depth + 1)
        elif isinstance(one, Mapping):
            if isinstance(one.get("object"), Mapping) and isinstance(one.get("type"), str):
                if one["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                    yield one["type"], one["object"]
            elif isinstance(one.get("items"), list) and depth < 4:
                inner = kind_of(one).removesuffix("List")
                for item in one["items"]:
                    named = (
                        isinstance(item, Mapping) and inner and not kind_of(item) and inner != "PendingWorkloadsSummary"
                    )
                    yield from _flat([{**item, "kind": inner} if named else item], depth=depth + 1)
            else:
                yield "", one


def _ended(found: Object) -> bool:
    """What has ended stays what it was, also after its object was cleaned up."""
    if text_at(found, "status", "phase") in {"Succeeded", "Failed"}:
        return True
    return any(is_true(found, kind) for kind in ("Complete", "Failed", "Finished"))


def _shape(found: Object) -> str:
    """The kind of an object that does not say it."""
    for kind, path in _SHAPES:
        if part(found, *path) is not None:
            return kind
    return ""


def _times(found: Object) -> int:
    """How often it was said."""
    times = found.get("count") or part(found, "series", "count") or found.get("deprecatedCount")
    return times if isinstance(times, int) and times > 0 else 1


def _event(found: Object) -> Said:
    about = found.get("involvedObject") or found.get("regarding") or {}
    last = (
        text_at(found, "lastTimestamp")
        or text_at(found, "series", "lastObservedTime")
        or text_at(found, "deprecatedLastTimestamp")
        or text_at(found, "eventTime")
        or text_at(found, "firstTimestamp")
        or text_at(found, "metadata", "creationTimestamp")
    )
    first = (
        text_at(found, "firstTimestamp")
        or text_at(found, "deprecatedFirstTimestamp")
        or text_at(found, "eventTime")
        or last
    )
    return Said(
        kind=text_at(about, "kind"),
        namespace=text_at(about, "namespace") or namespace_of(found),
        name=text_at(about, "name"),
        uid=text_at(about, "uid"),
        reason=text_at(found, "reason"),
        message=text_at(found, "message") or text_at(found, "note"),
        component=text_at(found, "source", "component")
        or text_at(found, "reportingComponent")
        or text_at(found, "reportingController"),
        at=moment(last),
        first=moment(first),
        field=text_at(about, "fieldPath"),
        count=_times(found),
    )
