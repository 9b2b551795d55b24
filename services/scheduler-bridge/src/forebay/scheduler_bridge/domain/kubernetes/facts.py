"""What is known about a cluster at one moment, from API objects as they come from list, watch or `kubectl get -o json`.

`facts_from_objects` takes objects, lists of them, and watch events in any order; the newest version of an object
stands. `Facts` only looks things up: which pods belong to a job, which events to a pod (by uid *and* name, since names are used
again), which claim is behind a volume. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]

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


@dataclass(frozen=True, slots=True)
class Facts:
    """Objects by kind, and what was said about them."""

    objects: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    events: tuple[Said, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    """Place in the queue, from 0, by `namespace/name` of the Workload."""
    refusals: tuple[Object, ...] = ()
    """Answers of the API server that were errors."""

    def all(self, *kinds: str) -> tuple[Object, ...]:
        return tuple(found for kind in kinds for found in self.objects.get(kind, ()))

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        return next(
            (one for one in self.objects.get(kind, ()) if name_of(one) == name and _same(namespace_of(one), namespace)),
            None,
        )

    def about(self, subject: Object) -> tuple[Said, ...]:
        """Events about an object, oldest first. A uid that differs is an earlier object of the same name."""
        uid, name, namespace = uid_of(subject), name_of(subject), namespace_of(subject)
        return tuple(
            event
            for event in self.events
            if event.name == name
            and _same(event.namespace, namespace)
            and (not event.uid or not uid or event.uid == uid)
            and (not event.kind or event.kind == kind_of(subject))
        )

    def owned(self, owner: Object, *kinds: str) -> tuple[Object, ...]:
        """Objects that an owner controls, directly."""
        return tuple(one for one in self.all(*kinds) if owns(owner, one))


def _same(left: str, right: str) -> bool:
    return not left or not right or left == right


def part(subject: object, *path: str) -> Any:
    """A value at a path, None when any step is missing or not a mapping."""
    for step in path:
        if not isinstance(subject, Mapping):
            return None
        subject = subject.get(step)
    return subject


def text_at(subject: object, *path: str) -> str:
    found = part(subject, *path)
    return found if isinstance(found, str) else ""


def items_at(subject: object, *path: str) -> tuple[Object, ...]:
    """The mappings in a list at a path."""
    found = part(subject, *path)
    if not isinstance(found, Sequence) or isinstance(found, (str, bytes)):
        return ()
    return tuple(one for one in found if isinstance(one, Mapping))


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


def texts_at(subject: object, *path: str) -> dict[str, str]:
    """The texts of a mapping at a path; what is no text is left out."""
    found = part(subject, *path)
    return (
        {str(key): value for key, value in found.items() if isinstance(value, str)}
        if isinstance(found, Mapping)
        else {}
    )


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


def facts_from_objects(objects: Iterable[object]) -> Facts:
    """Facts from anything that the API hands out. What is no object is left out."""
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
    return Facts(
        objects={kind: tuple(found) for kind, found in by_kind.items()},
        events=tuple(sorted(events.values(), key=lambda one: one.at or datetime.min.replace(tzinfo=UTC))),
        positions=positions,
        refusals=tuple(refusals),
    )


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


def _event(found: Object) -> Said:
    about = found.get("involvedObject") or found.get("regarding") or {}
    last = (
        text_at(found, "lastTimestamp")
        or text_at(found, "series", "lastObservedTime")
        or text_at(found, "deprecatedLastTimestamp")
        or text_at(found, "eventTime")
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
    )
