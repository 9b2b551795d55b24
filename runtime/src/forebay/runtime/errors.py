"""Errors of the runtime: what may pass by waiting, what never will, and a plain "no"."""

from __future__ import annotations

from typing import Any


class RuntimeFailure(Exception):  # noqa: N818 the root of a family; its members end in Error
    """Root of the runtime's own errors."""


class Refused(RuntimeFailure):
    """The answer to a command or question is no, and here is why and what to do."""

    def __init__(self, code: str, message: str, next_action: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.next_action = next_action
        self.details = details or {}

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "next_action": self.next_action, "details": self.details}


class Unreachable(RuntimeFailure):
    """The bus or a service does not answer; waiting or starting it may help."""

    def __init__(self, message: str, next_action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_action = next_action


class NotAdmitted(Unreachable):
    """The bus answers and does not know who this is, or not yet."""


class RetryLater(RuntimeFailure):
    """A worker cannot go on now; run the same item again after `delay_s` seconds."""

    def __init__(self, delay_s: float, reason: str) -> None:
        super().__init__(reason)
        self.delay_s = delay_s
        self.reason = reason


class NoProgressError(RuntimeFailure):
    """A work item gave no sign of progress for too long and was abandoned."""


class ProcessesUnavailableError(RuntimeFailure):
    """No worker process can be started now; later there may be room again."""


class WorkerProcessError(RuntimeFailure):
    """A worker process ended without an answer, or its error cannot travel; the text says what is known."""


class OutOfMemoryError(RuntimeFailure):
    """A call in a worker process takes more memory than it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"it takes more than {self.limit >> 20} MiB of memory"


class FencedError(RuntimeFailure):
    """Another process has taken over this store; this one must stand by."""


class StoreNotFitError(RuntimeFailure):
    """A store cannot be used as it is, and waiting does not help; `next_action` says what does."""

    def __init__(self, message: str, next_action: str = "") -> None:
        super().__init__(f"{message}. {next_action}" if next_action else message)
        self.next_action = next_action


class LogMismatchError(RuntimeFailure):
    """The log is not the one that was folded, or not whole: nothing may be guessed from it.

    `code` is LogHole, LogTruncated, LogReplaced, LogDiverged or LogLostTail.
    """

    def __init__(self, code: str, message: str, next_action: str = "") -> None:
        super().__init__(f"{code}: {message}" + (f". {next_action}" if next_action else ""))
        self.code = code
        self.message = message
        self.next_action = next_action


class SettingsError(RuntimeFailure):
    """Settings do not fit; the message lists every problem at once."""
