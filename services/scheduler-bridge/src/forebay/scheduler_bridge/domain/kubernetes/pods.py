"""What stands in the way of one pod: its node, its end, its containers, its place, and what was said about it.

Exit codes never stand alone: an eviction, a disruption or a lost node that is on record for the pod
explains a 137 better than the number does. Events count only for the stage that the pod is in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes import autoscaler, containers, depends, injected, pinned
from forebay.scheduler_bridge.domain.kubernetes.affinity import allowed, unmet
from forebay.scheduler_bridge.domain.kubernetes.asking import requests
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    Said,
    condition,
    items_at,
    name_of,
    namespace_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.histogram import Kind, parse
from forebay.scheduler_bridge.domain.kubernetes.mounts import (
    blocked_mount,
    claim_of,
    fallen_mount,
    mount_pods,
    unbound_claim,
)
from forebay.scheduler_bridge.domain.kubernetes.placement import room, scarce
from forebay.scheduler_bridge.domain.kubernetes.pod_node import ended_at, on_its_node
from forebay.scheduler_bridge.domain.kubernetes.quantities import is_accelerator, show
from forebay.scheduler_bridge.domain.kubernetes.scheduling import OTHERS, dominant
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.subjects import is_mount_pod
from forebay.scheduler_bridge.domain.kubernetes.taints import by_taint, named, with_names
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, Message, finding

_SILENT = frozenset(
    [
        "Killing",
        "Scheduled",
        "FailedScheduling",
        "Pulled",
        "Created",
        "Started",
        "Pulling",
        "SuccessfulAttachVolume",
        "SuccessfulMountVolume",
        "NotTriggerScaleUp",
        "TriggeredScaleUp",
        "Nominated",
        "SandboxChanged",
        "Unhealthy",
        "TaintManagerEviction",
    ]
)
_PAST_MOUNT = frozenset({"Pulling", "Pulled", "Created", "Started"})
_OF_MOUNT = frozenset({Cause.VOLUME_MOUNT, Cause.VOLUME_ATTACH})
_PROBE = re.compile(r"(?:failed )?(?:liveness|startup) probe", re.IGNORECASE)
"""A probe that ends containers, unlike the one that only says ready."""


def runs(pod: Object) -> bool:
    """The main containers run."""
    statuses = items_at(pod, "status", "containerStatuses")
    if text_at(pod, "status", "phase") != "Running" or text_at(pod, "metadata", "deletionTimestamp"):
        return False
    return all(part(status, "state", "running") is not None or status.get("ready") for status in statuses)


def ended_well(pod: Object) -> bool:
    return text_at(pod, "status", "phase") == "Succeeded"


def best(facts: Facts, pod: Object, now: datetime) -> Seen | None:
    """The most decisive finding about a pod; None when nothing stands in its way."""
    found = list(look_at(facts, pod, now))
    if not found:
        return None
    first = min(found, key=lambda seen: seen.finding.weight)
    node, phase = text_at(pod, "spec", "nodeName"), text_at(pod, "status", "phase")
    held = [f"{show(value)} {name}" for name, value in requests(pod).items() if is_accelerator(name)]
    trains = any(one.trains and one.runs for one in containers.containers_of(pod))
    if node and phase == "Pending" and held and not trains and not is_mount_pod(pod):
        return first.but(sentence=f"{first.finding.sentence}; meanwhile the pod holds {', '.join(held)} on {node}")
    return first


def look_at(facts: Facts, pod: Object, now: datetime) -> Iterator[Seen]:
    """Everything found about a pod."""
    if ended_well(pod):
        return
    node = text_at(pod, "spec", "nodeName")
    found = [*_ended(facts, pod), *on_its_node(facts, pod, now), *depends.look_at(facts, pod)]
    if runs(pod) and not found:
        found += _broken_under_it(facts, pod, now)
    else:
        found += [*containers.look_at(pod, injected.of_pod(facts, pod)), *_said(facts, pod)]
        if not node and text_at(pod, "status", "phase") in {"Pending", "Failed", ""}:
            found += _place(facts, pod)
        elif not runs(pod):
            found += _mounts(facts, pod, found, now)
    for seen in found:
        placed = _with_node(seen, node) if node else seen
        yield _with_pull_secret(facts, pod, placed) if seen.finding.cause is Cause.IMAGE else placed


def _with_node(seen: Seen, node: str) -> Seen:
    """The same with the node by its name."""
    said = seen.finding.sentence
    if "its node" in said and node not in said:
        said = said.replace("its node", f"its node {node}", 1)
    return seen.but(sentence=said, where=seen.finding.where or node)


_UNREADABLE = re.compile(r"unable to retrieve some image pull secrets \((?P<names>[^)]+)\)", re.IGNORECASE)


def _with_pull_secret(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """The secret with which the image would be pulled, when the registry refuses."""
    if seen.finding.reason is not Reason.IMAGE_UNAUTHORIZED:
        return seen
    namespace = namespace_of(pod)
    missing = next(
        (match for event in reversed(facts.about(pod)) if (match := _UNREADABLE.search(event.message)) is not None),
        None,
    )
    if missing is not None:
        names = missing.group("names")
        said = f"the pull secret {names} is missing in the namespace {namespace} or cannot be read there, so the registry refuses the image"
        return seen.but(
            sentence=said,
            need=names,
            next_action=f"create the secret {names} in the namespace {namespace}, or correct its name in the job",
            weight=min(seen.finding.weight, 14),
        )
    used = [text_at(one, "name") for one in items_at(pod, "spec", "imagePullSecrets")]
    told = f"; it was asked with the pull secret {', '.join(used)}" if used else "; the pod names no pull secret"
    return seen.but(sentence=f"{seen.finding.sentence}{told}")


def _ended(facts: Facts, pod: Object) -> Iterator[Seen]:
    """What the pod itself says about its end."""
    reason, text = text_at(pod, "status", "reason"), text_at(pod, "status", "message")
    if reason or text:
        seen = read(Message(where="condition", reason=reason, text=text, object="pod.status"), None)
        yield Seen(finding=seen.finding, since=ended_at(pod), evidence=seen.evidence)
    target = condition(pod, "DisruptionTarget")
    if target is not None and target.get("status") in ("True", True):
        seen = _by_whom(facts, pod, by_taint(facts, pod, read_condition(target, "Pod")))
        yield seen.but(weight=min(seen.finding.weight, 14))


_PREEMPTOR = re.compile(r"preempted by (?:pod )?(?P<uid>[0-9a-f]{8}-[0-9a-f\-]{27,})", re.IGNORECASE)


def _by_whom(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """A preemption with the pod that took the place, when that is among the objects."""
    if seen.finding.cause is not Cause.PREEMPTED:
        return seen
    uids = [match.group("uid") for event in facts.about(pod) if (match := _PREEMPTOR.search(event.message))]
    found = facts.by_uid(uids[-1]) if uids else None
    return seen.but(sentence=f"{seen.finding.sentence}: pod {name_of(found)} took its place") if found else seen


_ECHO = re.compile(r"Error: [A-Z]\w+")
"""An event that only repeats the reason of a container's state: `Error: ImagePullBackOff`."""


def _said(facts: Facts, pod: Object) -> Iterator[Seen]:
    """Events that still hold: none once the main containers run, no trouble with mounts once an image was pulled."""
    if runs(pod):
        return
    bound = bool(text_at(pod, "spec", "nodeName"))
    events = facts.about(pod)
    moved_on = max((event.at for event in events if event.reason in _PAST_MOUNT and event.at), default=None)
    for event in events:
        if _ECHO.fullmatch(event.message):
            continue  # the container's own state says the same with its message
        if (
            event.reason in _SILENT
            and not _PROBE.search(event.message)
            and not (event.reason == "FailedScheduling" and not bound and not _unscheduled(pod))
        ):
            continue
        seen = read_event(event)
        if seen.finding.cause in _OF_MOUNT and moved_on is not None and event.at is not None and event.at < moved_on:
            continue
        if seen.finding.cause in _OF_MOUNT:
            seen = claim_of(facts, pod, seen)
        yield _of_container(pod, event, seen)


_FIELD = re.compile(r"(?:init)?containers\{([^}]+)\}", re.IGNORECASE)


def _of_container(pod: Object, event: Said, seen: Seen) -> Seen:
    """The same with the container that the event is about, when its probe ends it again and again."""
    if not _PROBE.search(event.message):
        return seen
    field = _FIELD.search(event.field)
    told = re.match(r"container (\S+) failed", event.message, re.IGNORECASE)
    name = field.group(1) if field else told.group(1) if told else ""
    here = containers.containers_of(pod)
    one = next((one for one in here if one.name == name), None) or containers.the_unready(here)
    if one is None:
        return seen
    times = f"; it was started again {one.restarts} times" if one.restarts > 1 else ""
    said = seen.finding.sentence.replace("of the container fails", f"of {one.label} fails")
    return containers.beside(seen.but(sentence=f"{said}{times}"), one, containers.the_trainer(here))


def _unscheduled(pod: Object) -> Object | None:
    found = condition(pod, "PodScheduled")
    return found if found is not None and found.get("status") in ("False", False) else None


def _place(facts: Facts, pod: Object) -> Iterator[Seen]:
    """Why the scheduler finds no node, with the numbers of the nodes and what the autoscaler says."""
    said = _unscheduled(pod)
    if said is None:
        if not facts.about(pod):
            yield Seen(
                finding=finding(
                    Cause.OTHER,
                    f"pod {name_of(pod)} was made, and no scheduler has looked at it yet",
                    "pod-not-evaluated@1",
                    reason=Reason.NOT_EVALUATED_YET,
                    layer=Layer.NOT_EVALUATED,
                    next_action=f"{LATER}; if it stays, see that a scheduler of the name in the pod's schedulerName runs",
                    weight=75,
                ),
                since=containers.created(pod),
            )
        return
    seen = read_condition(said, "Pod")
    if text_at(said, "reason") == "SchedulingGated":
        yield _gated(pod, seen)
        return
    if seen.finding.cause is Cause.VOLUME_UNBOUND:
        claim = unbound_claim(facts, pod)
        if claim is not None:
            yield Seen(finding=claim.finding, since=seen.since, evidence=seen.evidence + claim.evidence)
    histogram = parse(text_at(said, "message")[:32_768])
    if histogram is not None:
        one_node = pinned.to_one_node(facts, pod, histogram, seen)
        if one_node is not None:
            yield one_node
            return
        if any(reason.kind is Kind.VOLUME_ATTACH for reason in histogram.reasons):
            seen = pinned.with_volume(facts, pod, seen)
    seen = _with_demands(facts, pod, with_names(facts.all("Node"), named(pod, facts.all("Node"), seen)))
    yield autoscaler.with_it(facts, pod, _with_numbers(facts, pod, seen))


def _gated(pod: Object, seen: Seen) -> Seen:
    """Gates by name: the queue's own says that quota is not there, another's that somebody else must act."""
    gates = [text_at(one, "name") for one in items_at(pod, "spec", "schedulingGates")]
    foreign = [gate for gate in gates if not gate.startswith(("kueue.x-k8s.io/", "kai.scheduler/"))]
    named = ", ".join(foreign or gates) or "a scheduling gate"
    return seen.but(
        sentence=f"{named} holds the pod back from the scheduler",
        layer=Layer.ADMISSION_CHECK if foreign else Layer.QUOTA,
        next_action=f"wait for the owner of {named} to remove it",
        need=named,
    )


def _with_numbers(facts: Facts, pod: Object, seen: Seen) -> Seen:
    histogram = parse(seen.evidence[0].text[:32_768])
    main = dominant(histogram) if histogram else None
    if histogram is None or main is None or seen.finding.cause not in {Cause.GPU_SHORTAGE, Cause.CPU_MEM_SHORTAGE}:
        return seen
    resource = scarce(main.text, pod)
    space = room(facts, pod, resource, histogram.nodes, main.count) if resource else None
    if space is None:
        return seen
    _, others, listed = seen.finding.sentence.partition(OTHERS)
    return seen.but(
        sentence=f"{space.sentence}{others}{listed}",
        need=space.need,
        have=space.have,
        fits="never" if space.never else "unknown",
        reason=Reason.NEVER_FITS if space.never else seen.finding.reason,
        next_action="change the request, or add a node that is large enough"
        if space.never
        else seen.finding.next_action,
    )


def _with_demands(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """What the pod demands of a node and no known one has, when that keeps it from all of them."""
    nodes = facts.all("Node")
    histogram = parse(seen.evidence[0].text[:32_768])
    main = dominant(histogram) if histogram else None
    if histogram is None or main is None or main.kind is not Kind.SELECTOR or len(nodes) < histogram.nodes:
        return seen
    demands = unmet(pod, nodes) if not allowed(pod, nodes) else ""
    if not demands:
        return seen
    said, others, listed = seen.finding.sentence.partition(OTHERS)
    return seen.but(
        sentence=f"{said}: no node has {demands}{others}{listed}",
        need=demands,
        next_action="correct the node selector or affinity of the pod, or label a node that suits it",
    )


def _mounts(facts: Facts, pod: Object, found: list[Seen], now: datetime) -> Iterator[Seen]:
    """When the pod hangs before its containers, or on a mount, the pod behind the mount is asked."""
    if is_mount_pod(pod):
        return
    hangs = any(seen.finding.cause in _OF_MOUNT or seen.finding.reason is Reason.STARTING for seen in found)
    if not hangs and items_at(pod, "status", "containerStatuses"):
        return
    lost = next((seen for seen in found if seen.finding.reason is Reason.MOUNT_LOST), None)
    behind = _blocked(facts, pod, now) or (fallen_mount(facts, pod, lost) if lost is not None else None)
    if behind is not None:
        yield behind


def _blocked(facts: Facts, pod: Object, now: datetime) -> Seen | None:
    return blocked_mount(facts, pod, [(mount, best(facts, mount, now)) for _, mount in mount_pods(facts, pod)])


def _broken_under_it(facts: Facts, pod: Object, now: datetime) -> Iterator[Seen]:
    """A pod that runs on a mount whose own pod does not: its reads hang or fail."""
    blocked = None if is_mount_pod(pod) else _blocked(facts, pod, now)
    if blocked is not None:
        yield blocked.but(sentence=f"it runs, but {blocked.finding.sentence}", reason=Reason.MOUNT_LOST)
