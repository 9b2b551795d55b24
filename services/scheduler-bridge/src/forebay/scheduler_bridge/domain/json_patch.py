"""JSON Patch (RFC 6902) between two JSON values: what an admission webhook answers with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]


def json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Json]:
    """Operations that turn `before` into `after`; objects are gone into, a list that only grew is added to."""
    return list(_differences(before, after, ""))


def _differences(before: Any, after: Any, path: str) -> Iterator[Json]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in before:
            if key not in after:
                yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key, value in after.items():
            where = f"{path}/{_escaped(key)}"
            if key not in before:
                yield {"op": "add", "path": where, "value": value}
            else:
                yield from _differences(before[key], value, where)
    elif isinstance(before, list) and isinstance(after, list) and before and after[: len(before)] == before:
        for value in after[len(before) :]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif before != after or type(before) is not type(after):
        yield {"op": "replace", "path": path, "value": after}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
