"""What is not wrong by itself but leaves a story with a hole, or on soft ground.

Answers only: a late event, a new evaluation or a person may mend each of them. Lasting
contradictions are in `contradictions.py`; what needs files is in the question `audit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from forebay.registry.domain.contradictions import Contradiction
from forebay.registry.domain.graph import attempts_of, children, get, written_to
from forebay.registry.domain.log_times import stored_at, stored_times
from forebay.registry.domain.nodes import (
    ATTEMPT,
    CHECKPOINT,
    DATASET,
    JOB,
    MODEL,
    RELEASE,
    UPLOAD,
    Heard,
    Node,
    attempt_id,
    local_id,
    model_id,
    name_and_number,
    release_id,
)
from forebay.registry.domain.resume import CRASHES_BEFORE_SUSPECT, overwritten, save_of, suspects
from forebay.registry.domain.view import facts_named, first_fact, shown, state_of
from forebay.runtime.state import State

_PINNED = re.compile(r"([a-z0-9]+:)?[0-9a-f]{7,64}")
"""A commit or a content digest, perhaps with a scheme; a branch, a tag or `-dirty` is none."""


def weaknesses(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    """Everything of this kind that one node shows."""
    check = _CHECKS.get(node.type)
    if check is not None:
        yield from check(state, project, node)


def _weak(code: str, node: Node, message: str, values: tuple[object, ...] = ()) -> Contradiction:
    events = tuple(fact.event for fact in node.facts)[:8]
    return Contradiction(code=code, subject=node.id, message=message, values=values, events=events, settled=False)


def _upload_gap(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    finished = first_fact(node, "UploadFinished")
    if finished is None:
        return
    heard = state.get(Heard, f"{project}/{local_id(node.id)}")
    said, came = finished.values["episodes"], 0 if heard is None else heard.count
    if came < said:
        message = f"{node.id} finished with {said} episodes, but only {came} of them came as events"
        yield _weak("SEQ_GAP", node, message, (said, came))


def _gap_before(state: State, project: str, node: Node, before: str) -> Iterator[Contradiction]:
    """Numbers of versions, moves and attempts have no holes, so a hole is an event that is not here."""
    earlier = get(state, project, before)
    if earlier is None or not earlier.facts:
        yield _weak("SEQ_GAP", node, f"{node.id} is on record, but no event has described {before}", (before,))


def _of_dataset(state: State, project: str, node: Node) -> Iterator[Contradiction]:  # noqa: ARG001 a check's signature
    yield from _unpinned(node, "source_revision", "source revision")


def _unpinned(node: Node, field: str, words: str) -> Iterator[Contradiction]:
    revision = shown(node, field)
    if revision is not None and not _PINNED.fullmatch(str(revision)):
        message = f"{node.id}: its {words} {revision!r} is no commit, so what it named then is not certain now"
        yield _weak("REVISION_UNPINNED", node, message, (revision,))


def _of_job(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    yield from _unpinned(node, "code_revision", "code revision")
    job = local_id(node.id)
    attempts = [
        (found, sum(1 for _ in children(state, project, attempt, CHECKPOINT)))
        for _, attempt in attempts_of(state, project, job)
        if (found := get(state, project, attempt)) is not None
    ]
    for checkpoint in sorted(suspects(attempts)):
        message = f"{CRASHES_BEFORE_SUSPECT} attempts of {job} loaded checkpoint {checkpoint} and died without saving"
        yield _weak("CHECKPOINT_SUSPECT", node, message, (checkpoint,))
    if attempts and not facts_named(node, "LeaseGranted", "CheckpointImported"):
        message = f"{node.id} was started, but no event has pinned its inputs: the versions it read are UNKNOWN"
        yield _weak("INPUTS_UNKNOWN", node, message)


def _of_attempt(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    job, _, number = local_id(node.id).rpartition("/")
    if int(number) > 1:
        yield from _gap_before(state, project, node, attempt_id(job, int(number) - 1))
        before = get(state, project, attempt_id(job, int(number) - 1))
        open_end = first_fact(before, "AttemptStarted") and not first_fact(before, "AttemptEnded")
        if open_end and first_fact(node, "AttemptStarted"):
            message = f"{node.id} started, but no event has ended attempt {int(number) - 1}"
            yield _weak("ATTEMPT_OVERLAP_SAME_JOB_SLOT", node, message)
    origin = shown(node, "resume_checkpoint")
    if origin is None or shown(node, "resume_mode") != "resume":
        return
    checkpoint = get(state, project, f"{CHECKPOINT}:{origin}")
    made = shown(checkpoint, "compatibility", {})
    lacks = [name for name in ("datasets", "code_revision", "parameters_sha256") if not made.get(name)]
    if checkpoint is not None and (state_of(checkpoint) != "complete" or lacks):
        unknown = f", made with unknown {', '.join(lacks)}" if lacks else ""
        message = f"{node.id} resumed from {origin}, which is {state_of(checkpoint)}{unknown}"
        yield _weak("CHECKPOINT_PARTIAL_COMPAT", node, message, (origin, *lacks))


def _after_takeover(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    """A save by an attempt after the next one had started: it had lost its lease and went on."""
    written, number = first_fact(node, "CheckpointWritten"), shown(node, "attempt")
    if written is None:
        return
    following = get(state, project, attempt_id(shown(node, "job"), number + 1))
    later = first_fact(following, "AttemptStarted")
    if following is None or later is None:
        return
    after = (stored_at(state, node, written) - stored_at(state, following, later)).total_seconds()
    if after > 0 and written.time > later.time:  # one that was only delivered late is none
        message = (
            f"attempt {number} wrote step {shown(node, 'step')} {after:g} s after attempt {number + 1} had started"
        )
        yield _weak("WRITE_AFTER_TAKEOVER", node, message, (number, number + 1))


def _of_model(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    name, number = name_and_number(node.id)
    if number > 1:
        yield from _gap_before(state, project, node, model_id(name, number - 1))
    if first_fact(node, "ModelVersionRegistered") is None:
        return
    if (why := broken(state, project, node)) is not None:
        yield _weak("MODEL_BROKEN", node, f"{node.id} is broken: {why}", (shown(node, "artefact_sha256"),))
    for dataset in shown(node, "datasets", []):
        version = get(state, project, dataset)
        if (gone := _gone(state, version)) is not None:
            yield _weak("NEEDED_BUT_GONE", node, f"{node.id} was made from {dataset}, which {gone}", (dataset,))


def _gone(state: State, version: Node | None) -> str | None:
    removed = first_fact(version, "DatasetVersionRemoved")
    if removed is not None:
        return f"{removed.values['removed_by']} removed: {removed.values['removed_reason']}"
    checks = facts_named(version, "DatasetVersionChecked")
    times = {} if version is None else stored_times(state, version)
    last = max(checks, key=lambda fact: (times.get(fact.event, fact.time), fact.event), default=None)
    if last is not None and last.values.get("whole") is False:
        return f"is not whole: {last.values.get('check_message', 'no details')}"
    return None


def broken(state: State, project: str, model: Node) -> str | None:
    """Why a version's artefact cannot be what was registered."""
    checkpoint = get(state, project, f"{CHECKPOINT}:{shown(model, 'checkpoint')}")
    expected, found = shown(model, "artefact_sha256"), shown(checkpoint, "digest")
    if found is not None and found != expected:
        return f"its checkpoint's digest is {found[:12]}…, registered was {str(expected)[:12]}…"
    there = [save for one in written_to(state, project, shown(model, "uri", "")) if (save := save_of(one)) is not None]
    return overwritten(there).get(shown(model, "checkpoint"))


def _of_release(state: State, project: str, node: Node) -> Iterator[Contradiction]:
    model, _, rest = local_id(node.id).partition("@")
    channel, _, move = rest.partition("/")
    if int(move) > 1:
        yield from _gap_before(state, project, node, release_id(model, channel, int(move) - 1))
    back = first_fact(node, "ModelRolledBack")
    if back is None:
        return
    target = back.values["number"]
    registered = first_fact(get(state, project, model_id(model, target)), "ModelVersionRegistered")
    named = {
        shown(get(state, project, release_id(model, channel, earlier)), "number") for earlier in range(1, int(move))
    }
    if registered is None or target not in named:
        what = "which no event has registered" if registered is None else f"which {channel} never named before"
        yield _weak("ROLLBACK_TO_UNKNOWN", node, f"{node.id} went back to v{target}, {what}", (target,))


_CHECKS: dict[str, Callable[[State, str, Node], Iterator[Contradiction]]] = {
    UPLOAD: _upload_gap,
    DATASET: _of_dataset,
    JOB: _of_job,
    ATTEMPT: _of_attempt,
    CHECKPOINT: _after_takeover,
    MODEL: _of_model,
    RELEASE: _of_release,
}
