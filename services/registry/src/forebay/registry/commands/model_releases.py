"""`model-release`: a channel moves to a version, or back; by compare-and-set, on evidence.

No version goes into a channel without an evaluation of exactly its artefact, unless
a person says why. A rollback is a look-up of what the channel named before, plus an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from forebay.contracts.identifiers import content_digest, stable_id
from forebay.contracts.v1.models import Channel, GateResult, ModelReleased, ModelRolledBack
from forebay.registry.domain.contradictions import within
from forebay.registry.domain.evidence import evidence_words, is_typed
from forebay.registry.domain.gates import Policy, check, failed, in_force, policy_of
from forebay.registry.domain.graph import get
from forebay.registry.domain.keeping import check_result, keep
from forebay.registry.domain.names import CHANNELS
from forebay.registry.domain.nodes import MODEL, Node, local_id, model_id, name_and_number, release_id
from forebay.registry.domain.releases import Pointer, evaluations_of, latest_evaluation, pointer
from forebay.registry.domain.view import shown
from forebay.registry.domain.weaknesses import broken
from forebay.registry.questions.models import version_of
from forebay.registry.questions.request_args import flag, optional_number, optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State

_LIVE = ("canary", "production")


def model_release(state: State, pending: Pending, request: Request) -> Outcome:
    """Args {model, channel, number?, forced_reason?, previous?, policy?, check?} or {model, channel, rollback: true, reason, number?}."""
    project, name, channel = request.project, text(request, "model"), channel_in(request)
    name = name.removeprefix(f"{MODEL}:")
    _refuse_while_moving(pending, project, name, channel)
    if flag(request, "rollback"):
        return _roll_back(state, request, name, channel)
    node_id = version_of(state, project, name, optional_number(request, "number"))
    name, number = name_and_number(node_id)
    now = pointer(state, project, name, channel)
    if now.current == number:
        return Outcome(result=_result(name, number, channel, now.before, now.move, already=True))
    _compare(request, name, channel, now)
    model = get(state, project, node_id)
    if model is None:
        raise Refused("unknown-id", f"{node_id} is not registered")
    forced = optional_text(request, "forced_reason")
    _refuse_broken(state, project, model)
    policy = None if channel == "retired" else in_force(state, project, name, channel, policy_in(request))
    demanded = None if policy is None else policy.evidence
    evaluation = latest_evaluation(state, evaluations_of(state, project, model), demanded)
    gate = None if policy is None else check(policy, evaluation, _live(state, project, name))
    if forced is None:
        _refuse_without_grounds(state, project, model, channel, evaluated=evaluation is not None)
        _refuse_failing(name, number, gate)
    if channel != "retired" and (waiting := _look_at_files(state, request, model)) is not None:
        return waiting
    body = ModelReleased(
        model=name,
        number=number,
        channel=channel,
        artefact_sha256=shown(model, "artefact_sha256"),
        previous=now.current,
        move=now.move + 1,
        evaluation=None if evaluation is None else local_id(evaluation.id),
        forced_reason=forced,
        gate=gate,
        policy_sha256=None if policy is None else content_digest(msgspec.to_builtins(policy)),
        by=request.by,
    )
    emit = Emit(project=project, body=body, dedupe=(name, channel, now.move + 1))
    result = _result(name, number, channel, now.current, now.move + 1, already=False)
    said: dict[str, Any] = {"evaluation": body.evaluation, "forced_reason": forced}
    said |= {"evidence": evidence_words(evaluation), "typed": evaluation is not None and is_typed(evaluation)}
    said["gate"] = None if gate is None else [one.model_dump(mode="json") for one in gate]
    return Outcome(result=result | said, actions=(emit,))


def _look_at_files(state: State, request: Request, model: Node) -> Outcome | None:
    """Every byte of the version is read for this very release: None when it is whole, an `Outcome` while that runs.

    Whoever releases asks again with `check` as the outcome names it. No reason overrides this.
    """
    name, number = name_and_number(model.id)
    check = optional_text(request, "check") or "mc-" + stable_id(request.project, request.id)[:24]
    found = check_result(model, check)
    if found is None:
        work = keep(state, request.project, model, check)
        if work is None:
            raise Refused(
                "files-unknown",
                f"{name}@v{number}: no event says which files it has, so nobody can look at them",
                "register its checkpoint again, with: forebay model register",
            )
        return Outcome(result={"pending": True, "check": check, "model": name, "number": number}, actions=(work,))
    if found["status"] != "whole":
        raise Refused(
            "files-" + found["status"],
            f"{name}@v{number} is not whole: {'; '.join(found['findings'])}",
            "put the files back, or register another checkpoint",
            {"status": found["status"], "findings": found["findings"]},
        )
    return None


def policy_in(request: Request) -> Policy | None:
    """The policy that a request brings along."""
    if request.args.get("policy") is None:
        return None
    try:
        return policy_of(request.args["policy"])
    except ValueError as error:
        raise Refused("bad-policy", f"the policy does not fit: {error}", "correct the policy file") from None


def _live(state: State, project: str, name: str) -> dict[str, dict[str, float] | None]:
    """Metrics of what each channel names now, from the evaluation of exactly that artefact."""
    found: dict[str, dict[str, float] | None] = {}
    for channel in CHANNELS:
        current = pointer(state, project, name, channel).current
        node = None if current is None else get(state, project, model_id(name, current))
        evaluation = None if node is None else latest_evaluation(state, evaluations_of(state, project, node))
        found[channel] = None if node is None else shown(evaluation, "metrics", {})
    return found


def _refuse_failing(name: str, number: int, gate: Sequence[GateResult] | None) -> None:
    wrong = failed(gate or ())
    if wrong:
        raise Refused(
            "gate-failed",
            f"{name}@v{number} fails {len(wrong)} of {len(gate or ())} rules: "
            + "; ".join(f"{one.metric} {one.rule}: {one.message}" for one in wrong),
            "release another version, or force it with a recorded reason",
            {"gate": [one.model_dump(mode="json") for one in gate or ()]},
        )


def _refuse_while_moving(pending: Pending, project: str, name: str, channel: str) -> None:
    moving = [(one.model, one.channel) for one in pending.of(ModelReleased, project)]
    moving += [(one.model, one.channel) for one in pending.of(ModelRolledBack, project)]
    if (name, channel) in moving:
        raise Refused("not-stored-yet", f"{name}@{channel} is being moved", "ask again in a moment")


def channel_in(request: Request) -> Channel:
    channel = text(request, "channel")
    if channel not in CHANNELS:
        raise Refused("bad-channel", f"{channel!r} is no channel", f"channels are {', '.join(CHANNELS)}")
    return cast("Channel", channel)


def _compare(request: Request, name: str, channel: str, now: Pointer) -> None:
    """Whoever says what they saw must have seen what is there."""
    if "previous" in request.args and request.args["previous"] != now.current:
        raise Refused(
            "moved-meanwhile",
            f"{name}@{channel} is at {_v(now.current)}, not at {_v(request.args['previous'])}",
            f"look at it again with: forebay lineage {name}@{channel}",
            {"current": now.current},
        )


def _v(number: object) -> str:
    return "nothing" if number is None else f"v{number}"


def _refuse_broken(state: State, project: str, model: Node) -> None:
    """What no reason can override: the artefact is not there any more."""
    name, number = name_and_number(model.id)
    why = _broken(state, project, model)
    if why is not None:
        raise Refused(
            "artefact-changed", f"{name}@v{number} is broken: {why}", "register the save again: it gets a new number"
        )


def _refuse_without_grounds(state: State, project: str, model: Node, channel: str, *, evaluated: bool) -> None:
    """What a person may override with a recorded reason."""
    name, number = name_and_number(model.id)
    if channel == "retired":
        live = [one for one in _LIVE if pointer(state, project, name, one).current == number]
        if live:
            raise Refused(
                "still-released",
                f"{name}@v{number} is what {' and '.join(live)} names",
                "release another version there first, or force it with a reason",
            )
        return
    if number in pointer(state, project, name, "retired").stack:
        raise Refused("retired", f"{name}@v{number} was retired", "choose another version, or force it with a reason")
    if not evaluated:
        raise Refused(
            "not-evaluated",
            f"{name}@v{number} has no evaluation of its artefact {shown(model, 'artefact_sha256')[:12]}…",
            f"forebay model evaluate {name} --number {number} --metrics FILE, or force the release with a reason",
        )


def _broken(state: State, project: str, model: Node) -> str | None:
    """Why the artefact cannot be what was registered."""
    contradicted = next(iter(within(model)), None)
    return broken(state, project, model) if contradicted is None else contradicted.message


def _roll_back(state: State, request: Request, name: str, channel: Channel) -> Outcome:
    project, reason = request.project, text(request, "reason")
    now = pointer(state, project, name, channel)
    wanted = optional_number(request, "number")
    target = now.before if wanted is None else wanted
    if now.current is None or target is None:
        raise Refused("nothing-before", f"{name}@{channel} names {_v(now.current)} and has named nothing before it")
    if target not in now.stack[:-1]:
        named = ", ".join(_v(one) for one in now.stack[:-1]) or "nothing"
        raise Refused("never-released", f"{name}@{channel} has not named {_v(target)} before; it has named {named}")
    model = get(state, project, model_id(name, target))
    why = "no event has registered it" if model is None else _broken(state, project, model)
    if why is not None:
        raise Refused("artefact-changed", f"{name}@v{target} is broken: {why}", "release a version that is whole")
    if model is not None and (waiting := _look_at_files(state, request, model)) is not None:
        return waiting
    body = ModelRolledBack(
        model=name,
        channel=channel,
        from_number=now.current,
        to_number=target,
        move=now.move + 1,
        reason=reason,
        by=request.by,
    )
    emit = Emit(project=project, body=body, dedupe=(name, channel, now.move + 1))
    return Outcome(
        result=_result(name, target, channel, now.current, now.move + 1, already=False) | {"rollback": True},
        actions=(emit,),
    )


def _result(name: str, number: int, channel: str, previous: int | None, move: int, *, already: bool) -> dict[str, Any]:
    return {
        "id": release_id(name, channel, move),
        "model": name,
        "number": number,
        "channel": channel,
        "previous": previous,
        "move": move,
        "already": already,
    }
