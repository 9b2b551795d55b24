"""Every way the cache says no, each with the reason code that goes into its event."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

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
        close = difflib.get_close_matches(column.replace(".", "_"), [name.replace(".", "_") for name in names], n=3)
        self.column = column
        self.close = tuple(name for name in names if name.replace(".", "_") in close)
        hint = f"did you mean {' or '.join(self.close)}?" if self.close else f"there are: {', '.join(names)}"
        super().__init__(f"column {column!r} is not in {where}; {hint}")


class PoolError(CacheError):
    """The place that jobs read from does not work now; it may come back."""

    reason = Reason.CACHE_MOUNT_GONE


class OverBudgetError(CacheError):
    """The plan needs more room than there is; refused before the first byte."""

    reason = Reason.CACHE_OVER_BUDGET

    def __init__(self, *, needed: int, available: int, budget: int) -> None:
        self.needed = needed
        self.available = available
        self.budget = budget
        super().__init__(
            f"the plan needs {needed:,} bytes of cache and {available:,} of {budget:,} are free: "
            "ask for fewer columns or episodes, wait until other jobs end, or raise FOREBAY_CACHE_BUDGET_BYTES"
        )
