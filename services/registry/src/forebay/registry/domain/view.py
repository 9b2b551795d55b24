"""Nodes as people see them: each field a set of (value, event), and the one that is shown.

The shown value never depends on arrival: the event that owns the field comes
first (the order of `STATEMENTS`), then the smallest value, then the smallest event id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.contracts.identifiers import canonical_json
from forebay.registry.domain.nodes import (
    ATTEMPT,
    CHECKPOINT,
    DATASET,
    EPISODE,
    JOB,
    Fact,
    Link,
    Node,
    local_id,
    type_of,
)
from forebay.registry.domain.statements import REPEATABLE, STATEMENTS

_PLAIN = (str, int)
_RANK = {body.event: rank for rank, body in enumerate(STATEMENTS)}


@dataclass(frozen=True, slots=True)
class Claim:
    """One value of one field, and the event that said it."""

    value: Any
    event: str
    name: str

    @property
    def order(self) -> tuple[int, bytes, str]:
        return _RANK.get(self.name, len(_RANK)), canonical_json(self.value), self.event


Fields = Mapping[str, tuple[Claim, ...]]


def fields_of(node: Node) -> dict[str, tuple[Claim, ...]]:
    """Every field with all its claims, the shown one first. Repeatable events are history, not fields."""
    found: dict[str, list[Claim]] = {}
    for fact in node.facts:
        if fact.name not in REPEATABLE:
            for name, value in fact.values.items():
                found.setdefault(name, []).append(Claim(value, fact.event, fact.name))
    return {
        name: tuple(claims) if len(claims) == 1 else tuple(sorted(claims, key=lambda claim: claim.order))
        for name, claims in found.items()
    }


def is_contested(claims: Iterable[Claim]) -> bool:
    """More than one value for one field."""
    return len({canonical_json(claim.value) for claim in claims}) > 1


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def shown(node: Node | None, field: str, default: Any = None) -> Any:
    """The value to show for one field."""
    if node is None:
        return default
    said = [fact for fact in node.facts if field in fact.values and fact.name not in REPEATABLE]
    if not said:
        return default
    value = said[0].values[field]
    if len(said) == 1 or (type(value) in _PLAIN and all(_same(fact.values[field], value) for fact in said)):
        return value
    claims = (Claim(fact.values[field], fact.event, fact.name) for fact in said)
    return min(claims, key=lambda claim: claim.order).value


def facts_named(node: Node | None, *names: str) -> tuple[Fact, ...]:
    return () if node is None else tuple(fact for fact in node.facts if fact.name in names)


def first_fact(node: Node | None, name: str) -> Fact | None:
    """The fact of one event kind, by a rule without arrival (smallest event id)."""
    return next(iter(facts_named(node, name)), None)


def parents_of(node: Node) -> dict[Link, tuple[str, ...]]:
    """Each edge upwards with the events that made it, in the order of the story."""
    if len(node.facts) == 1:
        return dict.fromkeys(node.facts[0].parents, (node.facts[0].event,))
    found: dict[Link, list[str]] = {}
    for fact in sorted(node.facts, key=lambda fact: (_RANK.get(fact.name, len(_RANK)), fact.event)):
        for parent in fact.parents:
            found.setdefault(parent, []).append(fact.event)
    return {link: tuple(events) for link, events in found.items()}


_EPISODE_STATES = (
    ("EpisodeWithdrawn", "withdrawn"),
    ("EpisodeRejected", "rejected"),
    ("EpisodeHeld", "held"),
    ("EpisodeAccepted", "accepted"),
    ("EpisodeUploaded", "uploaded"),
)
_JOB_STATES = (
    ("JobSucceeded", "SUCCEEDED"),
    ("JobFailed", "FAILED"),
    ("JobCancelled", "CANCELLED"),
    ("JobSubmitted", "SUBMITTED"),
    ("CheckpointImported", "IMPORTED"),
)
_ATTEMPT_STATES = (
    ("AttemptEnded", "ENDED"),
    ("AttemptStarted", "RUNNING"),
    ("PreflightFailed", "PREFLIGHT_FAILED"),
    ("WorkloadAdmitted", "ADMITTED"),
    ("CheckpointImported", "IMPORTED"),
)
_DATASET_STATES = (("DatasetVersionRemoved", "removed"), ("DatasetVersionCommitted", "committed"))
_STATES = {EPISODE: _EPISODE_STATES, DATASET: _DATASET_STATES, JOB: _JOB_STATES, ATTEMPT: _ATTEMPT_STATES}


def state_of(node: Node) -> str:
    """One word on where it stands. Terminal facts win over every other, whenever they came."""
    kind = node.type
    if not node.facts:
        return "unknown"
    if kind == CHECKPOINT:
        if first_fact(node, "CheckpointDeleted") is not None:
            return "deleted"
        return str(shown(node, "status", "written"))
    names = {fact.name for fact in node.facts}
    state = next((state for name, state in _STATES.get(kind, ()) if name in names), "known")
    if state == "ENDED":
        if shown(node, "end_reason") == "Stopped":  # whatever its exit code: it was told to end
            return "STOPPED"
        return "SUCCEEDED" if shown(node, "exit_code") == 0 else "FAILED"
    return state


def _episode_title(node: Node) -> str:
    tasks = ", ".join(shown(node, "tasks", [])) or "no task named"
    return f"{tasks}, {shown(node, 'length')} frames, {state_of(node)}"


def _attempt_title(node: Node) -> str:
    mode, step = shown(node, "resume_mode"), shown(node, "resume_step")
    origin = "" if mode is None else f", {mode} start" if step is None else f", {mode} from step {step}"
    return f"{state_of(node)}{origin}"


def _evaluation_title(node: Node) -> str:
    metrics = sorted(shown(node, "metrics", {}).items())[:3]
    said: dict[str, Any] = shown(node, "evidence", {})
    typed = "" if said.get("kind") in {"file", "job"} and not said.get("typed") else ", typed by hand"
    return ", ".join(f"{name} {value:g}" for name, value in metrics) + typed


def _dataset_title(node: Node) -> str:
    counts = f"{shown(node, 'episode_count')} episodes, {shown(node, 'frame_count')} frames"
    return f"{counts}, removed" if state_of(node) == "removed" else counts


def _checkpoint_title(node: Node) -> str:
    imported = shown(node, "imported")
    origin = "" if imported is None else f", imported as {imported}"
    return f"step {shown(node, 'step')}, {state_of(node)}{origin}"


_TITLES: dict[str, Callable[[Node], str]] = {
    "episode": _episode_title,
    "dataset": _dataset_title,
    "job": state_of,
    "attempt": _attempt_title,
    "checkpoint": _checkpoint_title,
    "model": lambda node: f"step {shown(node, 'step')} of job {shown(node, 'job')}",
    "evaluation": _evaluation_title,
    "release": lambda node: f"{shown(node, 'action')} of v{shown(node, 'number')}",
    "contradiction": lambda node: f"{shown(node, 'code')} on {shown(node, 'subject')}",
    "upload": lambda node: f"{shown(node, 'source_ref') or shown(node, 'dataset')}",
}


TIMES: dict[str, tuple[tuple[str, str], ...]] = {
    ATTEMPT: (("started_at", "AttemptStarted"), ("ended_at", "AttemptEnded")),
    JOB: (("submitted_at", "JobSubmitted"),),
}
"""When something happened; `log_clock.times_json` reads it by the log's clock."""


def title_of(node_id: str, node: Node | None) -> str:
    """A short sentence for one line of a tree."""
    kind, local = type_of(node_id), local_id(node_id)
    if node is None or not node.facts:
        return f"{kind} {local}: no event has described it"
    describe = _TITLES.get(kind)
    return f"{kind} {local}" if describe is None else f"{kind} {local}: {describe(node)}"


def node_json(node_id: str, node: Node | None, *, claims: bool = False) -> dict[str, Any]:
    """One node as every answer shows it, without its parents."""
    found: dict[str, Any] = {
        "id": node_id,
        "kind": type_of(node_id),
        "title": title_of(node_id, node),
        "state": "unknown" if node is None else state_of(node),
        "placeholder": node is None or not node.facts,
        "fields": {},
    }
    if node is None:
        return found
    fields = fields_of(node)
    found["fields"] = {name: several[0].value for name, several in sorted(fields.items())}
    for name in ("files", "kept_files"):
        files = found["fields"].get(name)
        if isinstance(files, list):
            found["fields"][name] = {"count": len(files), "bytes": sum(size for _, _, size in files)}
    contested = {name: several for name, several in sorted(fields.items()) if is_contested(several)}
    if contested:
        found["contested"] = {name: _claims_json(several) for name, several in contested.items()}
    if claims:
        found["claims"] = {name: _claims_json(several) for name, several in sorted(fields.items())}
    history = [
        {"event": fact.event, "name": fact.name, "time": fact.time.isoformat(), **fact.values}
        for fact in node.facts
        if fact.name in REPEATABLE
    ]
    if history:
        found["history"] = history
    found["events"] = [fact.event for fact in node.facts]
    return found


def _claims_json(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    return [{"value": claim.value, "event": claim.event, "name": claim.name} for claim in claims]
