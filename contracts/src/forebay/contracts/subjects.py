"""Subjects on the bus: `fb.{project}.{entity}.{key}.{event}` and the questions' `ask.{service}.{project}.{question}[.{job}]`."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import CLUSTER_PROJECT, ID_PATTERN

EVENT_ROOT = "fb"
ASK_ROOT = "ask"
PROGRESS_ROOT = "progress"
STREAM = "FOREBAY"
DEAD_STREAM = "FOREBAY_DEAD"
DEAD_ROOT = "dead"

_TOKEN = re.compile(ID_PATTERN)
_ONE = ID_PATTERN.replace("(", "(?:")
_WHOLE = re.compile(rf"{EVENT_ROOT}\.({_ONE}|{CLUSTER_PROJECT})\.({_ONE})\.({_ONE})\.({_ONE})")
_ONE = r"([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)"
_EVENT = re.compile(rf"{EVENT_ROOT}\.({CLUSTER_PROJECT}|{_ONE[1:-1]})\.{_ONE}\.{_ONE}\.{_ONE}")


def _token(value: str, what: str) -> str:
    if _TOKEN.fullmatch(value) is None and not (what == "project" and value == CLUSTER_PROJECT):
        msg = f"{value!r} cannot be the {what} of a subject: use 1 to 63 lower-case letters, digits and '-'"
        raise InvalidNameError(msg)
    return value


class Subject(msgspec.Struct, frozen=True, gc=False):
    """One event subject taken apart."""

    project: str
    entity: str
    key: str
    event: str

    def __str__(self) -> str:
        return f"{EVENT_ROOT}.{self.project}.{self.entity}.{self.key}.{self.event}"


def event_subject(project: str, entity: str, key: str, event: str) -> Subject:
    """Build a subject; raises `InvalidNameError` for a part that could climb out of its place."""
    return Subject(_token(project, "project"), _token(entity, "entity"), _token(key, "key"), _token(event, "event"))


@lru_cache(maxsize=1024)
def parse_subject(text: str) -> Subject:
    """Take `fb.…` apart; raises `InvalidNameError` when it is not an event subject."""
    found = _EVENT.fullmatch(text)
    if found is not None:
        return Subject(*found.groups())
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        return Subject(whole[1], whole[2], whole[3], whole[4])
    parts = text.split(".")
    if len(parts) != 5 or parts[0] != EVENT_ROOT:
        msg = f"{text!r} is not an event subject: expected 'fb.<project>.<entity>.<key>.<event>'"
        raise InvalidNameError(msg)
    return event_subject(*parts[1:])


def ask_subject(service: str, project: str, question: str, job: str | None = None) -> str:
    """The request/reply subject of one question to one service; with `job`, one that can only be about that job."""
    plain = f"{ASK_ROOT}.{_token(service, 'service')}.{_token(project, 'project')}.{_token(question, 'question')}"
    return plain if job is None else f"{plain}.{_token(job, 'job')}"


def progress_subject(service: str, project: str, key: str) -> str:
    """Core NATS subject of live progress, never stored."""
    return f"{PROGRESS_ROOT}.{_token(service, 'service')}.{_token(project, 'project')}.{_token(key, 'key')}"
