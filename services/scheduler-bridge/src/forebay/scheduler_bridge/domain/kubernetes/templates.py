"""Sentences with parts that may be unknown: a template says what is left out, so that no sentence has a blank.

`[ in flavor {flavor}]` is left out as a whole when one of its fields is unknown; `{queue|the queue}` falls back to the words
behind the bar. A field that stands in no bracket and has no fallback is refused when the template is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_PART = re.compile(r"\[([^\[\]]*)\]|\{(\w+)\|([^{}]*)\}|\{(\w+)\}")
_FIELD = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A sentence, or what to do, with named fields."""

    text: str

    def __post_init__(self) -> None:
        bare = [match.group(4) for match in _PART.finditer(self.text) if match.group(4)]
        if bare:
            msg = f"{bare[0]!r} may be unknown: put it in brackets or give it a fallback: {self.text}"
            raise ValueError(msg)

    @property
    def fields(self) -> frozenset[str]:
        """The names in it."""
        return frozenset(match.group(1) for match in _FIELD.finditer(self.text))

    def fill(self, known: Mapping[str, str]) -> str:
        """The sentence of what is known. Values are taken as they are: nothing in them is a field."""
        return "".join(self._parts(known)).strip()

    def _parts(self, known: Mapping[str, str]) -> Iterator[str]:
        place = 0
        for match in _PART.finditer(self.text):
            yield self.text[place : match.start()]
            optional, name, fallback, _ = match.groups()
            if name:
                yield known.get(name) or fallback
            elif all(known.get(field.group(1)) or field.group(2) for field in _FIELD.finditer(optional)):
                yield _FIELD.sub(lambda field: known.get(field.group(1)) or field.group(2), optional)
            place = match.end()
        yield self.text[place:]
