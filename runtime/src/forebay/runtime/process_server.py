"""The process that worker processes are forked from, and the life of one worker process.

Started by `processes.py` with a control socket and the modules to load. It loads them
once and starts no threads; every socket that arrives over the control socket gets a
forked process at its other end. It ends when its standard input closes, because then
its parent is gone, and the kernel ends the forked processes with it. A worker process
sets its own limits, so that the kernel ends it in the middle of foreign code.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from forebay.runtime import processes
from forebay.runtime.errors import OutOfMemoryError, WorkerProcessError
from forebay.runtime.processes import Limits, Order

_PR_SET_PDEATHSIG = 1
_AGES_AFTER_S = 5.0
_NICE = 10
"""A process that has computed this long gives way to those that have just begun."""


def main() -> None:
    """Fork a process for every socket that arrives, until the parent is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended processes
    for name in sys.argv[2:]:
        importlib.import_module(name)
    server = os.getpid()
    while True:
        ready, _, _ = select.select([control, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        _, handles, _, _ = socket.recv_fds(control, 16, 2)
        if len(handles) == 2 and os.fork() == 0:
            control.close()
            _live(handles[0], handles[1], server)
        for handle in handles:
            os.close(handle)


def _live(handle: int, control: int, server: int) -> None:
    """A process's life; never returns into the server's loop."""
    code = 1
    try:
        _end_with(server)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        processes.inherit(socket.socket(fileno=control))
        _serve(Connection(handle))
        code = 0
    except (EOFError, OSError):
        code = 0  # nobody listens any more
    finally:
        os._exit(code)


def _end_with(server: int) -> None:
    """Have the kernel end this process with its server."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(0)


def _serve(connection: Connection) -> None:
    connection.send_bytes(processes.READY + str(os.getpid()).encode())
    while True:
        order = pickle.loads(connection.recv_bytes())  # noqa: S301 from the process that started this one
        _limit(order)

        def report(payload: Any, limits: Limits = order.limits) -> None:
            signal.alarm(limits.silent_s)
            _age()
            connection.send_bytes(pickle.dumps(("report", payload)))

        answer = _call(order, report)
        signal.alarm(0)
        connection.send_bytes(answer)


def _limit(order: Order) -> None:
    """The kernel ends this process when it takes more."""
    limits = order.limits
    if limits.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, resource.RLIM_INFINITY))
    cpu = limits.cpu_seconds(order.size)
    if cpu is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + cpu, resource.RLIM_INFINITY))
    signal.alarm(limits.silent_s)


def _age() -> None:
    if time.process_time() > _AGES_AFTER_S and os.getpriority(os.PRIO_PROCESS, 0) < _NICE:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)


def _call(order: Order, report: Callable[[Any], None]) -> bytes:
    """The pickled answer: ("done", value) or ("failed", error)."""
    try:
        return pickle.dumps(("done", order.function(*order.arguments, report)))
    except MemoryError:
        return pickle.dumps(("failed", OutOfMemoryError(order.limits.memory_bytes or 0)))
    except Exception as error:  # noqa: BLE001 the edge of the process: the caller gets the error
        return _pickled(error)


def _pickled(error: Exception) -> bytes:
    """The error as the caller can raise it; its traceback travels as a note."""
    error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        answer = pickle.dumps(("failed", error))
        pickle.loads(answer)  # noqa: S301 its own
    except Exception:  # noqa: BLE001 whatever keeps an error from travelling
        return pickle.dumps(("failed", WorkerProcessError(f"{type(error).__name__}: {error}")))
    return answer


if __name__ == "__main__":
    main()
