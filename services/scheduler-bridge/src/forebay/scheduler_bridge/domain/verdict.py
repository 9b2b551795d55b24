"""The verdict: the one reason that decides, as a pure, versioned function of a job's facts.

A rule looks at a `Situation` and answers or stays silent. Of all answers the one
with the lowest rank stands: decisiveness, never recency. The rules of the local
backend are in `verdict_local.py`; rules of another runtime are another tuple of
`Rule`, given to `judge` by the composition of that backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forebay.contracts.v1.jobs import Verdict
from forebay.scheduler_bridge.domain.documents import Condition, Job
from forebay.scheduler_bridge.domain.queue import Wait


@dataclass(frozen=True, slots=True)
class Witness:
    """An object of a cluster, trimmed and masked, and the event that put it on record."""

    event: str
    object: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a rule may look at. All of it is state; nothing is read from the world."""

    job: Job
    conditions: tuple[Condition, ...]
    """As they are now, which may be newer than what was announced."""
    now: datetime
    wait: Wait | None = None
    """The queue's answer of this moment, when the caller has asked it."""
    objects: tuple[Witness, ...] = ()
    """What was last seen of the job on a Kubernetes cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One named, versioned judgement. Raise `version` whenever it may answer differently."""

    name: str
    version: int
    rank: int
    """Lower is more decisive."""
    judge: Callable[[Situation, str], Verdict | None]

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"


def judge(situation: Situation, rules: tuple[Rule, ...]) -> Verdict:
    """The most decisive answer; `rules` must hold one that always answers."""
    for rule in sorted(rules, key=lambda item: (item.rank, item.name)):
        verdict = rule.judge(situation, rule.id)
        if verdict is not None:
            return verdict
    msg = f"no rule judges job {situation.job.id}"
    raise LookupError(msg)


def cause_of(verdict: dict[str, Any] | None) -> tuple[object, ...] | None:
    """What makes a verdict another one: its cause, not the numbers in its sentence."""
    if verdict is None:
        return None
    return tuple(verdict.get(name) for name in ("layer", "cause", "fits", "where", "need", "rule"))
