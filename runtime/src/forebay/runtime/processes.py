"""Worker processes: what blocks for an unknown time, or reads what others wrote, runs in one and can be killed.

They are forked from a server that has the libraries loaded (`process_server.py`). A
worker process asks the same server for further ones: `inherit` gives it the way there.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from forebay.runtime.errors import ProcessesUnavailableError, WorkerProcessError
from forebay.runtime.settings import environment

READY = b"ready "
START_WITHIN_S = 60.0
_DIES_WITHIN_S = 5.0
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # a thread in the server would not survive the fork
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve address space that the limit counts
    "MALLOC_ARENA_MAX": "2",
}
_inherited: list[socket.socket] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call may cost."""

    memory_bytes: int | None = 2 << 30
    silent_s: int = 60
    """Seconds without a sign of progress."""
    cpu_s: int | None = 600
    """Processor seconds of a small input; None: any."""
    bytes_per_cpu_s: int = 20_000
    """What a larger input gets on top: far below what the slowest real video needs."""

    def cpu_seconds(self, size: int) -> int | None:
        return None if self.cpu_s is None else self.cpu_s + size // self.bytes_per_cpu_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One function to call, with what it may cost."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    limits: Limits
    size: int = 0
    """Bytes of input."""


def inherit(control: socket.socket) -> None:
    """In a worker process: further processes come from the server that this one came from."""
    _inherited[:] = [control]


class ProcessServer:
    """The server of one service or command; started when it is first needed, and again when it is gone."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = tuple(preload)
        """Modules that worker processes need: each would load them for itself. They must start no threads."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def preload(self, *modules: str) -> None:
        """Have it load these as well; of no effect once it runs."""
        self._preload += modules

    def warm_up(self) -> None:
        """Start it now, so that it loads its libraries while the caller goes on; of no effect when it has none to load."""
        if self._preload:
            with self._lock:
                self._running()

    def connect(self) -> socket.socket:
        """One end of a fresh worker process; it sends `READY` and its process id first."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                control = self._running()
                socket.send_fds(control, [b"p"], [theirs.fileno(), control.fileno()])
        except OSError as error:
            ours.close()
            raise ProcessesUnavailableError(f"no process can be started: {error.strerror}") from error
        return ours

    def process(self) -> Connection:
        """A worker process that is ready. Blocking."""
        connection = Connection(self.connect().detach())
        try:
            if connection.poll(START_WITHIN_S) and connection.recv_bytes().startswith(READY):
                return connection
        except (EOFError, OSError):
            pass  # it is told below
        connection.close()
        raise ProcessesUnavailableError(_DOES_NOT_START)

    async def run(self, order: Order, on_report: Callable[[Any], None]) -> Any:
        """The value of one call in a process of its own; raises what it raises. Cancelling it kills the process."""
        reader, writer = await asyncio.open_unix_connection(sock=self.connect())
        pid = 0
        try:
            try:
                async with asyncio.timeout(START_WITHIN_S):
                    pid = int((await _received(reader)).removeprefix(READY))
            except (TimeoutError, EOFError, OSError) as error:
                raise ProcessesUnavailableError(_DOES_NOT_START) from error
            try:
                writer.write(_frame(pickle.dumps(order)))
                while True:
                    kind, value = pickle.loads(await _received(reader))  # noqa: S301 from a process that runs our code
                    if kind != "report":
                        break
                    on_report(value)
            except (EOFError, OSError) as error:
                raise WorkerProcessError(
                    f"its process was ended: no progress for {order.limits.silent_s} s, too much memory, or killed by hand"
                ) from error
            if kind == "failed":
                raise value
            return value
        finally:
            await _end(pid, reader, writer)

    def _running(self) -> socket.socket:
        if _inherited:
            return _inherited[0]
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        self._close()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 our own module, no text from outside
                [sys.executable, "-m", "forebay.runtime.process_server", str(theirs.fileno()), *self._preload],
                env={**environment(), **_ENVIRONMENT},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.PIPE,  # closed by the kernel when this process ends
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # libraries print about broken files, each time
            )
        atexit.register(self.stop)
        return self._control

    def stop(self) -> None:
        """End it, and with it every process that came from it."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        atexit.unregister(self.stop)
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._control = self._process = None


_DOES_NOT_START = "a worker process does not start; see whether memory or processes have run out"


async def _received(reader: asyncio.StreamReader) -> bytes:
    """One message as `multiprocessing.Connection` sends it; raises EOFError at the end."""
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    if length == -1:
        (length,) = struct.unpack("!Q", await reader.readexactly(8))
    return await reader.readexactly(length)


def _frame(message: bytes) -> bytes:
    if len(message) > 0x7FFFFFFF:
        return struct.pack("!i", -1) + struct.pack("!Q", len(message)) + message
    return struct.pack("!i", len(message)) + message


async def _end(pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Kill the process if it still runs, and wait a little until it is gone: nothing of it may go on beside a retry."""
    if pid and not reader.at_eof():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(_DIES_WITHIN_S):
            while await reader.read(1 << 16):
                pass
    writer.close()
