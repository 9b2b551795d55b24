"""Decoding in processes of their own: what comes from outside cannot take this process down.

One pool per inspection, one decoder per core. A decoder that dies, hangs or takes
more than its limits costs its file, as an `UnreadableFileError`; the others go on.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from forebay.ingest.domain.breach import printable
from forebay.ingest.errors import DecodersUnavailableError, IngestError, UnreadableFileError
from forebay.runtime.errors import OutOfMemoryError, ProcessesUnavailableError, WorkerProcessError
from forebay.runtime.processes import Limits, Order, ProcessServer

_TRIES = 2
"""A decoder may be ended for reasons that are not its file's; only the second death counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`function(*arguments, report)` in a decoder; `report(steps)` says that it goes on. Must be importable by name."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    size: int = 0
    """Bytes that are decoded: large ones start first and may take longer."""
    on_steps: Callable[[int], None] = lambda _: None


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SERVER = ProcessServer(
    (
        "encodings.utf_8_sig",
        "numpy.ma",
        "pyarrow.parquet",
        "av.subtitles.stream",
        "forebay.ingest.adapters.episode_statistics",
        "forebay.ingest.adapters.image_scans",
        "forebay.ingest.adapters.pyav_video",
        "forebay.ingest.adapters.row_scans",
        "forebay.ingest.adapters.lerobot_tables",
    )
)
"""Preloads everything that decoding imports sooner or later."""


def warm_up() -> None:
    """Load the decoding libraries in the background. The first inspection then does not wait for them."""
    SERVER.warm_up()


def service_processes() -> ProcessServer:
    """The same server, for a service that runs whole pieces of work in processes too."""
    SERVER.preload("forebay.ingest.workers.register", "forebay.ingest.workers.validate")
    return SERVER


@dataclass(slots=True, kw_only=True)
class _Busy:
    """What a decoder is at."""

    number: int
    heard: float
    """When it last said something (monotonic)."""


@dataclass(slots=True, kw_only=True)
class Decoders:
    """A pool; use it as a context manager. Not for use by several threads at once."""

    processes: int = field(default_factory=cores)
    limits: Limits = field(default_factory=Limits)
    _idle: list[Connection] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """The value of each task, or the `IngestError` that stands in its place; in the order of the tasks."""
        return _Run(self, tasks).finish()


class _Run:
    """One batch of tasks on their way through the decoders."""

    def __init__(self, pool: Decoders, tasks: Sequence[Task]) -> None:
        self._pool = pool
        self._tasks = tasks
        self._waiting = sorted(range(len(tasks)), key=lambda number: tasks[number].size)
        self._busy: dict[Connection, _Busy] = {}
        self._deaths = [0] * len(tasks)
        self._answers: list[Any] = [None] * len(tasks)

    def finish(self) -> list[Any]:
        try:
            while self._waiting or self._busy:
                self._hand_out()
                ready = wait(list(self._busy))
                for connection in ready:
                    self._hear(connection)  # type: ignore[arg-type] # only connections are waited for
        finally:
            for connection in self._busy:
                connection.close()
        return self._answers

    def _hand_out(self) -> None:
        pool = self._pool
        while self._waiting and len(self._busy) < pool.processes:
            connection = pool._idle.pop() if pool._idle else _new_decoder()  # noqa: SLF001 one class in two parts
            number = self._waiting.pop()
            task = self._tasks[number]
            order = Order(function=task.function, arguments=task.arguments, limits=pool.limits, size=task.size)
            self._busy[connection] = _Busy(number=number, heard=time.monotonic())
            try:
                connection.send_bytes(pickle.dumps(order))
            except OSError:
                self._died(connection)

    def _hear(self, connection: Connection) -> None:
        busy = self._busy[connection]
        try:
            kind, value = pickle.loads(connection.recv_bytes())  # noqa: S301 from a process that runs our code
        except (EOFError, OSError):
            self._died(connection)
            return
        busy.heard = time.monotonic()
        if kind == "report":
            self._tasks[busy.number].on_steps(value)
            return
        self._answers[busy.number] = value if kind == "done" else _finding(value)
        del self._busy[connection]
        self._pool._idle.append(connection)  # noqa: SLF001 one class in two parts

    def _died(self, connection: Connection) -> None:
        busy = self._busy.pop(connection)
        connection.close()
        number, limits = busy.number, self._pool.limits
        self._deaths[number] += 1
        if time.monotonic() - busy.heard >= limits.silent_s - 0.5:
            text = f"its decoder hung: no progress for {limits.silent_s} s"
        elif self._deaths[number] < _TRIES:
            self._waiting.append(number)
            return
        else:
            text = (
                f"its decoder died {_TRIES} times, or took more than {limits.cpu_seconds(self._tasks[number].size)} s"
            )
        self._answers[number] = UnreadableFileError(text)


def _new_decoder() -> Connection:
    try:
        return SERVER.process()
    except ProcessesUnavailableError as error:
        raise DecodersUnavailableError(str(error)) from error


def _finding(error: Exception) -> IngestError:
    """What a file's finding says that names the cause."""
    if isinstance(error, IngestError):
        return error
    if isinstance(error, OutOfMemoryError):
        return UnreadableFileError(f"decoding {error}")
    cause = str(error) if isinstance(error, WorkerProcessError) else f"{type(error).__name__}: {error}"
    return UnreadableFileError(printable(f"decoding it failed with {cause}"))


def value_of(answer: Any) -> Any:
    """The value of a task; raises the error that stands in its place."""
    if isinstance(answer, IngestError):
        raise answer
    return answer
