"""Functions that tests run in worker processes. A module of its own, because each process imports it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = Callable[[Any], None]


def double(number: int, report: Report) -> int:
    report({"stage": "doubling"})
    return 2 * number


def refuse(report: Report) -> None:
    raise FileNotFoundError(2, "No such file", "/pool/x")


def die(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(mark: Path, report: Report) -> None:
    """Blocks in a system call, as on a mount that does not answer."""
    mark.write_text(str(os.getpid()))
    os.read(os.pipe()[0], 1)


def beat(seconds: float, report: Report) -> str:
    """Long honest work: longer than any silence that is allowed, but never silent."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.05)
        report(None)
    return "done"
