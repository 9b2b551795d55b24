"""Long work: what a worker gets and promises. `engine.py` and `workshop.py` run it.

An item is claimed by the one active process of a service; after a crash the next
process runs it again, so a worker must be idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from forebay.runtime.documents import D
from forebay.runtime.machine import Emit
from forebay.runtime.state import State

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One piece of long work as `decide` asked for it, or all pieces of a group: then `payload` has what any of them has."""

    kind: str
    key: str
    project: str
    payload: Mapping[str, Any]
    tries: int
    """How often it was started before."""


class WorkContext(Protocol):
    """What a worker may do besides its work."""

    async def emit(self, *emits: Emit) -> None:
        """Put events into the outbox at once, before the work ends."""
        ...

    def progress(self, payload: Mapping[str, Any]) -> None:
        """Tell watchers how far it is; best effort, never stored."""
        ...

    def alive(self) -> None:
        """Say that it goes on, without telling watchers. Silence for too long ends the run as a failure."""
        ...

    async def in_process(self, function: Callable[..., T], *arguments: Any) -> T:
        """The value of `function(*arguments, report)` in a process that is killed when the run ends or falls silent.

        For everything that looks into files which others write. The function is found by its
        name, arguments and value are pickled; `report(payload)` is `progress`, or `alive` when it is empty.
        """
        ...

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """The value of a blocking call in a thread of the item's own: when it hangs, nobody waits for its thread.

        While an abandoned call hangs the item is not run again, so two runs never write at once.
        """
        ...

    async def get(self, kind: type[D], key: str) -> D | None:
        """Read one document of the own service as it is now."""
        ...

    async def read(self, question: Callable[[State], T]) -> T:
        """The answer of a pure function of the state: several documents as they were at one moment."""
        ...


class Worker(Protocol):
    """Does one kind of work and returns the events that are its result.

    Raise `RetryLater` for what may pass. It must give a sign of progress now and then:
    every use of the context is one. Any other exception, and silence, is retried with a
    growing delay and parked after the last try.
    """

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]: ...
