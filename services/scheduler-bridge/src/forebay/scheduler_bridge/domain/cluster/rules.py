"""Verdict rules of the Kubernetes backend: those of every backend, and what the cluster's objects say.

The objects are judged by `domain/kubernetes`, the same code that `forebay diagnose`
runs offline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from forebay.contracts.reasons import Layer, Reason
from forebay.contracts.v1.jobs import Verdict
from forebay.scheduler_bridge.domain.cluster.past_webhook import is_stopped
from forebay.scheduler_bridge.domain.cluster.patience import Patience, aged, judge_loop
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import Diagnosis, diagnose
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects
from forebay.scheduler_bridge.domain.verdict import Rule, Situation, judge
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES

_ONLY_LOCAL = frozenset({"local-queue", "process-recovering", "preflight", "process-ended"})
_EVEN_WHILE_RUNNING = frozenset(
    {
        *(Reason.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD, Reason.CONTRADICTORY, Reason.MOUNT_LOST),
        *(Reason.DEVICE_FAILED, Reason.HELPER_FAILED, Reason.HELPER_STILL_RUNS, Reason.BEING_DELETED),
    }
)
"""Said of a job whose process is believed to run: it may not."""


@dataclass(frozen=True, kw_only=True)
class ClusterSituation(Situation):
    """With what the objects say, found out once for all rules."""

    patience: Patience = field(default_factory=Patience)

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        job = self.job
        if not self.objects or (job.gate != "open" and not job.attempts):
            return None
        facts = facts_from_objects([item.object for item in self.objects], of_one_job=True)
        return diagnose(facts, self.now)


def _diagnosis(situation: Situation) -> Diagnosis | None:
    return situation.diagnosis if isinstance(situation, ClusterSituation) else None


def _trouble(situation: Situation, _: str) -> Verdict | None:
    found = _diagnosis(situation)
    return _verdict(situation, found) if found is not None and found.reason in _EVEN_WHILE_RUNNING else None


def _cluster(situation: Situation, _: str) -> Verdict | None:
    found = _diagnosis(situation)
    return None if found is None else _verdict(situation, found)


def _verdict(situation: Situation, found: Diagnosis) -> Verdict:
    """With the events that carry the raw objects; the rule named is the one that judged the objects."""
    names = {name for message in found.evidence for name in message.object.split()}
    proof = [item.event for item in situation.objects if _name(item.object) in names]
    verdict = found.verdict(tuple(proof or [item.event for item in situation.objects[-1:]]))
    return aged(verdict, situation, _patience(situation))


def _patience(situation: Situation) -> Patience:
    return situation.patience if isinstance(situation, ClusterSituation) else Patience()


def _loop(situation: Situation, rule: str) -> Verdict | None:
    return judge_loop(situation, _patience(situation), rule)


def _name(item: dict[str, object]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""


def _not_seen(situation: Situation, rule: str) -> Verdict | None:
    """The gate is open, and nothing of the job was seen on the cluster yet."""
    job = situation.job
    if job.gate != "open":
        return None
    return Verdict(
        layer=Layer.JOB_OBJECT,
        cause=Reason.NOT_EVALUATED_YET,
        message="its Job object has not been seen on the cluster yet",
        since=job.gate_changed_at or situation.now,
        next_action="nothing: it goes on by itself; if it stays, see that the bridge reaches the cluster",
        rule=rule,
    )


_RULES: tuple[Rule, ...] = (
    *(rule for rule in LOCAL_RULES if rule.name not in _ONLY_LOCAL),
    Rule(name="requeue-loop", version=1, rank=4, judge=_loop),
    Rule(name="cluster-trouble", version=2, rank=5, judge=_trouble),
    Rule(name="cluster", version=1, rank=30, judge=_cluster),
    Rule(name="cluster-unseen", version=1, rank=45, judge=_not_seen),
)
_UNGATED = tuple(rule for rule in _RULES if rule.name != "gate-shut")


def _stopped(situation: Situation, rule: str) -> Verdict:
    """It held nothing yet, so it was stopped; its pods cannot be made to get their data any more."""
    job = situation.job
    message = "it was applied while Forebay's webhook was away, and was stopped before it started without its data"
    if job.applied is not None and job.applied.problem is not None:
        message += f"; its annotations could not be followed either: {job.applied.problem}"
    name = job.applied.name if job.applied is not None else job.id
    found = judge(situation, _UNGATED)
    return Verdict(
        layer=Layer.JOB_OBJECT,
        cause=Reason.WEBHOOK_UNAVAILABLE,
        message=message,
        since=found.since,
        next_action=f"apply it again: kubectl delete job {name}, then kubectl apply -f with its file",
        evidence=found.evidence,
        rule=rule,
    )


def _past_the_webhook(situation: Situation, rule: str) -> Verdict | None:
    """An annotated Job that came while the webhook was away: where it is, and what it does without."""
    job = situation.job
    if job.held_by_us or job.terminal is not None:
        return None
    if is_stopped(item.object for item in situation.objects):
        return _stopped(situation, rule)
    found = judge(situation, _UNGATED)
    said = "it was applied while Forebay's webhook was away, so no gate holds it until its data is ready, and nothing"
    said += " checks its pods or tells them where to resume"
    if job.applied is not None and job.applied.problem is not None:
        said += f"; its annotations could not be followed either: {job.applied.problem}"
    again = "delete it and apply it again to have it wait for its data"
    return found.model_copy(
        update={"message": f"{found.message}; {said}", "next_action": f"{found.next_action}; {again}"}
    )


CLUSTER_RULES: tuple[Rule, ...] = (*_RULES, Rule(name="past-the-webhook", version=2, rank=1, judge=_past_the_webhook))
