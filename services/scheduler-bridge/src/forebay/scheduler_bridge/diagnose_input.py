"""What `forebay diagnose` reads: lines of messages, API objects, lists of them, or all of that in one file.

Pure parsing of bytes. A part that cannot be read becomes a `Broken` with its line number; the rest goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Message

_FIELDS = frozenset({"reason", "message", "exit_code", "where"})
_OBJECT_FIELDS = frozenset({"kind", "metadata", "items", "involvedObject", "regarding"})
_NUL = "\x00"
_MAX_DEPTH = 200
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Line:
    """One message, and the number of the line where it stood."""

    number: int
    message: Message


@dataclass(frozen=True, slots=True)
class Given:
    """One API object or list."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is none of both, and why."""

    number: int
    why: str


Part = Line | Given | Broken


def read_parts(data: bytes) -> Iterator[Part]:
    """Everything in the input, in order. First line by line; a value that spans lines is read as a whole."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield from _by_line(data)
        return
    whole = _whole(text)
    if whole is not None:
        yield from _sort(1, whole)
        return
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        if not line or line in {"---", ","}:
            number += 1
            continue
        value, taken, why = _take(lines, number)
        if why:
            yield Broken(number + 1, why)
        else:
            yield from _sort(number + 1, value)
        number += taken


def _whole(text: str) -> Any:
    """The input as one JSON value; None when it is not one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _by_line(data: bytes) -> Iterator[Part]:
    """Bytes that are not UTF-8 somewhere: the other lines are still read."""
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            line = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            yield Broken(number, f"not UTF-8 at byte {error.start + 1}")
            continue
        if line:
            value, _, why = _take([line], 0)
            if why:
                yield Broken(number, why)
            else:
                yield from _sort(number, value)


def _take(lines: list[str], start: int) -> tuple[Any, int, str]:
    """(value, lines used, what is wrong). A value that does not end on its line may go on below it."""
    line = lines[start].strip()
    try:
        return json.loads(line), 1, ""
    except RecursionError:
        return None, 1, "nested too deeply"
    except ValueError as error:
        why = _why(error)
    if line in {"{", "["} or (line.startswith(("{", "[")) and line.endswith(("{", "[", ","))):
        spread = _spread(lines, start)
        if spread is not None:
            return *spread, ""
    return None, 1, why


def _spread(lines: list[str], start: int) -> tuple[Any, int] | None:
    """A value over several lines."""
    rest = "\n".join(lines[start:])
    offset = len(rest) - len(rest.lstrip())
    try:
        value, end = _DECODER.raw_decode(rest, offset)
    except (ValueError, RecursionError):
        return None
    if rest[end:].split("\n", 1)[0].strip() not in {"", ","}:
        return None
    return value, rest.count("\n", 0, end) + 1


def _why(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg} (column {error.colno})"
    return f"no JSON: {error}"


def _sort(number: int, value: Any, depth: int = 0) -> Iterator[Part]:
    """A message line, an object, or neither."""
    if isinstance(value, list) and depth < _MAX_DEPTH:
        for item in value:
            yield from _sort(number, item, depth + 1)
    elif not isinstance(value, Mapping):
        yield Broken(number, f"neither a message nor an object, but {_named(value)}")
    elif _is_watch(value) or (_OBJECT_FIELDS & value.keys() and not isinstance(value.get("where"), str)):
        yield Given(number, value)
    elif _FIELDS & value.keys() or ("code" in value and "message" in value):
        yield _line(number, value)
    elif "status" in value or "spec" in value:
        yield Given(number, value)
    else:
        yield Broken(number, "neither a message (reason, message) nor an object (kind, metadata)")


def _is_watch(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("type"), str) and isinstance(value.get("object"), Mapping)


def _line(number: int, value: Mapping[str, Any]) -> Part:
    wrong = [
        name
        for name in ("where", "reason", "message", "object", "source")
        if not isinstance(value.get(name), (str, type(None)))
    ]
    if wrong:
        return Broken(number, f"{', '.join(wrong)}: a text was expected")
    code = value.get("exit_code")
    if isinstance(code, str) and code.strip().lstrip("-").isdigit() and len(code) < 10:
        code = int(code)
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    if code is not None and (not isinstance(code, int) or isinstance(code, bool)):
        return Broken(number, "exit_code: a whole number was expected")
    where = value.get("where") or ("apiError" if "code" in value else "")
    return Line(
        number,
        Message(
            where=str(where),
            reason=value.get("reason") or "",
            text=(value.get("message") or "").replace(_NUL, " "),
            exit_code=code,
            object=value.get("object") or "",
            source=value.get("source") or "",
        ),
    )


def _named(value: object) -> str:
    return {str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
