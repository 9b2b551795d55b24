"""Amounts in a job file, written in words, become the numbers of `JobSpec`.

`memory: 4Gi` is `memory_bytes: 4294967296`. Called by `specification.py` before the
model sees the file; what is wrong is told per field, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.contracts.job_file import BYTE_FIELDS, CPU_FIELDS, SHORT_NAMES
from forebay.contracts.quantities import QuantityError, parse_bytes, parse_cpu

_SECTIONS = tuple({**BYTE_FIELDS, **CPU_FIELDS, **SHORT_NAMES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with one field, and what to write instead."""

    field: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"field": self.field, "message": self.message}


def with_numbers(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """The file with every amount as a number, and every amount that is none."""
    found = dict(values)
    problems: list[Problem] = []
    for section in _SECTIONS:
        inner = values.get(section)
        if isinstance(inner, Mapping):
            numbers = dict(inner)
            problems += _section(section, numbers)
            found[section] = numbers
    return found, tuple(problems)


def _section(section: str, values: dict[str, Any]) -> Iterator[Problem]:
    written = {field: field for field in values}
    for short, field in SHORT_NAMES.get(section, {}).items():
        if short not in values:
            continue
        if field in values:
            message = f"says the same as {section}.{field}; keep one of them"
            yield Problem(field=f"{section}.{short}", message=message)
        values[field] = values.pop(short)
        written[field] = short
    for field in BYTE_FIELDS.get(section, ()):
        yield from _number(section, written.get(field, field), values, field, parse_bytes)
    for field in CPU_FIELDS.get(section, ()):
        yield from _number(section, written.get(field, field), values, field, parse_cpu)


def _number(
    section: str, written: str, values: dict[str, Any], field: str, parse: Callable[[str], float]
) -> Iterator[Problem]:
    text = values.get(field)
    if not isinstance(text, str):
        return
    try:
        values[field] = parse(text)
    except QuantityError as error:
        values[field] = 1  # stands for the number, so that the model does not call it missing as well
        yield Problem(field=f"{section}.{written}", message=str(error))
