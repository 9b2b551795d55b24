"""`--where`: a condition on episodes in the words of SQL, for example `length >= 60 AND task LIKE '%cup%'`.

Fields are `index`, `episode`, `length`, `task`, `upload` and `source_index`. An episode
with several tasks meets a condition on `task` when one of them does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, tuple[Any, ...]]
Condition = Callable[[Values], bool]

NUMBERS = frozenset({"index", "length", "source_index"})
TEXTS = frozenset({"episode", "task", "upload"})
MAX_LENGTH = 2000
_MAX_DEPTH = 50
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|'((?:[^']|'')*)'|([A-Za-z_]\w*)|(<=|>=|<>|!=|=|<|>|\(|\)|,))")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<>": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}
_WORDS = {"AND", "OR", "NOT", "IN", "LIKE"}


class FilterError(ValueError):
    """The condition cannot be understood."""


def parse_filter(text: str) -> Condition:
    """The condition as a function; raises `FilterError` that names the place."""
    if len(text) > MAX_LENGTH:
        msg = f"it has {len(text)} characters, at most {MAX_LENGTH} are read"
        raise FilterError(msg)
    parser = _Parser(_tokens(text))
    condition = parser.either(0)
    parser.end()
    return condition


def _tokens(text: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            msg = f"{text[at:].strip()[:20]!r} is not understood"
            raise FilterError(msg)
        number, quoted, word, sign = match.groups()
        if number is not None:
            found.append(("number", float(number) if "." in number else int(number)))
        elif quoted is not None:
            found.append(("text", quoted.replace("''", "'")))
        elif word is not None:
            found.append((word.upper(), word) if word.upper() in _WORDS else ("field", word))
        else:
            found.append((sign, sign))
        at = match.end()
    return found


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        msg = "it is nested too deeply"
        raise FilterError(msg)


class _Parser:
    def __init__(self, tokens: list[tuple[str, Any]]) -> None:
        self._tokens = tokens
        self._at = 0

    def _next(self) -> tuple[str, Any]:
        if self._at >= len(self._tokens):
            return "end", "the end"
        self._at += 1
        return self._tokens[self._at - 1]

    def _meet(self, kind: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == kind:
            self._at += 1
            return True
        return False

    def end(self) -> None:
        if self._at < len(self._tokens):
            msg = f"{self._tokens[self._at][1]!r} is one word too many; join conditions with AND or OR"
            raise FilterError(msg)

    def either(self, depth: int) -> Condition:
        _check_depth(depth)
        parts = [self._both(depth)]
        while self._meet("OR"):
            parts.append(self._both(depth))
        return lambda values: any(part(values) for part in parts)

    def _both(self, depth: int) -> Condition:
        parts = [self._single(depth)]
        while self._meet("AND"):
            parts.append(self._single(depth))
        return lambda values: all(part(values) for part in parts)

    def _single(self, depth: int) -> Condition:
        _check_depth(depth)
        if self._meet("NOT"):
            turned = self._single(depth + 1)
            return lambda values: not turned(values)
        if self._meet("("):
            inner = self.either(depth + 1)
            self._expect(")")
            return inner
        return self._comparison()

    def _expect(self, kind: str) -> Any:
        found, value = self._next()
        if found != kind:
            msg = f"expected {kind}, found {value!r}"
            raise FilterError(msg)
        return value

    def _comparison(self) -> Condition:
        name = str(self._expect("field"))
        if name not in NUMBERS | TEXTS:
            msg = f"episodes have no {name!r}; there are {', '.join(sorted(NUMBERS | TEXTS))}"
            raise FilterError(msg)
        negated = self._meet("NOT")
        if self._meet("IN"):
            test = self._membership(name)
        elif self._meet("LIKE"):
            test = self._pattern(name)
        elif negated:
            msg = f"NOT after {name} needs IN or LIKE"
            raise FilterError(msg)
        else:
            sign, _ = self._next()
            compare = _COMPARE.get(sign)
            if compare is None:
                msg = f"{name} must be compared: =, !=, <, <=, >, >=, IN or LIKE"
                raise FilterError(msg)
            value = self._value(name)
            test = lambda found: compare(found, value)  # noqa: E731 it is one of three tests
        if negated:
            return lambda values: not any(test(found) for found in values[name])
        return lambda values: any(test(found) for found in values[name])

    def _value(self, name: str) -> Any:
        kind, value = self._next()
        wanted = "number" if name in NUMBERS else "text"
        if kind != wanted:
            msg = f"{name} is compared with a {wanted}{'' if wanted == 'number' else ' in quotes'}, found {value!r}"
            raise FilterError(msg)
        return value

    def _membership(self, name: str) -> Callable[[Any], bool]:
        self._expect("(")
        values = {self._value(name)}
        while self._meet(","):
            values.add(self._value(name))
        self._expect(")")
        return lambda found: found in values

    def _pattern(self, name: str) -> Callable[[Any], bool]:
        if name in NUMBERS:
            msg = f"{name} is a number; LIKE is for texts"
            raise FilterError(msg)
        parts = re.split(r"([%_])", str(self._value(name)))
        made = "".join({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in parts)
        pattern = re.compile(made, re.DOTALL)
        return lambda found: pattern.fullmatch(found) is not None
