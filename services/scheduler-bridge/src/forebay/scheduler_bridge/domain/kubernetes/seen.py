"""A finding about an object, with the message that proves it and since when it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from forebay.scheduler_bridge.domain.kubernetes.classify import classify
from forebay.scheduler_bridge.domain.kubernetes.facts import Object, Said, moment, text_at
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Finding, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One thing that was seen and what it means."""

    finding: Finding
    since: datetime | None = None
    evidence: tuple[Message, ...] = ()

    def but(self, **changes: Any) -> Seen:
        """The same with another finding's fields: a place, a sentence, a weight."""
        return replace(self, finding=replace(self.finding, **changes))


def read(message: Message, since: datetime | None) -> Seen:
    """What one message means."""
    return Seen(finding=classify(message), since=since, evidence=(message,))


def read_event(event: Said) -> Seen:
    """What an event means; it holds since it was first said."""
    message = Message(
        where="event",
        reason=event.reason,
        text=event.message,
        object=f"{event.kind} {event.name}".strip(),
        source=event.component,
    )
    return read(message, event.first or event.at)


def read_condition(condition: Object, about: str, *, where: str = "condition") -> Seen:
    """What a condition means."""
    status = condition.get("status")
    message = Message(
        where=where,
        reason=text_at(condition, "reason"),
        text=text_at(condition, "message"),
        object=f"{about} {text_at(condition, 'type')}={status}",
    )
    return read(message, moment(condition.get("lastTransitionTime")))


def read_ended(terminated: Object, about: str) -> Seen:
    """What the end of a container means: its `terminated` state."""
    code = terminated.get("exitCode")
    message = Message(
        where="containerStatus",
        reason=text_at(terminated, "reason"),
        text=text_at(terminated, "message"),
        exit_code=code if isinstance(code, int) else None,
        object=about,
    )
    return read(message, moment(text_at(terminated, "finishedAt")))
