"""Bodies of older versions, brought up to the current one step at a time.

Each step is pure and stays for ever: the log is never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _same(body: dict[str, Any]) -> dict[str, Any]:
    """The next version has the same body; it stands under another subject."""
    return body


UPCASTERS: dict[tuple[str, int], Upcaster] = {("CheckpointWritten", 1): _same}
"""(event name, version it reads) -> step to the next version."""


def upcast(
    name: str, version: int, current: int, body: dict[str, Any], steps: dict[tuple[str, int], Upcaster] = UPCASTERS
) -> dict[str, Any]:
    """Bring `body` from `version` to `current`; raises `KeyError` when a step is missing."""
    for step in range(version, current):
        body = steps[(name, step)](body)
    return body
