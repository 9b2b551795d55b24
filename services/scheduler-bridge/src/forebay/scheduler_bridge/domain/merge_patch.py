"""JSON merge patch (RFC 7386), as the API server applies it. Pure."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def merged(target: Json, patch: Json) -> Json:
    """The target with a patch applied; neither is changed."""
    found = dict(target)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            inside = found.get(key)
            found[key] = merged(inside if isinstance(inside, dict) else {}, value) if isinstance(value, dict) else value
    return found
