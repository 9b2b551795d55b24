"""What the registry does about an event: check a new checkpoint's files, publish lasting contradictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.identifiers import canonical_json, stable_id
from forebay.contracts.v1.models import (
    CheckpointImported,
    CheckpointWritten,
    LineageContradictionFound,
    ModelVersionRegistered,
)
from forebay.registry.domain.contradictions import Contradiction, around, within
from forebay.registry.domain.graph import get
from forebay.registry.domain.keeping import keep
from forebay.registry.domain.nodes import model_id
from forebay.registry.domain.statements import STATEMENTS
from forebay.runtime.machine import Action, Emit, Pending, Work
from forebay.runtime.state import State

VERIFY = "verify-checkpoint"
_MAX_VALUE_BYTES = 2000


def decide(state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:  # noqa: ARG001 decide's signature
    """Pure: the state already contains the event."""
    body, project = recorded.body, recorded.project
    actions: list[Action] = []
    if isinstance(body, CheckpointWritten | CheckpointImported):
        actions.append(verification(project, body))
    if isinstance(body, ModelVersionRegistered):
        model = get(state, project, model_id(body.model, body.number))
        work = None if model is None else keep(state, project, model)
        actions += [] if work is None else [work]
    actions += [publish(project, found) for found in _contradicted(state, project, body) if found.settled]
    return actions


def verification(project: str, body: CheckpointWritten | CheckpointImported) -> Work:
    """The work item that checks one save. Its key holds what the check depends on."""
    return Work(
        kind=VERIFY,
        key="vc-" + stable_id(project, body.checkpoint, body.uri, body.digest)[:24],
        project=project,
        payload=body.to_json(),
    )


def _contradicted(state: State, project: str, body: EventBody) -> Iterator[Contradiction]:
    if isinstance(body, LineageContradictionFound) or type(body) not in STATEMENTS:
        return
    for node_id, _, _ in STATEMENTS[type(body)](body):
        node = get(state, project, node_id)
        if node is not None:
            yield from within(node)
            yield from around(state, project, node)


def conflict(recorded: Recorded[EventBody], first_seq: int) -> Iterable[Action]:
    """One event id came with another body: the first one stays, and both are named."""
    body = recorded.body
    say = STATEMENTS.get(type(body))
    subject = say(body)[0][0] if say is not None else f"event:{recorded.event.id}"
    found = Contradiction(
        code="DUP_ID_DIFF_BODY",
        subject=subject,
        message=f"{body.event} came again under the id of message {first_seq} with another body; the first one stays",
        values=(first_seq, recorded.body_sha256),
        events=(recorded.identity,),
    )
    return [publish(recorded.project, found)]


def publish(project: str, found: Contradiction) -> Emit:
    """A contradiction as an event; the same one is published once for ever."""
    contradiction = found.id(project)
    body = LineageContradictionFound(
        contradiction=contradiction,
        code=found.code,
        subject=found.subject,
        values=tuple(_short(value) for value in found.values),
        events=found.events,
        message=found.message[:2000],
    )
    return Emit(project=project, body=body, dedupe=(contradiction,))


def _short(value: Any) -> Any:
    """The value itself, or its start when it would make the event too large."""
    text = canonical_json(value)
    return value if len(text) <= _MAX_VALUE_BYTES else text[:_MAX_VALUE_BYTES].decode(errors="ignore") + "…"
