"""Reading values out of API objects that may be anything, and what a pod asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from forebay.scheduler_bridge.domain.kubernetes.quantities import amount

Object = Mapping[str, Any]


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


def texts_at(subject: object, *path: str) -> dict[str, str]:
    """The texts of a mapping at a path; what is no text is left out."""
    found = part(subject, *path)
    return (
        {str(key): value for key, value in found.items() if isinstance(value, str)}
        if isinstance(found, Mapping)
        else {}
    )


def requests(pod: Object) -> dict[str, Decimal]:
    """What the scheduler counts for a pod: the sum of its containers, or the largest init container."""
    total: dict[str, Decimal] = {}
    for container in items_at(pod, "spec", "containers"):
        _add(total, container)
    sidecars: dict[str, Decimal] = {}
    for container in items_at(pod, "spec", "initContainers"):
        if text_at(container, "restartPolicy") == "Always":
            _add(sidecars, container)
            continue
        alone = dict(sidecars)
        _add(alone, container)
        for name, value in alone.items():
            total[name] = max(total.get(name, Decimal(0)), value)
    for name, value in sidecars.items():
        total[name] = total.get(name, Decimal(0)) + value
    return total


def _amounts(container: Object, which: str) -> Mapping[str, Any]:
    found = part(container, "resources", which)
    return found if isinstance(found, Mapping) else {}


def _add(total: dict[str, Decimal], container: Object) -> None:
    for name, value in {**_amounts(container, "limits"), **_amounts(container, "requests")}.items():
        found = amount(value)
        if found is not None:
            total[name] = total.get(name, Decimal(0)) + found
