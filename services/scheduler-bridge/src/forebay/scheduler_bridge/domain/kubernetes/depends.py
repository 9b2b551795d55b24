"""What a pod lost just before it fell: its mount, a device of its node, the node itself. That comes before its exit code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.containers import containers_of
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    items_at,
    moment,
    name_of,
    namespace_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.mounts import mount_pods
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition, read_ended, read_event
from forebay.scheduler_bridge.domain.kubernetes.subjects import is_mount_pod
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, finding

RULE = "lost-before-it-fell@1"
_BEFORE, _AFTER = timedelta(minutes=3), timedelta(seconds=30)
"""A process may notice a lost mount at once or at its next read, and clocks differ a little."""
_DEVICE = re.compile(r"gpu|xid|nvlink|nvidia|\becc\b|accelerator|infiniband|\brdma\b|device", re.IGNORECASE)


def fell(pod: Object) -> tuple[datetime, str, int] | None:
    """(when, which container, exit code) the training of a pod fell; None when it has not, or ended well."""
    trainer = next((one for one in containers_of(pod) if one.trains), None)
    ended = trainer.ended if trainer is not None and not trainer.runs else None
    code, at = part(ended, "exitCode"), moment(text_at(ended, "finishedAt"))
    if trainer is None or at is None or not isinstance(code, int) or code == 0:
        return None
    return at, trainer.name, code


def look_at(facts: Facts, pod: Object) -> Iterator[Seen]:
    """Everything that the pod needed and that was lost just before it fell."""
    end = None if is_mount_pod(pod) else fell(pod)
    if end is None:
        return
    at, name, code = end
    then = f"container {name} ended with exit code {code}"
    found = list(_mounts(facts, pod, at, then))
    node = facts.find("Node", "", text_at(pod, "spec", "nodeName")) if text_at(pod, "spec", "nodeName") else None
    if node is not None:
        found += _devices(facts, node, at, then)
    own = [read_ended(one.ended, f"container {one.name}") for one in containers_of(pod) if one.trains and one.ended]
    for seen in found:
        proof = (*(message for said in own for message in said.evidence), *seen.evidence)
        yield Seen(finding=seen.finding, since=seen.since, evidence=proof)


def _near(when: datetime | None, end: datetime) -> bool:
    return when is not None and -_AFTER <= end - when <= _BEFORE


def _seconds(when: datetime, end: datetime) -> str:
    seconds = int((end - when).total_seconds())
    return f"{seconds} s before" if seconds > 0 else "as"


def _mounts(facts: Facts, pod: Object, at: datetime, then: str) -> Iterator[Seen]:
    for claim, mount in mount_pods(facts, pod):
        for status in items_at(mount, "status", "containerStatuses"):
            for state in (part(status, "state", "terminated"), part(status, "lastState", "terminated")):
                when = moment(text_at(state, "finishedAt"))
                if state is None or when is None or not _near(when, at):
                    continue
                about = f"mount pod {namespace_of(mount)}/{name_of(mount)}"
                why = read_ended(state, about)
                told = why.finding.sentence
                limit = next((one.memory for one in containers_of(mount) if one.name == text_at(status, "name")), "")
                if why.finding.cause is Cause.OOM and limit:
                    told = f"it used more memory than its limit of {limit} (OOMKilled)"
                back = part(status, "state", "running") is not None
                again = " and was started again" if back else ""
                lost = "; a mount that was open does not come back by itself" if back else ""
                yield Seen(
                    finding=finding(
                        Cause.VOLUME_MOUNT,
                        f"{about}, which serves the claim {claim}, ended{again} {_seconds(when, at)} {then}: {told}{lost}",
                        f"{RULE}/{why.finding.rule}",
                        reason=Reason.MOUNT_LOST,
                        layer=Layer.VOLUME,
                        next_action=f"recreate the pod, or submit the job again; for its mount pod: {_mending(why)}",
                        where=text_at(pod, "spec", "nodeName") or None,
                        weight=9,
                    ),
                    since=when,
                    evidence=why.evidence,
                )


def _mending(why: Seen) -> str:
    return "give it more memory" if why.finding.cause is Cause.OOM else why.finding.next_action


def _devices(facts: Facts, node: Object, at: datetime, then: str) -> Iterator[Seen]:
    """Events and conditions of the node about its devices."""
    name = name_of(node)
    told = [(event.at, read_event(event), event.message) for event in facts.about(node)]
    told += [
        (
            moment(one.get("lastTransitionTime")),
            read_condition(one, f"Node {name}"),
            f"{text_at(one, 'type')}: {text_at(one, 'message')}",
        )
        for one in items_at(node, "status", "conditions")
        if one.get("status") in ("True", True) and _DEVICE.search(text_at(one, "type"))
    ]
    for when, seen, text in told:
        if (
            when is None
            or not _near(when, at)
            or not (seen.finding.reason is Reason.DEVICE_FAILED or _DEVICE.search(text))
        ):
            continue
        if seen.finding.cause is Cause.OOM:
            continue
        yield Seen(
            finding=finding(
                Cause.NODE_LOST,
                f"a device of node {name} failed {_seconds(when, at)} {then}: {text}",
                f"{RULE}/{seen.finding.rule}",
                reason=Reason.DEVICE_FAILED,
                next_action=f"drain {name} and have its GPUs checked; the job can be tried on another node",
                where=name,
                weight=13,
            ),
            since=when,
            evidence=seen.evidence,
        )
