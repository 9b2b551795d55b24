"""Every way the cache says no, each with the reason code that goes into its event."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Literal

from forebay.contracts.reasons import Reason


class CacheError(Exception):
    """Base of all; `reason` is the code a `CacheFailed` event or the CLI shows."""

    reason: ClassVar[Reason] = Reason.CACHE_FAILED


class PlanError(CacheError):
    """No plan can be made from these files and this request. Waiting does not help."""


class DataUnreadableError(PlanError):
    """The folder, a table or a file of it is not there or cannot be read."""

    reason = Reason.DATA_UNREADABLE


class DataChangedError(PlanError):
    """A file is not what the version's own manifest says."""

    reason = Reason.DATASET_CHANGED


class FormatUnsupportedError(PlanError):
    """The files use a feature that this planner cannot account for byte by byte."""

    reason = Reason.FORMAT_UNSUPPORTED


class ColumnUnknownError(PlanError):
    """A column was asked for that no table has."""

    reason = Reason.COLUMN_UNKNOWN

    def __init__(self, column: str, known: Iterable[str], where: str) -> None:
        names = sorted(set(known))
        self.column = column
        self.close = _close(column, names)
        hint = f"did you mean {' or '.join(self.close)}?" if self.close else f"there are: {', '.join(names)}"
        super().__init__(f"column {column!r} is not in {where}; {hint}")


def _close(wanted: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names nearly as near as the nearest, best first; dots and underscores are the same."""
    plain = wanted.replace(".", "_")
    ratios = {name: difflib.SequenceMatcher(None, plain, name.replace(".", "_")).ratio() for name in names}
    best = max(ratios.values(), default=0.0)
    near = [name for name, ratio in ratios.items() if ratio >= max(0.7, best - 0.1)]
    return tuple(sorted(near, key=lambda name: (-ratios[name], name))[:3])


class PoolError(CacheError):
    """The place that jobs read from does not work now; it may come back."""

    reason = Reason.CACHE_MOUNT_GONE


OriginTrouble = Literal["refused", "failing", "missing", "gone", "slow", "unknown"]


class OriginError(PoolError):
    """The object storage that the pool fetches from does not give the bytes; `trouble` is the kind of it."""

    reason = Reason.CACHE_ORIGIN_FAILED

    def __init__(self, trouble: OriginTrouble, message: str) -> None:
        self.trouble = trouble
        super().__init__(message)


class OverBudgetError(CacheError):
    """The disk has no room for what is still missing; refused before the first byte."""

    reason = Reason.CACHE_OVER_BUDGET

    def __init__(self, *, needed: int, available: int, budget: int) -> None:
        self.needed = needed
        self.available = available
        self.budget = budget
        super().__init__(
            f"{needed:,} bytes are still to be fetched and the cache's disk has room for {available:,}: "
            "free some of it, or ask for fewer columns or episodes; it is tried again"
        )
