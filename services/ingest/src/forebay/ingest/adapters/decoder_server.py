"""The process that decoders are forked from, and the life of one decoder.

Started by `decoders.py` with a control socket as its only argument. It loads the
decoding libraries once and starts no threads; every socket that comes in over the
control socket gets a forked decoder on its other end. It ends with its parent: the
control socket is then closed. A decoder sets its own limits, so that the kernel ends
it in the middle of foreign code, and nobody has to watch it.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from forebay.ingest.domain.breach import printable
from forebay.ingest.errors import IngestError, UnreadableFileError

_PRELOADED = (
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
"""Everything that decoding imports sooner or later: each decoder would import it for itself."""
READY = b"ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one file may cost."""

    memory_bytes: int = 2 << 30
    silent_s: int = 60
    """Seconds without a sign of progress."""
    cpu_s: int = 600
    """Processor seconds of a small file."""
    bytes_per_cpu_s: int = 20_000
    """What a larger file gets on top: far below what the slowest real video needs."""

    def cpu_seconds(self, size: int) -> int:
        return self.cpu_s + size // self.bytes_per_cpu_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One function to run, with what it may cost."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    limits: Limits
    size: int
    """Bytes that are decoded."""


def main() -> None:
    """Fork a decoder for every socket that comes in, until the parent is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries ended decoders
    for name in _PRELOADED:
        importlib.import_module(name)
    while True:
        _, handles, _, _ = socket.recv_fds(control, 16, 1)
        if not handles:
            return
        if os.fork() == 0:
            control.close()
            _live(handles[0])
        os.close(handles[0])


def _live(handle: int) -> None:
    """A decoder's life; never returns into the server's loop."""
    code = 1
    try:
        _serve(Connection(handle))
        code = 0
    except (EOFError, OSError):
        code = 0  # nobody listens any more
    finally:
        os._exit(code)


def _serve(connection: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send_bytes(READY)
    while True:
        order = pickle.loads(connection.recv_bytes())  # noqa: S301 from the process that started this one
        _limit(order)

        def report(steps: int, limits: Limits = order.limits) -> None:
            signal.alarm(limits.silent_s)
            connection.send_bytes(pickle.dumps(("steps", steps)))

        answer = _run(order, report)
        signal.alarm(0)
        connection.send_bytes(answer)


def _limit(order: Order) -> None:
    """The kernel ends this process when it takes more."""
    resource.setrlimit(resource.RLIMIT_DATA, (order.limits.memory_bytes, resource.RLIM_INFINITY))
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + order.limits.cpu_seconds(order.size), resource.RLIM_INFINITY))
    signal.alarm(order.limits.silent_s)


def _run(order: Order, report: Callable[[int], None]) -> bytes:
    """The pickled answer: ("done", value) or ("failed", an error of ours)."""
    try:
        return pickle.dumps(("done", order.function(*order.arguments, report)))
    except MemoryError:
        text = f"decoding it takes more than {order.limits.memory_bytes >> 20} MiB of memory"
        return pickle.dumps(("failed", UnreadableFileError(text)))
    except IngestError as error:
        return pickle.dumps(("failed", error))
    except Exception as error:  # noqa: BLE001 the edge of the process: the file gets a finding that names the cause
        text = printable(f"decoding it failed with {type(error).__name__}: {error}")
        return pickle.dumps(("failed", UnreadableFileError(text)))


if __name__ == "__main__":
    main()
