"""The verdict on one job from its objects: findings about everything that belongs to it, and the most decisive stands.

`diagnose(facts, now)` is what the live bridge calls for one job, `diagnose_all` what `forebay diagnose` calls for a file.
Pure: the same facts and the same time give the same verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.contracts.v1.jobs import Verdict
from forebay.scheduler_bridge.domain.kubernetes.facts import Facts
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen
from forebay.scheduler_bridge.domain.kubernetes.situations import SITUATION_RULES
from forebay.scheduler_bridge.domain.kubernetes.subjects import Subject, subjects
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Fits, Message
from forebay.scheduler_bridge.domain.masking import mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The one reason for one subject, with the raw texts that prove it (credentials masked)."""

    subject: str
    cause: Cause
    reason: Reason
    layer: Layer
    sentence: str
    next_action: str
    rule: str
    since: datetime
    need: str | None = None
    have: str | None = None
    where: str | None = None
    fits: Fits = "unknown"
    evidence: tuple[Message, ...] = ()

    def verdict(self, evidence: tuple[str, ...] = ()) -> Verdict:
        """As the contracts say it. `evidence`: ids of the events that carry the raw facts."""
        return Verdict(
            layer=self.layer,
            cause=self.reason,
            message=self.sentence,
            need=self.need,
            have=self.have,
            where=self.where,
            fits=self.fits,
            since=self.since,
            evidence=evidence,
            next_action=self.next_action,
            rule=self.rule,
        )


def diagnose(facts: Facts, now: datetime) -> Diagnosis:
    """The verdict on the job that the facts are about: the first subject in them."""
    found = subjects(facts)
    return judge(found[0] if found else Subject(facts=facts, label="nothing"), now)


def diagnose_all(facts: Facts, now: datetime) -> tuple[Diagnosis, ...]:
    """A verdict on every job, lone workload and lone pod, in the order in which the first object of each stood."""
    return tuple(judge(subject, now) for subject in sorted(subjects(facts), key=_place))


def _place(subject: Subject) -> int:
    places = subject.facts.places
    mine = (
        *subject.jobs,
        *subject.workloads,
        *subject.pods,
        *subject.groups,
        *((subject.root,) if subject.root else ()),
    )
    return min((places[id(one)] for one in mine if id(one) in places), default=len(places))


def _in_namespace(action: str, namespace: str) -> str:
    """The namespace by its name, where it is known."""
    return action.replace("the job's namespace", f"the namespace {namespace}") if namespace else action


def judge(subject: Subject, now: datetime) -> Diagnosis:
    """All rules are asked; of their answers the most decisive stands, never the most recent."""
    answers: list[Seen] = []
    for rule in SITUATION_RULES:
        answers += rule.judge(subject, now, rule.id)
    best = min(answers, key=lambda seen: (seen.finding.weight, -(seen.since or now).timestamp()))
    found = best.finding
    return Diagnosis(
        subject=subject.label,
        cause=found.cause,
        reason=found.reason,
        layer=found.layer,
        sentence=mask(found.sentence),
        next_action=mask(_in_namespace(found.next_action, subject.namespace)),
        rule=found.rule,
        since=best.since or now,
        need=mask(found.need) if found.need else None,
        have=mask(found.have) if found.have else None,
        where=found.where,
        fits=found.fits,
        evidence=tuple(
            Message(
                where=one.where,
                reason=one.reason,
                text=mask(one.text),
                exit_code=one.exit_code,
                object=one.object,
                source=one.source,
            )
            for one in best.evidence
        ),
    )
