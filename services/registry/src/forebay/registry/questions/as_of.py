"""The argument `as_of`: a question about the past gets the state as it was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from forebay.registry.domain.past import Moment, Past
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State


def as_of(state: State, request: Request) -> tuple[State, dict[str, Any] | None]:
    """(state to ask, the moment for the answer). `as_of` is a sequence, or an ISO 8601 time (UTC unless it says)."""
    wanted = request.args.get("as_of")
    if wanted is None:
        return state, None
    moment = Moment(seq=wanted) if _is_sequence(wanted) else _moment(str(wanted).strip())
    return Past(state, moment), moment.to_json()


def _is_sequence(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _moment(text: str) -> Moment:
    if text.isdecimal():
        return Moment(seq=int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        advice = "write a sequence such as 1200, a day such as 2026-01-31, or a time such as 2026-01-31T08:00:00Z"
        raise Refused("bad-request", f"'as_of' is {text[:80]!r}, neither a sequence nor a time", advice) from None
    if len(text) == len("2026-01-31"):
        time = time.replace(hour=23, minute=59, second=59, microsecond=999_999)  # on a day: at its end
    return Moment(time=time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC))
