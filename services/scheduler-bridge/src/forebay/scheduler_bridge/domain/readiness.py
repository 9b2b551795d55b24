"""The five readiness conditions as pure functions of what ingest, cache and the queue have said.

Each answers with a status, a reason code, a sentence with numbers and the events
that prove it. `decide.py` announces a change of the answer; `questions.py` shows
the answer of this moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from forebay.contracts.reasons import SENTENCES, Reason
from forebay.contracts.reasons import Condition as ConditionType
from forebay.contracts.v1.jobs import ConditionState
from forebay.scheduler_bridge.domain.amounts import Amount, asked_by, quantities, show_bytes, show_percent
from forebay.scheduler_bridge.domain.documents import EVERYWHERE, Condition, Job, Objection, Plan, place

Answer = tuple[tuple[str, str, str], ...]
"""(type, status, reason) of each condition: what a change is judged by."""

GATE_FAILURES = frozenset({Reason.COLUMN_UNKNOWN})
"""A pinned version never changes, so a job that cannot read it can never run."""
_NAMED = 5
_ACCEPTANCE = frozenset({Reason.DATASET_UNTAGGED.value, Reason.DATASET_WITHDRAWN.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition before "since when" is known."""

    status: str
    reason: Reason
    message: str
    evidence: tuple[str, ...] = ()
    at: datetime | None = None
    """When the fact behind it was stored; None: when it is first asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All that the conditions depend on."""

    job: Job
    plans: Mapping[str, Plan]
    """By the key of `Plan`."""
    total: Amount | None
    """What jobs may hold together; None where a cluster decides what fits."""

    @property
    def has_inputs(self) -> bool:
        return bool(self.job.spec.get("datasets") or self.job.spec.get("models"))


def assess(known: Known, now: datetime) -> tuple[Condition, ...]:
    """All conditions in their fixed order; `since` moves only when status or reason changes."""
    before = {condition.type: condition for condition in known.job.conditions}
    found = []
    for kind, judge in _JUDGES.items():
        finding = judge(known)
        old = before.get(kind.value)
        same = old is not None and (old.status, old.reason) == (finding.status, finding.reason.value)
        since = old.since if old is not None and same else finding.at or now
        found.append(
            Condition(
                type=kind.value,
                status=finding.status,
                reason=finding.reason.value,
                message=finding.message,
                since=since,
                evidence=finding.evidence,
            )
        )
    return tuple(found)


def answer(conditions: tuple[Condition, ...]) -> Answer:
    return tuple((item.type, item.status, item.reason) for item in conditions)


def is_ready(conditions: tuple[Condition, ...]) -> bool:
    return all(item.status == "True" for item in conditions)


def announced(conditions: tuple[Condition, ...]) -> tuple[ConditionState, ...]:
    """The conditions as an event carries them."""
    return tuple(
        ConditionState.model_validate(
            {
                "type": item.type,
                "status": item.status,
                "reason": item.reason,
                "message": item.message,
                "since": item.since,
                "evidence": item.evidence,
            }
        )
        for item in conditions
    )


def _nothing() -> Finding:
    return Finding(status="True", reason=Reason.NOTHING_NEEDED, message="the job declares no dataset and no model")


def _unanswered(message: str) -> Finding:
    return Finding(status="Unknown", reason=Reason.NOT_EVALUATED_YET, message=message)


def _objects(objections: list[Objection]) -> Finding:
    """Several inputs may be refused: the first decides the code, all are told."""
    ordered = sorted(objections, key=lambda item: (not item.permanent, item.at, item.input))
    return Finding(
        status="False",
        reason=Reason(ordered[0].reason),
        message="; ".join(f"{item.input}: {item.message}" for item in ordered),
        evidence=tuple(item.event for item in ordered),
        at=ordered[0].at,
    )


def _resolved(known: Known) -> Finding:
    if not known.has_inputs:
        return _nothing()
    lease = known.job.lease
    against = [item for item in lease.objections.values() if item.reason not in _ACCEPTANCE]
    if lease.state in {"granted", "released"}:
        against = [item for item in against if item.reason == Reason.DATASET_CHANGED.value]
    else:
        # A name without any accepted version has not resolved, whatever ingest calls it.
        against = list(lease.objections.values())
    if against:
        return _objects(against)
    if not lease.inputs:
        return _unanswered("ingest has not answered yet")
    pinned = ", ".join(
        item.label + (f" ({show_bytes(size)})" if (size := item.body.get("bytes")) else "") for item in lease.inputs
    )
    return Finding(
        status="True",
        reason=Reason.DATASET_RESOLVED,
        message=f"pinned to {pinned}",
        evidence=_lease_events(known),
        at=lease.at,
    )


def _accepted(known: Known) -> Finding:
    if not known.has_inputs:
        return _nothing()
    lease = known.job.lease
    if not lease.inputs:
        return _unanswered("follows when every input resolves")
    against = [item for item in lease.objections.values() if item.reason != Reason.DATASET_CHANGED.value]
    if against:
        return _objects(against)
    return Finding(
        status="True",
        reason=Reason.DATASET_ACCEPTED,
        message="accepted: " + ", ".join(item.label for item in lease.inputs),
        evidence=_lease_events(known),
        at=lease.at,
    )


def _leased(known: Known) -> Finding:
    if not known.has_inputs:
        return _nothing()
    lease = known.job.lease
    if lease.state == "granted":
        return Finding(
            status="True",
            reason=Reason.LEASED,
            message=f"{len(lease.inputs)} input(s) are protected from clean-up for this job",
            evidence=_lease_events(known),
            at=lease.at,
        )
    if lease.state == "released":
        return Finding(
            status="False", reason=Reason.LEASE_RELEASED, message=SENTENCES[Reason.LEASE_RELEASED], at=lease.at
        )
    return _unanswered("a lease follows when every input resolves")


def _lease_events(known: Known) -> tuple[str, ...]:
    return (known.job.lease.event,) if known.job.lease.event else ()


def _warm(known: Known) -> Finding:
    if not known.has_inputs:
        return _nothing()
    job = known.job
    if not job.lease.inputs:
        return _unanswered("the cache plans when every input is resolved")
    if job.unplannable:
        return _objects(list(job.unplannable.values()))
    plans = [plan for key in job.plans if (plan := known.plans.get(place(job.project, key))) is not None]
    broken = [plan for plan in plans if plan.state in {"lost", "failed"}]
    if broken:
        return _plans_finding("False", broken, "; ".join(f"{_name(plan)}: {plan.message}" for plan in broken))
    return _warming(job, plans)


def _warming(job: Job, plans: list[Plan]) -> Finding:
    """Every input planned, then every planned byte verified."""
    total = sum(plan.total_bytes for plan in plans)
    missing = unplanned(job, plans)
    if missing:
        planned = f"; {show_bytes(total)} planned so far" if plans else ""
        message = f"working out the bytes of {', '.join(missing)}{planned}"
        return Finding(status="Unknown", reason=Reason.PLANNING, message=message, at=job.lease.at)
    cold = [plan for plan in plans if plan.state != "ready"]
    if cold:
        verified = sum(plan.total_bytes if plan.state == "ready" else plan.verified_bytes for plan in plans)
        said = "; ".join(plan.message for plan in cold if plan.message)
        message = f"{show_percent(verified, total)} of {show_bytes(total)} is warm" + (f" ({said})" if said else "")
        return _plans_finding("False", cold, message)
    nodes = warm_nodes(plans)
    if nodes is not None and not nodes:
        apart = "; ".join(f"{_name(plan)} is warm on {_listed(plan.warm_on)}" for plan in plans)
        message = f"no node has all of {show_bytes(total)} warm: {apart}"
        return Finding(
            status="False",
            reason=Reason.CACHE_PARTIAL,
            message=message,
            evidence=tuple(plan.event for plan in plans),
            at=max(plan.at for plan in plans),
        )
    where = ", ".join(sorted({plan.message for plan in plans}))
    on = f" on {_listed(nodes)}" if nodes else ""
    return _plans_finding("True", plans, f"{show_bytes(total)} {where}{on}")


def warm_nodes(plans: Iterable[Plan]) -> frozenset[str] | None:
    """The nodes whose own caches hold every plan; None: none is bound to nodes, since every node reads the same cache.

    One is enough: preference, not a promise, brings the pods there.
    """
    common: frozenset[str] | None = None
    for plan in plans:
        if EVERYWHERE not in plan.warm_on:
            common = plan.warm_on if common is None else common & plan.warm_on
    return common


def _listed(nodes: Iterable[str]) -> str:
    """A few names; of a long list how many there are."""
    names = sorted(name or "every node" for name in nodes)
    return (
        ", ".join(names)
        if len(names) <= _NAMED
        else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more nodes"
    )


def unplanned(job: Job, plans: list[Plan]) -> list[str]:
    """Pinned inputs for which no plan exists yet; a version read in two ways needs two plans, or one that has both."""
    missing = []
    for label in sorted({item.label for item in job.lease.inputs}):
        same = [plan for plan in plans if _name(plan) == label]
        wanted = {(item.columns, str(item.body.get("episodes"))) for item in job.lease.inputs if item.label == label}
        if len(wanted) == 1:
            missing += [] if same else [label]
            continue
        left = list(same)
        for columns, _ in sorted(wanted):
            exact = next((plan for plan in left if set(plan.columns) == set(columns)), None)
            wider = any(columns and (not plan.columns or set(columns) < set(plan.columns)) for plan in same)
            if exact is not None:
                left.remove(exact)
            elif not wider:
                missing.append(f"{label} ({', '.join(columns) or 'every column'})")
    return missing


def _name(plan: Plan) -> str:
    return f"{plan.name}@v{plan.number}"


def _plans_finding(status: str, plans: list[Plan], message: str) -> Finding:
    latest = max(plans, key=lambda plan: (plan.at, plan.id))
    return Finding(
        status=status,
        reason=Reason(plans[0].reason),
        message=message,
        evidence=tuple(plan.event for plan in plans),
        at=latest.at,
    )


def _valid(known: Known) -> Finding:
    need = asked_by(known.job.spec)
    if known.total is None:
        return Finding(status="True", reason=Reason.FITS, message=f"asks for {need.show_all()}; the cluster decides")
    lacking = need.exceeding(known.total)
    if lacking:
        numbers = ", ".join(
            f"{need.show(item.resource)} asked, {known.total.show(item.resource)} in all"
            for item in quantities(lacking, need=need, free=known.total, total=known.total)
        )
        return Finding(status="False", reason=Reason.NEVER_FITS, message=f"larger than this machine: {numbers}")
    return Finding(status="True", reason=Reason.FITS, message=f"{need.show_all()} fit this machine")


_JUDGES: dict[ConditionType, Callable[[Known], Finding]] = {
    ConditionType.DATASET_RESOLVED: _resolved,
    ConditionType.DATASET_ACCEPTED: _accepted,
    ConditionType.DATASET_LEASED: _leased,
    ConditionType.CACHE_WARM: _warm,
    ConditionType.REQUEST_VALID: _valid,
}
