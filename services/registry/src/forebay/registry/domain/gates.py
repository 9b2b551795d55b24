"""Release gates: what the metrics of a version must be, alone or next to what is live now.

A policy is a list of rules that its owner keeps in a file; the rules and what they
found go into the release's event, so the decision can be read years later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from forebay.contracts.v1.models import GateResult
from forebay.registry.domain.evidence import Demanded, check_evidence, strictest
from forebay.registry.domain.graph import get
from forebay.registry.domain.nodes import Fact, Node, gate_id
from forebay.registry.domain.view import shown
from forebay.runtime.state import State

_WRITTEN = 50
_MOST = 3 * _WRITTEN
"""The project's, the model's, and those given with a release."""
Metrics = Mapping[str, float]
Compared = Literal["candidate", "canary", "production"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One metric and its bound; with `compared_with` the bound is added to that version's own value."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None
    compared_with: Compared | None = None

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.at_least, self.at_most) if bound is not None]
        if len(bounds) != 1 or not math.isfinite(bounds[0]):
            raise ValueError(f"rule for {self.metric!r}: write either at_least or at_most, with a finite number")

    @property
    def words(self) -> str:
        sign, bound = ("<=", self.at_most) if self.at_least is None else (">=", self.at_least)
        if self.compared_with is None:
            return f"{sign} {bound:g}"
        return f"{sign} {self.compared_with} {'-' if (bound or 0) < 0 else '+'} {abs(bound or 0):g}"


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A gate: every rule has to hold."""

    rules: tuple[Rule, ...] = ()
    evidence: Demanded | None = None
    """What the evaluation must come from at least."""

    def __post_init__(self) -> None:
        if len(self.rules) > _MOST or not (self.rules or self.evidence):
            raise ValueError(f"a policy has 1 to {_MOST} rules, not {len(self.rules)}")


def policy_of(value: object) -> Policy:
    """Read a policy as a person wrote it; raises ValueError with what does not fit."""
    try:
        policy = msgspec.convert(value, Policy)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    if len(policy.rules) > _WRITTEN:
        raise ValueError(f"a policy has 1 to {_WRITTEN} rules, not {len(policy.rules)}")
    return policy


@dataclass(frozen=True, slots=True)
class Kept:
    """A policy as it is kept: its rules, how often it was set, and the event that said so last."""

    rules: tuple[Rule, ...]
    evidence: Demanded | None
    number: int
    reason: str
    by: str
    event: str


def kept(state: State, project: str, model: str | None, channel: str) -> Kept | None:
    """What a channel asks for, of one model or (None) of every one; None when nobody ever set it."""
    node = get(state, project, gate_id(model, channel))
    if node is None:
        return None
    last = max(node.facts, key=lambda fact: (_number(fact), fact.event))
    rules = msgspec.convert(last.values["rules"], tuple[Rule, ...])
    return Kept(rules, last.values.get("evidence"), _number(last), last.values["reason"], last.values["by"], last.event)


def _number(fact: Fact) -> int:
    return int(fact.values["number"])


def in_force(state: State, project: str, model: str, channel: str, given: Policy | None) -> Policy | None:
    """Every rule that a release must meet: the project's, the model's, and those given with it."""
    stored = [one for scope in (None, model) if (one := kept(state, project, scope, channel)) is not None]
    rules = [rule for one in stored for rule in one.rules]
    rules += [rule for rule in (given.rules if given is not None else ()) if rule not in rules]
    evidence = strictest([*(one.evidence for one in stored), None if given is None else given.evidence])
    return Policy(rules=tuple(rules), evidence=evidence) if rules or evidence else None


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule as a person wrote it, and as a sentence."""
    bound = {"at_least": rule.at_least, "at_most": rule.at_most, "compared_with": rule.compared_with}
    written = {name: value for name, value in bound.items() if value is not None}
    return {"metric": rule.metric, **written, "words": rule.words}


def check(policy: Policy, evaluation: Node | None, live: Mapping[str, Metrics | None]) -> tuple[GateResult, ...]:
    """Every rule with what it found. `live` holds the metrics of what each channel names; None: nothing is there."""
    found = [_check(rule, shown(evaluation, "metrics", {}), live) for rule in policy.rules]
    if policy.evidence is not None:
        found.insert(0, check_evidence(evaluation, policy.evidence, (rule.metric for rule in policy.rules)))
    return tuple(found)


def _check(rule: Rule, metrics: Metrics, live: Mapping[str, Metrics | None]) -> GateResult:
    found = metrics.get(rule.metric)
    bound = rule.at_least if rule.at_least is not None else rule.at_most
    needed: float | None = bound
    if rule.compared_with is not None:
        other = live.get(rule.compared_with)
        if other is None and found is not None:
            return _result(rule, found, None, passed=True, why=f"nothing is in {rule.compared_with} to compare with")
        base = None if other is None else other.get(rule.metric)
        needed = None if base is None or bound is None else base + bound
        if base is None:
            why = f"what {rule.compared_with} names has no {rule.metric}, so it cannot be compared"
            return _result(rule, found, None, passed=False, why=why)
    if found is None or needed is None:
        return _result(rule, None, needed, passed=False, why=f"the evaluation has no {rule.metric}")
    passed = found >= needed if rule.at_least is not None else found <= needed
    why = f"{rule.metric} is {found:g}, {'at least' if rule.at_least is not None else 'at most'} {needed:g} is needed"
    return _result(rule, found, needed, passed=passed, why=why)


def _result(rule: Rule, found: float | None, needed: float | None, *, passed: bool, why: str) -> GateResult:
    return GateResult(metric=rule.metric, rule=rule.words, found=found, needed=needed, passed=passed, message=why)


def failed(results: Iterable[GateResult]) -> Sequence[GateResult]:
    return [one for one in results if not one.passed]
