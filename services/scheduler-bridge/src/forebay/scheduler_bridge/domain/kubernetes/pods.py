"""What stands in the way of one pod: its node, its end, its containers, its place, and what was said about it.

Exit codes never stand alone: an eviction, a disruption or a lost node that is on record for the pod
explains a 137 better than the number does. Events count only for the stage that the pod is in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.affinity import allowed, unmet
from forebay.scheduler_bridge.domain.kubernetes.asking import requests
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    condition,
    is_true,
    items_at,
    moment,
    name_of,
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
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read, read_condition, read_ended, read_event
from forebay.scheduler_bridge.domain.kubernetes.subjects import is_mount_pod
from forebay.scheduler_bridge.domain.kubernetes.taints import named
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
_SETTING_UP = frozenset({"ContainerCreating", "PodInitializing"})
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
    if node and phase == "Pending" and held and not is_mount_pod(pod):
        return first.but(sentence=f"{first.finding.sentence}; meanwhile the pod holds {', '.join(held)} on {node}")
    return first


def look_at(facts: Facts, pod: Object, now: datetime) -> Iterator[Seen]:
    """Everything found about a pod."""
    if ended_well(pod):
        return
    node = text_at(pod, "spec", "nodeName")
    found = [*_ended(pod), *on_its_node(facts, pod, now)]
    if runs(pod) and not found:
        found += _broken_under_it(facts, pod, now)
    else:
        found += [*_containers(pod), *_said(facts, pod)]
        if not node and text_at(pod, "status", "phase") in {"Pending", "Failed", ""}:
            found += _place(facts, pod)
        elif not runs(pod):
            found += _mounts(facts, pod, found, now)
    for seen in found:
        yield seen.but(where=node) if node and seen.finding.where is None else seen


def _ended(pod: Object) -> Iterator[Seen]:
    """What the pod itself says about its end."""
    reason, text = text_at(pod, "status", "reason"), text_at(pod, "status", "message")
    if reason or text:
        seen = read(Message(where="condition", reason=reason, text=text, object="pod.status"), None)
        yield Seen(finding=seen.finding, since=ended_at(pod), evidence=seen.evidence)
    target = condition(pod, "DisruptionTarget")
    if target is not None and target.get("status") in ("True", True):
        seen = read_condition(target, "Pod")
        yield seen.but(weight=min(seen.finding.weight, 14))


def _containers(pod: Object) -> Iterator[Seen]:
    for init, status in _statuses(pod):
        name = text_at(status, "name")
        waiting, terminated = part(status, "state", "waiting"), part(status, "state", "terminated")
        last = part(status, "lastState", "terminated")
        if waiting is not None:
            looped = text_at(waiting, "reason") in {"CrashLoopBackOff", "RunContainerError", "CreateContainerError"}
            if looped and last is not None:
                ending = _terminated(last, name, init=init)
                yield ending.but(weight=29 if ending.finding.reason is not Reason.PROCESS_KILLED else 61)
            message = Message(
                where="containerStatus",
                reason=text_at(waiting, "reason"),
                text=text_at(waiting, "message"),
                object=f"container {name}",
            )
            seen = read(message, _created(pod))
            setting_up = message.reason in _SETTING_UP and not message.text
            said = (
                f"container {name} is being set up, and nothing says what it waits for"
                if setting_up
                else seen.finding.sentence
            )
            yield seen.but(
                sentence=said,
                layer=Layer.PREFLIGHT if init and seen.finding.cause is Cause.CRASH else seen.finding.layer,
            )
        elif terminated is not None and terminated.get("exitCode") not in (0, None):
            yield _terminated(terminated, name, init=init)
        elif init and part(status, "state", "running") is not None:
            yield Seen(
                finding=finding(
                    Cause.OTHER,
                    f"init container {name} is running",
                    "init-running@1",
                    reason=Reason.PREFLIGHT_RUNNING,
                    layer=Layer.PREFLIGHT,
                    next_action=LATER,
                    weight=70,
                ),
                since=moment(part(status, "state", "running", "startedAt")),
            )


def _statuses(pod: Object) -> Iterator[tuple[bool, Object]]:
    """(init, status); sidecars among the init containers are no init."""
    sidecars = {
        text_at(one, "name")
        for one in items_at(pod, "spec", "initContainers")
        if text_at(one, "restartPolicy") == "Always"
    }
    for status in items_at(pod, "status", "initContainerStatuses"):
        sidecar = text_at(status, "name") in sidecars
        if not sidecar or text_at(status, "state", "waiting", "reason") not in {*_SETTING_UP, ""}:
            yield not sidecar, status
    for status in items_at(pod, "status", "containerStatuses"):
        yield False, status


def _terminated(state: Object, name: str, *, init: bool) -> Seen:
    seen, code = read_ended(state, f"container {name}"), state.get("exitCode")
    (message,) = seen.evidence
    said = f"{'init container' if init else 'container'} {name}: {seen.finding.sentence}"
    layer = Layer.PREFLIGHT if init and seen.finding.layer is Layer.PROCESS else seen.finding.layer
    if seen.finding.cause is Cause.OTHER and message.reason == "Error" and message.text and code not in (137, 143, 0):
        return seen.but(sentence=said, layer=layer, cause=Cause.CRASH, reason=Reason.PROCESS_FAILED)
    return seen.but(sentence=said, layer=layer)


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
        yield claim_of(facts, pod, seen) if seen.finding.cause in _OF_MOUNT else seen


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
                since=_created(pod),
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
    seen = _with_demands(facts, pod, named(pod, facts.all("Node"), seen))
    yield _with_autoscaler(facts, pod, _with_numbers(facts, pod, seen))


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


def _with_autoscaler(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """The autoscaler's last word belongs to the verdict: nodes are coming, or they are not."""
    words = [
        event for event in facts.about(pod) if event.reason in {"TriggeredScaleUp", "NotTriggerScaleUp", "Nominated"}
    ]
    if not words:
        nominated = text_at(pod, "status", "nominatedNodeName")
        if nominated:
            return seen.but(
                sentence=f"pods are being stopped on {nominated} to make room; {seen.finding.sentence}",
                next_action=LATER,
            )
        return seen
    last = words[-1]
    evidence = (*seen.evidence, *read_event(last).evidence)
    if last.reason == "NotTriggerScaleUp":
        changed = seen.but(sentence=f"{seen.finding.sentence}; the autoscaler adds no node: {last.message}")
        return Seen(finding=changed.finding, since=seen.since, evidence=evidence)
    changed = seen.but(
        sentence=f"{seen.finding.sentence}; the autoscaler is adding a node: {last.message}",
        reason=Reason.SCALE_UP_TRIGGERED,
        next_action=LATER,
        fits="unknown",
    )
    return Seen(finding=changed.finding, since=seen.since, evidence=evidence)


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


def _created(pod: Object) -> datetime | None:
    scheduled = condition(pod, "PodScheduled")
    if is_true(pod, "PodScheduled") and scheduled is not None:
        return moment(scheduled.get("lastTransitionTime"))
    return moment(text_at(pod, "metadata", "creationTimestamp"))
