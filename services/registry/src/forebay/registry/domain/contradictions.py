"""What cannot be true at once, with both values and both events.

`settled` contradictions cannot resolve themselves and are published; the others
may vanish when a late event arrives, so they are only answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forebay.contracts.identifiers import canonical_json, stable_id
from forebay.registry.domain.cycles import cycle_through
from forebay.registry.domain.graph import attempts_of, children, get, written_to
from forebay.registry.domain.log_times import stored_at
from forebay.registry.domain.nodes import (
    CHECKPOINT,
    CONTRADICTION,
    EVALUATION,
    RELEASE,
    Fact,
    Node,
    attempt_id,
    job_id,
    local_id,
    model_id,
)
from forebay.registry.domain.view import Claim, facts_named, fields_of, first_fact, is_contested, parents_of, shown
from forebay.runtime.state import State

TERMINAL = ("JobSucceeded", "JobFailed", "JobCancelled")
_JUDGEMENT = frozenset({"rules_version", "findings", "warnings", "rows_sha256", "resources", "devices", "queue"})
"""An episode may be judged, an attempt admitted, again; the newest judgement is a state, not a conflict."""
_TERMINAL_FIELDS = {
    "job": frozenset({"attempts", "succeeded_attempt", "failure", "message", "cancelled_by", "cancelled_reason"}),
    "attempt": frozenset({"exit_code", "signal", "end_reason", "end_message", "ran"}),
}
_CODES = {
    ("dataset", "manifest_sha256"): "DATASET_MUTATED",
    ("dataset", "episodes"): "DATASET_MUTATED",
    ("checkpoint", "digest"): "CHECKPOINT_CHECKSUM_CHANGED",
    ("checkpoint", "files"): "CHECKPOINT_CHECKSUM_CHANGED",
    ("job", "inputs"): "INPUTS_REPINNED",
    ("release", "number"): "RELEASE_FORK",
}
_MAX_VALUES = 8
_MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Facts that exclude each other, about one node."""

    code: str
    subject: str
    message: str
    values: tuple[Any, ...] = ()
    events: tuple[str, ...] = ()
    settled: bool = True

    def id(self, project: str) -> str:
        """The same facts, the same contradiction, whoever finds it and when."""
        values = canonical_json(list(self.values)).decode()
        return "ct-" + stable_id(project, self.code, self.subject, self.message, values)[:24]

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "subject": self.subject,
            "message": self.message,
            "values": list(self.values),
            "events": list(self.events),
            "settled": self.settled,
        }


# ------------------------------------------------------------ within one node


def within(node: Node) -> Iterator[Contradiction]:
    """What one node's own facts contradict."""
    if len(node.facts) < 2 or node.type == CONTRADICTION:
        return
    twice = {fact.event for fact in node.facts}
    if len(twice) < len(node.facts):
        yield from _same_id(node)
    ended = list(_terminal_twice(node))
    yield from ended
    excused = _TERMINAL_FIELDS.get(node.type, frozenset()) if ended else frozenset()
    for field, claims in fields_of(node).items():
        if len(claims) > 1 and field not in _JUDGEMENT and field not in excused and is_contested(claims):
            yield _conflict(node, field, claims)


def _conflict(node: Node, field: str, claims: tuple[Claim, ...]) -> Contradiction:
    code = _CODES.get((node.type, field), "FIELD_CONFLICT")
    return Contradiction(
        code=code,
        subject=node.id,
        message=f"{node.id}: {field} has more than one value",
        values=_distinct(claim.value for claim in claims),
        events=tuple(claim.event for claim in claims)[:_MAX_VALUES],
    )


def _distinct(values: Iterator[Any]) -> tuple[Any, ...]:
    found = {canonical_json(value): value for value in values}
    return tuple(found.values())[:_MAX_VALUES]


def _same_id(node: Node) -> Iterator[Contradiction]:
    by_event: dict[str, list[Fact]] = {}
    for fact in node.facts:
        by_event.setdefault(fact.event, []).append(fact)
    for event, facts in by_event.items():
        if len(facts) > 1:
            yield Contradiction(
                code="DUP_ID_DIFF_BODY",
                subject=node.id,
                message=f"one event id came with {len(facts)} different bodies",
                values=_distinct({"name": fact.name, **fact.values} for fact in facts),
                events=(event,),
            )


def _terminal_twice(node: Node) -> Iterator[Contradiction]:
    names = {"job": TERMINAL, "attempt": ("AttemptEnded",)}.get(node.type)
    if names is None:
        return
    ends = facts_named(node, *names)
    if len({(fact.name, canonical_json(fact.values)) for fact in ends}) > 1:
        yield Contradiction(
            code="TERMINAL_TWICE",
            subject=node.id,
            message=f"{node.id} ended more than once: {', '.join(sorted(fact.name for fact in ends))}",
            values=_distinct({"name": fact.name, **fact.values} for fact in ends),
            events=tuple(fact.event for fact in ends)[:_MAX_VALUES],
        )


def _end_before_start(state: State, node: Node) -> Iterator[Contradiction]:
    """By the log, and not explained by a start that was only delivered late."""
    start, end = first_fact(node, "AttemptStarted"), first_fact(node, "AttemptEnded")
    if start is None or end is None or end.time >= start.time:
        return
    began, ended = stored_at(state, node, start), stored_at(state, node, end)
    if ended < began:
        yield Contradiction(
            code="END_BEFORE_START",
            subject=node.id,
            message=f"{node.id} ended {(began - ended).total_seconds():g} s before it started",
            values=(began.isoformat(), ended.isoformat()),
            events=(start.event, end.event),
        )


# ---------------------------------------------------------- between neighbours


def around(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    """What a node contradicts together with its neighbours."""
    yield from _cycle(state, project, node)
    match node.type:
        case "job":
            for number, attempt in attempts_of(state, project, local_id(node.id)):
                yield from _after_terminal(node, number, attempt, get(state, project, attempt))
        case "attempt":
            yield from _of_attempt(state, project, node)
        case "checkpoint":
            yield from _of_checkpoint(state, project, node)
        case "model":
            yield from _of_model(state, project, node)
        case "evaluation":
            model = get(state, project, model_id(shown(node, "model"), shown(node, "number")))
            yield from _other_artefact(node, model)
        case "release":
            yield from _of_release(state, project, node)
        case _:
            return


def _cycle(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    path = cycle_through(state, project, node)
    if path:
        yield Contradiction(
            code="CYCLE",
            subject=path[0],
            message=f"{path[0]} was made from itself: {' from '.join((*path, path[0]))}"[:_MAX_MESSAGE],
            values=path[:_MAX_VALUES],
            events=tuple(fact.event for fact in node.facts)[:1],
        )


def _of_attempt(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    job, _, number = local_id(node.id).rpartition("/")
    terminal = get(state, project, job_id(job))
    if terminal is not None:
        yield from _after_terminal(terminal, int(number), node.id, node)
    yield from _end_before_start(state, node)
    yield from overlap(state, get(state, project, attempt_id(job, int(number) - 1)), node)
    yield from overlap(state, node, get(state, project, attempt_id(job, int(number) + 1)))
    if shown(node, "resume_mode") == "resume":
        for child in children(state, project, node.id, CHECKPOINT):
            yield from _regression(node, get(state, project, child))


def overlap(state: State, before: Node | None, after: Node | None) -> Iterator[Contradiction]:
    """Two attempts of one job at once: the part that starts and watches them said the start before the end."""
    ended, started = first_fact(before, "AttemptEnded"), first_fact(after, "AttemptStarted")
    if before is None or after is None or ended is None or started is None:
        return
    end, begin = stored_at(state, before, ended), stored_at(state, after, started)
    if end <= begin:
        return
    both = (end - begin).total_seconds()
    yield Contradiction(
        code="ATTEMPT_OVERLAP_SAME_JOB_SLOT",
        subject=after.id,
        message=f"{after.id} started {both:g} s before {before.id} ended",
        values=(end.isoformat(), begin.isoformat()),
        events=(ended.event, started.event),
    )


def _after_terminal(job: Node, number: int, attempt_node_id: str, attempt: Node | None) -> Iterator[Contradiction]:
    attempts = shown(job, "attempts")
    if attempts is None or number <= attempts:
        return
    ends = facts_named(job, *TERMINAL)
    later = () if attempt is None else tuple(fact.event for fact in attempt.facts)
    yield Contradiction(
        code="EVENT_AFTER_TERMINAL",
        subject=attempt_node_id,
        message=f"{job.id} ended after {attempts} attempts, yet attempt {number} has events",
        values=(attempts, number),
        events=(*(fact.event for fact in ends), *later)[:_MAX_VALUES],
    )


def _of_checkpoint(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    job, number = shown(node, "job"), shown(node, "attempt")
    attempt = get(state, project, attempt_id(job, number))
    terminal = get(state, project, job_id(job))
    if terminal is not None:
        yield from _after_terminal(terminal, number, attempt_id(job, number), attempt or node)
    yield from _regression(attempt, node)
    yield from _overwritten(state, project, node)


def _regression(attempt: Node | None, checkpoint: Node | None) -> Iterator[Contradiction]:
    decided = first_fact(attempt, "ResumeDecided")
    if decided is None or checkpoint is None or decided.values.get("resume_mode") != "resume":
        return
    start, step = decided.values["resume_step"], shown(checkpoint, "step")
    if step is not None and step < start:
        yield Contradiction(
            code="STEP_REGRESSION",
            subject=checkpoint.id,
            message=f"an attempt that resumed from step {start} wrote step {step}: training did not resume",
            values=(start, step),
            events=(decided.event, *(fact.event for fact in facts_named(checkpoint, "CheckpointWritten"))),
        )


def _overwritten(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    """Two saves of one step by one attempt in one place: the first one's bytes are gone."""
    uri = shown(node, "uri")
    if uri is None:
        return
    mine = (shown(node, "job"), shown(node, "attempt"), shown(node, "step"))
    for other in written_to(state, project, uri):
        theirs = (shown(other, "job"), shown(other, "attempt"), shown(other, "step"))
        if other.id != node.id and mine == theirs and shown(other, "digest") != shown(node, "digest"):
            first, second = sorted((node, other), key=lambda one: one.id)
            yield Contradiction(
                code="CHECKPOINT_CHECKSUM_CHANGED",
                subject=first.id,
                message=f"step {mine[2]} at {uri} was written with two different contents ({first.id}, {second.id})",
                values=(shown(first, "digest"), shown(second, "digest")),
                events=tuple(fact.event for one in (first, second) for fact in facts_named(one, "CheckpointWritten")),
            )


def _of_model(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    checkpoint = get(state, project, f"{CHECKPOINT}:{shown(node, 'checkpoint')}")
    if not facts_named(checkpoint, "CheckpointWritten", "CheckpointImported"):
        yield Contradiction(
            code="MODEL_WITHOUT_CHECKPOINT",
            subject=node.id,
            message=f"{node.id} was registered from a checkpoint that no event has written",
            values=(shown(node, "checkpoint"),),
            events=tuple(fact.event for fact in node.facts),
            settled=False,
        )
    for kind in (EVALUATION, RELEASE):
        for child in children(state, project, node.id, kind):
            bound = get(state, project, child)
            if bound is not None:
                yield from _other_artefact(bound, node)


def _other_artefact(node: Node, model: Node | None) -> Iterator[Contradiction]:
    expected, found = shown(model, "artefact_sha256"), shown(node, "artefact_sha256")
    if model is not None and expected is not None and found is not None and expected != found:
        yield Contradiction(
            code="EVAL_DIGEST_MISMATCH" if node.type == EVALUATION else "RELEASE_DIGEST_MISMATCH",
            subject=node.id,
            message=f"{node.id} names another artefact than {model.id}",
            values=(expected, found),
            events=(*(fact.event for fact in model.facts), *(fact.event for fact in node.facts))[:_MAX_VALUES],
        )


def _of_release(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    released = first_fact(node, "ModelReleased")
    if released is None:
        return
    model = get(state, project, model_id(released.values["model"], released.values["number"]))
    yield from _other_artefact(node, model)
    if (
        released.values["channel"] != "retired"
        and "evaluation" not in released.values
        and "forced_reason" not in released.values
    ):
        yield Contradiction(
            code="MODEL_WITHOUT_EVAL",
            subject=node.id,
            message=f"{node.id} names neither an evaluation nor a reason for going without",
            events=(released.event,),
        )


def missing_parents(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    """Parents that no event has described; they may still come."""
    for (relation, parent), events in parents_of(node).items():
        found = get(state, project, parent)
        if found is None or not found.facts:
            yield Contradiction(
                code="MISSING_PARENT",
                subject=node.id,
                message=f"{node.id} is {relation} {parent}, which no event has described",
                values=(parent,),
                events=events,
                settled=False,
            )


def every(state: State, project: str, node: Node) -> list[Contradiction]:
    """All contradictions of a node: its own, with neighbours, and what is missing."""
    return [*within(node), *around(state, project, node), *missing_parents(state, project, node)]


def step_back(state: State, project: str, job: str) -> Iterator[Contradiction]:
    """An attempt without a resume decision that writes lower steps than the one before (may still be explained)."""
    highest: tuple[int, str] | None = None
    for number, attempt in attempts_of(state, project, job):
        saves = [
            node
            for child in children(state, project, attempt, CHECKPOINT)
            if (node := get(state, project, child)) is not None
        ]
        steps = sorted((shown(node, "step", 0), node.id) for node in saves)
        undecided = first_fact(get(state, project, attempt), "ResumeDecided") is None
        if steps and highest is not None and undecided and steps[0][0] < highest[0]:
            yield Contradiction(
                code="STEP_REGRESSION",
                subject=attempt_id(job, number),
                message=f"attempt {number} wrote step {steps[0][0]} after step {highest[0]} was saved; no resume decision is on record",
                values=(highest[0], steps[0][0]),
                events=(highest[1], steps[0][1]),
                settled=False,
            )
        if steps and (highest is None or steps[-1][0] > highest[0]):
            highest = steps[-1]
