"""The local backend's queue: who starts now, and what the others wait for. One pure function.

Order is priority, then age. A job that does not fit reserves what it needs, so
smaller ones behind it take only what it leaves over: nobody overtakes a large job
into starvation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import Quantity
from forebay.scheduler_bridge.domain.amounts import Amount, quantities

NAMED = 4
"""A sentence names one fewer of those who are in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A job that holds quota now (admitted, or its admission is decided)."""

    key: str
    amount: Amount
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A job whose gate is open and that holds nothing."""

    key: str
    amount: Amount
    priority: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    key: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why one applicant does not start now. Sentences and numbers are made when somebody reads them."""

    key: str
    reason: Reason
    short: tuple[str, ...]
    """Names of the resources that lack."""
    position: int
    """From 1, among those that wait."""
    need: Amount
    free: Amount
    """Free for this applicant: without what those before it have reserved when that is the reason."""
    total: Amount
    others: tuple[str, ...] = ()
    """Keys of those who hold it, or who come first."""

    @property
    def lacking(self) -> tuple[Quantity, ...]:
        return quantities(self.short, need=self.need, free=self.free, total=self.total)

    @property
    def message(self) -> str:
        if self.reason == Reason.NEVER_FITS:
            numbers = [f"{self.need.show(name)} asked, {self.total.show(name)} in all" for name in self.short]
            return f"larger than this machine: {', '.join(numbers)}"
        if self.reason == Reason.BEHIND_OTHERS:
            return f"needs {self.need.show_all(self.short)}, which {_some(self.others)} waits for and comes first"
        numbers = [
            f"needs {self.need.show(name)}, {_number(self.free, name)} of {self.total.show(name)} free"
            for name in self.short
        ]
        who = f", held by {_some(self.others)}" if self.others else ""
        return f"{'; '.join(numbers)}{who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAnswer:
    admitted: tuple[Admission, ...]
    waiting: tuple[Wait, ...]


def order(applicants: Iterable[Applicant]) -> list[Applicant]:
    """Higher priority first, then the older one; the key makes it one order on every machine."""
    return sorted(applicants, key=lambda item: (-item.priority, item.since, item.key))


def serve(total: Amount, holders: Sequence[Holder], applicants: Iterable[Applicant]) -> QueueAnswer:
    """Admit what fits, in order, and say of every other what it lacks.

    `holders` must contain admissions that are decided but not on record yet, else
    the same quota would be given twice.
    """
    free = total - sum((holder.amount for holder in holders), Amount())
    devices = _free_devices(total, holders)
    holding = [holder.key for holder in holders]
    reserved = Amount()
    ahead: list[str] = []
    admitted: list[Admission] = []
    waiting: list[Wait] = []
    for applicant in order(applicants):
        need = applicant.amount
        found = _judge(need, free, reserved, total)
        if found is None:
            admitted.append(Admission(key=applicant.key, devices=tuple(devices[: need.gpus])))
            del devices[: need.gpus]
            free -= need
            holding.append(applicant.key)
            continue
        reason, short = found
        behind = reason == Reason.BEHIND_OTHERS
        waiting.append(
            Wait(
                key=applicant.key,
                reason=reason,
                short=short,
                position=len(waiting) + 1,
                need=need,
                free=free - reserved if behind else free,
                total=total,
                others=tuple((ahead if behind else holding)[:NAMED]),
            )
        )
        if reason != Reason.NEVER_FITS:
            reserved += need
            ahead.append(applicant.key)
    return QueueAnswer(admitted=tuple(admitted), waiting=tuple(waiting))


def _judge(need: Amount, free: Amount, reserved: Amount, total: Amount) -> tuple[Reason, tuple[str, ...]] | None:
    """Why somebody who needs this must wait, and for what; None: nothing is in the way."""
    for reason, limit in (
        (Reason.NEVER_FITS, total),
        (Reason.QUOTA_EXCEEDED, free),
        (Reason.BEHIND_OTHERS, free - reserved),
    ):
        if short := need.exceeding(limit):
            return reason, short
    return None


def _free_devices(total: Amount, holders: Sequence[Holder]) -> list[str]:
    taken = {device for holder in holders for device in holder.devices}
    return [str(index) for index in range(total.gpus) if str(index) not in taken]


def _number(amount: Amount, name: str) -> str:
    value = max(0.0, amount.of(name))
    return amount.show(name).removesuffix(" memory") if name == "memory" else f"{value:g}"


def _some(keys: tuple[str, ...]) -> str:
    names = [key.rpartition("/")[2] for key in keys]
    return ", ".join(names[: NAMED - 1]) + (" and others" if len(names) == NAMED else "")
