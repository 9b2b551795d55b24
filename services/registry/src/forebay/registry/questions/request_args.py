"""Arguments of a request, read with one clear refusal for each thing that does not fit."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request


def text(request: Request, name: str) -> str:
    """A required text."""
    value = request.args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Refused("bad-request", f"the argument {name!r} is missing or no text")
    return value.strip()


def optional_text(request: Request, name: str) -> str | None:
    return None if request.args.get(name) is None else text(request, name)


def number(request: Request, name: str, default: int, *, least: int = 0, most: int = 1_000_000) -> int:
    """A whole number, the default when it is not given."""
    value = request.args.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused("bad-request", f"the argument {name!r} must be a whole number from {least} to {most}")
    return value


def optional_number(request: Request, name: str) -> int | None:
    return None if request.args.get(name) is None else number(request, name, 0, least=1)


def flag(request: Request, name: str) -> bool:
    value = request.args.get(name, False)
    if not isinstance(value, bool):
        raise Refused("bad-request", f"the argument {name!r} must be true or false")
    return value


def invalid(what: str, error: ValidationError) -> Refused:
    """What pydantic found, in one sentence."""
    problems: list[dict[str, Any]] = [dict(problem) for problem in error.errors(include_url=False, include_input=False)]
    said = "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in problems[:5])
    return Refused("bad-request", f"{what} does not fit: {said}")
