"""`model-policy`: what a channel asks of every version that is released into it, kept in the log with who and why."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.contracts.identifiers import check_name
from forebay.contracts.v1.models import PolicyRule, ReleasePolicySet
from forebay.registry.commands.model_releases import channel_in, policy_in
from forebay.registry.domain.gates import Policy, kept, rule_json
from forebay.registry.domain.nodes import MODEL
from forebay.registry.questions.request_args import flag, optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State


def model_policy(state: State, pending: Pending, request: Request) -> Outcome:
    """Args {channel, model?, policy, reason} or {channel, model?, remove: true, reason}; without `model` for every model."""
    project, channel, model = request.project, channel_in(request), _model(request)
    if channel == "retired":
        raise Refused("bad-channel", "nothing has to be met to be retired", "use candidate, canary or production")
    remove, given = flag(request, "remove"), policy_in(request)
    if remove == (given is not None):
        raise Refused("bad-request", "give a policy or remove the one that is kept", "write one of them")
    rules = () if given is None else given.rules
    if any(one.channel == channel and one.model == model for one in pending.of(ReleasePolicySet, project)):
        raise Refused("not-stored-yet", f"the policy of {channel} is being set", "ask again in a moment")
    now = kept(state, project, model, channel)
    number = 0 if now is None else now.number
    evidence = None if given is None else given.evidence
    if (rules, evidence) == ((), None) if now is None else (rules, evidence) == (now.rules, now.evidence):
        return Outcome(result=_result(model, channel, given, number, already=True))
    body = ReleasePolicySet(
        channel=channel,
        model=model,
        rules=tuple(PolicyRule.model_validate(msgspec.to_builtins(rule)) for rule in rules),
        evidence=evidence,
        number=number + 1,
        reason=text(request, "reason"),
        by=request.by,
    )
    emit = Emit(project=project, body=body, dedupe=(model or "*", channel, number + 1))
    return Outcome(result=_result(model, channel, given, number + 1, already=False), actions=(emit,))


def _model(request: Request) -> str | None:
    given = optional_text(request, "model")
    if given is None:
        return None
    try:
        return check_name(given.removeprefix(f"{MODEL}:"))
    except ValueError as error:
        raise Refused("bad-request", str(error), "write the name of a model, without a version") from None


def _result(model: str | None, channel: str, policy: Policy | None, number: int, *, already: bool) -> dict[str, Any]:
    return {
        "model": model,
        "channel": channel,
        "rules": [rule_json(rule) for rule in (policy.rules if policy is not None else ())],
        "evidence": None if policy is None else policy.evidence,
        "number": number,
        "already": already,
    }
