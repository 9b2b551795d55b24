"""What `forebay diagnose` reads: lines of messages, API objects, lists of them, or all of that in one file.

Pure parsing of bytes. A part that cannot be read becomes a `Broken` with its line number; the rest goes on.
Of a list that is cut off, the objects that are whole are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Message

_FIELDS = frozenset({"reason", "message", "exit_code", "where"})
_OBJECT_FIELDS = frozenset({"kind", "metadata", "items", "involvedObject", "regarding"})
_NUL = "\x00"
_MAX_DEPTH = 200
_DECODER = json.JSONDecoder()
_ITEMS = re.compile(r'\s*(?:\[|\{[^\[\]]*?"items"\s*:\s*\[)')
_BETWEEN = re.compile(r"[\s,]*")
_WIDE = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""Marks of UTF-16, which a redirection of PowerShell writes."""


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
        text = data[2:].decode(_WIDE[data[:2]]) if data[:2] in _WIDE else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield from _by_line(data)
        return
    whole = _whole(text)
    if whole is not None:
        yield from _sort(1, whole)
        return
    start, number = 0, 1
    while start < len(text):
        end = _line_end(text, start)
        line = text[start:end].strip()
        if line and line not in {"---", ","}:
            parts, stop = _take(text, start, line, number)
            yield from parts
            if stop > end:
                number += text.count("\n", end, stop)
                end = _line_end(text, stop)
        start, number = end + 1, number + 1


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


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
            yield from _take(line, 0, line, number)[0]


def _take(text: str, start: int, line: str, number: int) -> tuple[Iterator[Part], int]:
    """(parts, where they end): of a line, or of the value that begins there and goes on below it."""
    try:
        return _sort(number, json.loads(line)), start
    except RecursionError:
        return iter([Broken(number, "nested too deeply")]), start
    except ValueError as error:
        broken = Broken(number, _why(error))
    return _take_more(text, start, line, number) or (iter([broken]), start)


def _take_more(text: str, start: int, line: str, number: int) -> tuple[Iterator[Part], int] | None:
    """A value over several lines, or one that the input ends in; None when it is neither."""
    opens = line in {"{", "["} or (line.startswith(("{", "[")) and line.endswith(("{", "[", ",")))
    if not opens and not _ITEMS.match(text, start):
        return None
    try:
        value, end = _DECODER.raw_decode(text, text.index(line[0], start))
    except json.JSONDecodeError as error:
        ends_in_it = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        return (_cut_off(text, start, number), len(text)) if ends_in_it else None
    except (ValueError, RecursionError):
        return None
    alone = text[end : _line_end(text, end)].strip() in {"", ","}
    return (_sort(number, value), end) if alone else None


def _cut_off(text: str, start: int, number: int) -> Iterator[Part]:
    """A value that the input ends in, and what is whole in it."""
    yield Broken(number, "the input ends inside this value: it is cut off; what is whole in it was judged")
    for item in _whole_items(text, start):
        yield from _sort(number, item)


def _whole_items(text: str, start: int) -> Iterator[Any]:
    """The objects of a list that is cut off, up to the one that is not whole."""
    opened = _ITEMS.match(text, start)
    place = opened.end() if opened else len(text)
    while True:
        found = _BETWEEN.match(text, place)
        try:
            value, place = _DECODER.raw_decode(text, found.end() if found else place)
        except (ValueError, RecursionError):
            return
        yield value


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
