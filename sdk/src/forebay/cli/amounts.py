"""Sizes as people write them: `500 GB`, `1.5TiB`, `1000000`."""

from __future__ import annotations

import re

import typer

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{infix}b": base ** (power + 1)
    for infix, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("kmgtp")
}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(text: str) -> int:
    """Bytes; raises `typer.BadParameter` for what is no size."""
    found = _WRITTEN.fullmatch(text)
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        msg = f"{text!r} is no size: write it like 500 GB, 1.5 TiB or 1000000"
        raise typer.BadParameter(msg)
    return int(float(found[1]) * unit)
