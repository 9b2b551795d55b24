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

RESOURCES = ("cpu", "memory", "gpu")


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
    """Why one applicant does not start now."""

    key: str
    reason: Reason
    message: str
    lacking: tuple[Quantity, ...]
    position: int
    """From 1, among those that wait."""


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
    reserved = Amount()
    ahead: list[str] = []
    admitted: list[Admission] = []
    waiting: list[Wait] = []
    for applicant in order(applicants):
        need = applicant.amount
        if need.exceeding(total):
            waiting.append(_never(applicant, total, len(waiting) + 1))
            continue
        if not need.exceeding(free - reserved):
            admitted.append(Admission(key=applicant.key, devices=tuple(devices[: need.gpus])))
            del devices[: need.gpus]
            free -= need
            continue
        holding = [holder.key for holder in holders] + [item.key for item in admitted]
        waiting.append(_wait(applicant, free, reserved, total, ahead=ahead, holding=holding, position=len(waiting) + 1))
        reserved += need
        ahead.append(applicant.key)
    return QueueAnswer(admitted=tuple(admitted), waiting=tuple(waiting))


def _free_devices(total: Amount, holders: Sequence[Holder]) -> list[str]:
    taken = {device for holder in holders for device in holder.devices}
    return [str(index) for index in range(total.gpus) if str(index) not in taken]


def _never(applicant: Applicant, total: Amount, position: int) -> Wait:
    need = applicant.amount
    names = need.exceeding(total)
    return Wait(
        key=applicant.key,
        reason=Reason.NEVER_FITS,
        message="larger than this machine: "
        + ", ".join(f"{need.show(name)} asked, {total.show(name)} in all" for name in names),
        lacking=quantities(names, need=need, free=total, total=total),
        position=position,
    )


def _wait(
    applicant: Applicant,
    free: Amount,
    reserved: Amount,
    total: Amount,
    *,
    ahead: list[str],
    holding: list[str],
    position: int,
) -> Wait:
    need = applicant.amount
    lacking = need.exceeding(free)
    if lacking:
        numbers = "; ".join(
            f"needs {need.show(name)}, {_number(free, name)} of {total.show(name)} free" for name in lacking
        )
        who = f", held by {_some(holding)}" if holding else ""
        return Wait(
            key=applicant.key,
            reason=Reason.QUOTA_EXCEEDED,
            message=f"{numbers}{who}",
            lacking=quantities(lacking, need=need, free=free, total=total),
            position=position,
        )
    short = need.exceeding(free - reserved)
    return Wait(
        key=applicant.key,
        reason=Reason.BEHIND_OTHERS,
        message=f"needs {need.show_all(short)}, which {_some(ahead)} waits for and comes first",
        lacking=quantities(short, need=need, free=free - reserved, total=total),
        position=position,
    )


def _number(amount: Amount, name: str) -> str:
    value = max(0.0, amount.of(name))
    return amount.show(name).removesuffix(" memory") if name == "memory" else f"{value:g}"


def _some(keys: list[str]) -> str:
    names = [key.rpartition("/")[2] for key in keys]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
