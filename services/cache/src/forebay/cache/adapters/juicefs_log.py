"""What the mount's own log says about its object storage: a reader only ever sees 'Input/output error'."""

from __future__ import annotations

import re
from pathlib import Path

from forebay.cache.errors import OriginError, OriginTrouble

_TAIL_BYTES = 256 * 1024
_BLOCK = re.compile(r"chunks/\S+?_(\d+)_(\d+)")
_STATUS = re.compile(r"StatusCode: (\d{3})")
_CODE = re.compile(r"api error (\w+)")
_SAYS: dict[OriginTrouble, str] = {
    "refused": "refuses the mount's keys ({told}): check the keys that the volume was formatted with ('juicefs config')",
    "failing": "fails with {told}: see to the server; the bytes come when it works again",
    "missing": "has lost the object of a block ({told}): restore the bucket, or commit the version again",
    "gone": "does not answer ({told}): see to the server and the network between",
    "slow": "is too slow ({told}): see to the server and the network between",
    "unknown": "does not give the bytes ({told})",
}

_WORDS: tuple[tuple[str, OriginTrouble, str], ...] = (
    ("NoSuchKey", "missing", "no such object"),
    ("no such file or directory", "missing", "no such file"),
    ("permission denied", "refused", "permission denied"),
    ("timeout", "slow", "it timed out"),
    ("deadline exceeded", "slow", "it timed out"),
    ("connection refused", "gone", "connection refused"),
    ("connection reset", "gone", "connection reset"),
    ("no such host", "gone", "no such host"),
    ("no route to host", "gone", "no route to host"),
    ("EOF", "gone", "the connection was closed"),
)


def log_end(log: Path | None) -> int:
    """Where the log ends now; what is written from here on belongs to what is done next."""
    try:
        return log.stat().st_size if log is not None else 0
    except OSError:
        return 0


def origin_error(what: str, error: OSError, log: Path | None, since: int) -> OriginError:
    """The error that a failed read stands for; the newest line about a block decides."""
    trouble, told = _newest(log, since)
    if trouble == "unknown":
        if isinstance(error, TimeoutError):
            trouble, told = "slow", str(error)
        else:
            told = f"{error.strerror or error}; the mount's log says more"
    text = _SAYS[trouble].format(told=told)
    return OriginError(trouble, f"{what} cannot be read through the mount: the object storage behind it {text}")


def _newest(log: Path | None, since: int) -> tuple[OriginTrouble, str]:
    if log is None:
        return "unknown", ""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            start = since if since <= end else 0  # it was rotated
            file.seek(max(start, end - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return "unknown", ""
    for line in reversed(lines):
        if "fail to read" in line and _BLOCK.search(line):
            return _judge(line)
    return "unknown", ""


def _judge(line: str) -> tuple[OriginTrouble, str]:
    """Only codes and fixed words are taken from the line: it may hold URLs and keys."""
    status, code = _STATUS.search(line), _CODE.search(line)
    number = int(status[1]) if status else 0
    if number >= 400:
        kind: OriginTrouble = "refused" if number in {401, 403} else "missing" if number == 404 else "failing"
        return kind, f"{number} {code[1]}" if code else str(number)
    found = next(((kind, told) for words, kind, told in _WORDS if words in line), None)
    return found or ("unknown", "the mount's log says more")
