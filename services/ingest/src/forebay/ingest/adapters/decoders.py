"""Decoding in processes of their own: what comes from outside cannot take this process down.

One pool per inspection, one decoder per core. A decoder that dies, hangs or takes
more than its limits costs its file, as an `UnreadableFileError`; the others go on.
Decoders are forked from a server that has the libraries loaded
(`decoder_server.py`), which this module starts once per process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from forebay.ingest.adapters.decoder_server import READY, Limits, Order
from forebay.ingest.errors import DecodersUnavailableError, IngestError, UnreadableFileError
from forebay.runtime.settings import environment

_START_WITHIN_S = 60.0
_TRIES = 2
"""A decoder may be ended for reasons that are not its file's; only the second death counts."""
_SERVER_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # a thread in the server would not survive the fork
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve address space that the limit counts
    "MALLOC_ARENA_MAX": "2",
}


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


class _Server:
    """The process that decoders are forked from; started when it is first needed, and again when it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Start it now, so that it loads its libraries while the caller goes on."""
        with self._lock:
            self._running()

    def decoder(self) -> Connection:
        """A fresh decoder; it says `READY` once it is there."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                with self._lock:
                    socket.send_fds(self._running(), [b"d"], [theirs.fileno()])
            except OSError as error:
                msg = f"no process can be started for decoding: {error.strerror}"
                raise DecodersUnavailableError(msg) from error
            theirs.close()
            return Connection(ours.detach())

    def _running(self) -> socket.socket:
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        if self._control is not None:
            self._control.close()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 our own module, no text from outside
                [sys.executable, "-m", "forebay.ingest.adapters.decoder_server", str(theirs.fileno())],
                env={**environment(), **_SERVER_ENVIRONMENT},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # libraries print about broken files, each time
            )
        return self._control

    def stop(self) -> None:
        """End it, so that nothing is left when this process ends."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            self._control = self._process = None


_SERVER = _Server()
atexit.register(_SERVER.stop)


def warm_up() -> None:
    """Load the decoding libraries in the background. The first inspection then does not wait for them."""
    _SERVER.start()


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
        if kind == "steps":
            self._tasks[busy.number].on_steps(value)
            return
        self._answers[busy.number] = value
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
    connection = _SERVER.decoder()
    try:
        if connection.poll(_START_WITHIN_S) and connection.recv_bytes() == READY:
            return connection
    except (EOFError, OSError):
        pass  # it is told below
    connection.close()
    msg = "the process for decoding files does not start; see whether memory or processes have run out"
    raise DecodersUnavailableError(msg)


def value_of(answer: Any) -> Any:
    """The value of a task; raises the error that stands in its place."""
    if isinstance(answer, IngestError):
        raise answer
    return answer
