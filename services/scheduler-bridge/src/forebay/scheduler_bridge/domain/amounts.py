"""Amounts of machine resources, compared exactly, and how people read them.

Processors are counted in thousandths so that sums never drift. Used by the
queue, the checks at submit and every sentence with numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forebay.contracts.v1.jobs import Quantity, Resources

_STEPS = ("B", "kB", "MB", "GB", "TB", "PB")


def show_bytes(count: float) -> str:
    """`1.2 GB`: decimal units, one digit after the point below ten."""
    value, unit = float(count), _STEPS[0]
    for step in _STEPS:
        unit = step
        if abs(value) < 999.5 or step == _STEPS[-1]:
            break
        value /= 1000
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"


def show_percent(part: int, whole: int) -> str:
    """`41 %`, rounded down: 100 % is said only when it is true."""
    return f"{100 * part // whole if whole else 100} %"


def _plain(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Processors, memory and GPUs, either asked for, held, or in all."""

    millicpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            millicpus=self.millicpus + other.millicpus,
            memory_bytes=self.memory_bytes + other.memory_bytes,
            gpus=self.gpus + other.gpus,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            millicpus=self.millicpus - other.millicpus,
            memory_bytes=self.memory_bytes - other.memory_bytes,
            gpus=self.gpus - other.gpus,
        )

    def exceeding(self, limit: Amount) -> tuple[str, ...]:
        """Names of the resources of which more than `limit` is needed; what is not needed never lacks."""
        pairs = (
            ("cpu", self.millicpus, limit.millicpus),
            ("memory", self.memory_bytes, limit.memory_bytes),
            ("gpu", self.gpus, limit.gpus),
        )
        return tuple(name for name, need, have in pairs if need > 0 and need > have)

    def of(self, resource: str) -> float:
        """The quantity of one resource in its own unit: processors, bytes, GPUs."""
        return {"cpu": self.millicpus / 1000, "memory": float(self.memory_bytes), "gpu": float(self.gpus)}[resource]

    def show(self, resource: str) -> str:
        """`2 CPUs`, `8.0 GB memory` or `1 GPU`."""
        value = self.of(resource)
        if resource == "memory":
            return f"{show_bytes(value)} memory"
        unit = {"cpu": "CPU", "gpu": "GPU"}[resource]
        return f"{_plain(value)} {unit}{'' if value == 1 else 's'}"

    def show_all(self, resources: tuple[str, ...] = ("cpu", "memory", "gpu")) -> str:
        return ", ".join(self.show(name) for name in resources)


def amount_of(resources: Resources) -> Amount:
    """What a job asks for; a fraction of a thousandth of a processor counts as a whole one."""
    return Amount(
        millicpus=math.ceil(round(resources.cpu * 1000, 6)),
        memory_bytes=resources.memory_bytes,
        gpus=resources.gpus,
    )


def asked_by(spec: Mapping[str, Any]) -> Amount:
    """`amount_of` for a stored, validated spec: the queue asks this of every waiting job, again and again."""
    resources = spec.get("resources", {})
    return Amount(
        millicpus=math.ceil(round(resources.get("cpu", 1) * 1000, 6)),
        memory_bytes=resources.get("memory_bytes", 1 << 30),
        gpus=resources.get("gpus", 0),
    )


def quantities(names: tuple[str, ...], *, need: Amount, free: Amount, total: Amount) -> tuple[Quantity, ...]:
    """Need, free and total of the named resources; nothing is ever less than nothing free."""
    return tuple(
        Quantity(resource=name, need=need.of(name), free=max(0.0, free.of(name)), total=total.of(name))
        for name in names
    )
