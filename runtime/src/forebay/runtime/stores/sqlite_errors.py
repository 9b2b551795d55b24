"""Errors of SQLite in words: which file, what happened, what to do; and what a damaged file becomes."""

from __future__ import annotations

import functools
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from forebay.runtime.errors import FencedError, StoreNotFitError

_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ADVICE = {
    sqlite3.SQLITE_FULL: "free space on its disk; the service then continues automatically",
    sqlite3.SQLITE_IOERR: "its disk reports errors: free space on it, or check the system log (dmesg)",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable for the user that runs the service",
    sqlite3.SQLITE_CANTOPEN: "make its folder exist and writable for the user that runs the service",
    sqlite3.SQLITE_PERM: "make the file and its folder writable for the user that runs the service",
    sqlite3.SQLITE_BUSY: "close other programs that have the file open; the service then continues automatically",
    sqlite3.SQLITE_LOCKED: "close other programs that have the file open; the service then continues automatically",
}
_OTHERWISE = "move the file away and start the service again; it folds the log into a new one"


class Placed(Protocol):
    """Whoever keeps a file and can say which."""

    place: str


class StoreDamagedError(FencedError):
    """The file is damaged. The service ends, and the next one sets the file aside and folds the log again."""


def worded(call: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of a store whose SQLite errors name the file and say what to do."""

    @functools.wraps(call)
    async def wrapped(self: Placed, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await call(self, *args, **kwargs)
        except sqlite3.DatabaseError as error:
            raise in_words(self.place, error) from error

    return wrapped


def in_words(place: str, error: sqlite3.DatabaseError) -> FencedError | StoreNotFitError:
    """What the error means for whoever uses the store."""
    if is_damaged(error):
        return StoreDamagedError(f"the store {place} is damaged ({error}); it is set aside and made again from the log")
    return StoreNotFitError(f"the store {place} cannot be used: {error}", _ADVICE.get(_code(error), _OTHERWISE))


def is_damaged(error: sqlite3.DatabaseError) -> bool:
    return _code(error) in _DAMAGED


def _code(error: sqlite3.DatabaseError) -> int:
    """The primary code; extended ones have more in the higher bits."""
    code = getattr(error, "sqlite_errorcode", None)
    return int(code) & 0xFF if code is not None else -1


def check(path: Path) -> None:
    """Read every page once. Raises `sqlite3.DatabaseError` when one is not what it should be."""
    if not path.exists():
        return
    database = sqlite3.connect(path, timeout=10)
    try:
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    finally:
        database.close()
    if found != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def set_aside(path: Path, cause: sqlite3.DatabaseError) -> str:
    """Move a damaged store away, so that a new one is made from the log; returns what happened, in a sentence."""
    kept = path.with_name(f"{path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    for suffix in ("", "-wal", "-shm"):
        file = Path(f"{path}{suffix}")
        if file.exists():
            file.replace(f"{kept}{suffix}")
    said = f"the store {path} was damaged ({cause}) and is kept as {kept.name}; a new one is being made from the log"
    _log.error("%s", said)
    return said
