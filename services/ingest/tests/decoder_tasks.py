"""Functions that tests run in decoders. A module of its own, because each decoder imports it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.ingest.adapters import decoding
from forebay.ingest.errors import UnreadableFileError

BAD_BYTES = b"this file kills its decoder"
Report = Callable[[int], None]


def double(number: int, report: Report) -> int:
    report(1)
    return 2 * number


def refuse(report: Report) -> None:
    msg = "it is no good"
    raise UnreadableFileError(msg)


def die(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def die_once(mark: Path, report: Report) -> str:
    if not mark.exists():
        mark.touch()
        die(report)
    return "second time lucky"


def hang(report: Report) -> None:
    signal.pause()


def eat(report: Report) -> int:
    return len(bytearray(1 << 30))


def die_at_bad_bytes(path: Path, *rest: Any) -> object:
    """Like the real one, with a library that has a hole."""
    if path.read_bytes() == BAD_BYTES:
        die(rest[-1])
    return decoding.scan_frames(path, *rest)
