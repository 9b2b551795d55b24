"""What the containers of a pod say: which one fell, what it is beside the training, and whether the training still runs.

The container that trains is the one that asks for accelerators, or the one that the pod names as its default, else the first.
The end of any other container is not the end of the training, and the sentence says so. Called by `pods.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.asking import requests
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Object,
    condition,
    is_true,
    items_at,
    moment,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.quantities import is_accelerator, show
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read, read_ended
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, Message, finding

SETTING_UP = frozenset({"ContainerCreating", "PodInitializing"})
_LOOPED = frozenset({"CrashLoopBackOff", "RunContainerError", "CreateContainerError"})
_JUST_BEFORE = timedelta(minutes=3)
_ASKED_TO_STOP = (0, 143, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod, with its role and its status."""

    name: str
    init: bool
    sidecar: bool
    """An init container that runs on beside the others."""
    trains: bool
    injected: bool
    """The pod's owner does not declare it: a webhook put it there."""
    spec: Object
    status: Object

    @property
    def label(self) -> str:
        role = "init container" if self.init else "side-car" if self.sidecar else "container"
        return f"{role} {self.name}" + (" (put into the pod by a webhook)" if self.injected else "")

    @property
    def runs(self) -> bool:
        return part(self.status, "state", "running") is not None

    @property
    def memory(self) -> str:
        """Its limit, as it was written."""
        found = part(self.spec, "resources", "limits", "memory")
        return str(found) if isinstance(found, (str, int)) else ""

    @property
    def restarts(self) -> int:
        found = part(self.status, "restartCount")
        return found if isinstance(found, int) else 0

    @property
    def ended(self) -> Object | None:
        """Its last end, also when it was started again."""
        now, before = part(self.status, "state", "terminated"), part(self.status, "lastState", "terminated")
        return now or before or None


def containers_of(pod: Object, injected: frozenset[str] = frozenset()) -> tuple[Container, ...]:
    """Init containers first, each with its status; one without a status has not been looked at."""
    inits, mains = items_at(pod, "spec", "initContainers"), items_at(pod, "spec", "containers")
    statuses = {
        text_at(one, "name"): one
        for one in (*items_at(pod, "status", "initContainerStatuses"), *items_at(pod, "status", "containerStatuses"))
    }
    known = {text_at(one, "name") for one in (*inits, *mains)}
    unknown = [one for one in items_at(pod, "status", "containerStatuses") if text_at(one, "name") not in known]
    unknown_inits = [
        one for one in items_at(pod, "status", "initContainerStatuses") if text_at(one, "name") not in known
    ]
    trains = trainer_name(pod) or (text_at(unknown[0], "name") if unknown else "")
    made = []
    for init, one in [(True, one) for one in (*inits, *unknown_inits)] + [(False, one) for one in (*mains, *unknown)]:
        name = text_at(one, "name")
        sidecar = init and text_at(one, "restartPolicy") == "Always"
        made.append(
            Container(
                name=name,
                init=init and not sidecar,
                sidecar=sidecar,
                trains=not init and name == trains,
                injected=name in injected,
                spec=one,
                status=statuses.get(name, {}),
            )
        )
    return tuple(made)


def trainer_name(pod: Object) -> str:
    """The container that trains."""
    mains = items_at(pod, "spec", "containers")
    names = [text_at(one, "name") for one in mains]
    with_devices = [
        text_at(one, "name")
        for one in mains
        for kind in ("requests", "limits")
        if any(is_accelerator(str(name)) for name in (part(one, "resources", kind) or {}))
    ]
    default = text_at(pod, "metadata", "annotations", "kubectl.kubernetes.io/default-container")
    return next((name for name in (*with_devices, default, *names) if name in names), "")


def the_trainer(all_of_it: tuple[Container, ...]) -> Container | None:
    """The container that trains."""
    return next((one for one in all_of_it if one.trains), None)


def the_unready(all_of_it: tuple[Container, ...]) -> Container | None:
    """The one that runs and is not ready, or the only one; None when several may be meant."""
    unready = [one for one in all_of_it if one.runs and not (one.init or part(one.status, "ready"))]
    found = unready or list(all_of_it)
    return found[0] if len(found) == 1 else None


def look_at(pod: Object, injected: frozenset[str] = frozenset()) -> Iterator[Seen]:
    """Everything that the containers say. `injected`: those that a webhook put into the pod."""
    all_of_it = containers_of(pod, injected)
    trainer = the_trainer(all_of_it)
    yield from _kept_open(pod, all_of_it, trainer)
    for one in all_of_it:
        for seen in _about(pod, one):
            yield beside(seen, one, trainer)


def _about(pod: Object, one: Container) -> Iterator[Seen]:
    waiting, terminated = part(one.status, "state", "waiting"), part(one.status, "state", "terminated")
    last = part(one.status, "lastState", "terminated")
    if waiting is not None:
        if one.sidecar and text_at(waiting, "reason") in {*SETTING_UP, ""}:
            return
        if text_at(waiting, "reason") in _LOOPED and last is not None:
            ending = _terminated(last, one)
            yield ending.but(weight=29 if ending.finding.reason is not Reason.PROCESS_KILLED else 61)
        yield _waiting(pod, waiting, one)
    elif terminated is not None and terminated.get("exitCode") not in (0, None):
        yield _terminated(terminated, one)
    elif last is not None and not one.trains and last.get("exitCode") not in _ASKED_TO_STOP:
        yield _terminated(last, one).but(weight=68)
    elif one.init and one.runs:
        yield Seen(
            finding=finding(
                Cause.OTHER,
                f"init container {one.name} is running",
                "init-running@1",
                reason=Reason.PREFLIGHT_RUNNING,
                layer=Layer.PREFLIGHT,
                next_action=LATER,
                weight=70,
            ),
            since=moment(part(one.status, "state", "running", "startedAt")),
        )


def _waiting(pod: Object, waiting: Object, one: Container) -> Seen:
    message = Message(
        where="containerStatus",
        reason=text_at(waiting, "reason"),
        text=text_at(waiting, "message"),
        object=f"container {one.name}",
    )
    seen = read(message, created(pod))
    setting_up = message.reason in SETTING_UP and not message.text
    said = (
        f"container {one.name} is being set up, and nothing says what it waits for"
        if setting_up
        else seen.finding.sentence
    )
    if not setting_up and (len(containers_of(pod)) > 1 or seen.finding.cause in {Cause.CRASH, Cause.CONFIG}):
        said = f"{one.label}: {said}"
    if seen.finding.reason is Reason.CRASH_LOOP:
        said = f"{said}{_restarted(one)}"
    layer = Layer.PREFLIGHT if one.init and seen.finding.cause is Cause.CRASH else seen.finding.layer
    return seen.but(sentence=said, layer=layer)


def _terminated(state: Object, one: Container) -> Seen:
    seen, code = read_ended(state, f"container {one.name}"), state.get("exitCode")
    (message,) = seen.evidence
    said = f"{one.label}: {seen.finding.sentence}"
    layer = Layer.PREFLIGHT if one.init and seen.finding.layer is Layer.PROCESS else seen.finding.layer
    if message.reason == "OOMKilled":
        seen = _of_its_limit(seen, one)
        said = seen.finding.sentence
    said += _restarted(one)
    seen = seen.but(next_action=seen.finding.next_action.replace("the container's log", f"the log of {one.label}"))
    if seen.finding.cause is Cause.OTHER and message.reason == "Error" and message.text and code not in (137, 143, 0):
        return seen.but(sentence=said, layer=layer, cause=Cause.CRASH, reason=Reason.PROCESS_FAILED)
    return seen.but(sentence=said, layer=layer)


def _restarted(one: Container) -> str:
    if not one.restarts:
        return ""
    return f"; it was started again {one.restarts} time{'s' if one.restarts > 1 else ''}"


def _of_its_limit(seen: Seen, one: Container) -> Seen:
    """Killed by its own limit, which the pod tells; without one the node's memory ran out."""
    smaller = ", or make batches smaller" if one.trains else ""
    if not one.memory:
        said = f"{one.label}: the kernel killed it because memory ran out; it has no memory limit of its own"
        return seen.but(
            sentence=said, next_action=f"give {one.name} a memory request as large as what it uses{smaller}"
        )
    return seen.but(
        sentence=f"{one.label} used more memory than its limit of {one.memory}, and the kernel killed it (OOMKilled)",
        next_action=f"raise the memory limit of {one.name} above {one.memory}{smaller}",
        have=f"memory limit {one.memory} of {one.name}",
    )


def beside(seen: Seen, one: Container, trainer: Container | None) -> Seen:
    """What became of the training when it was another container that fell."""
    if trainer is None or one.trains or seen.finding.reason in {Reason.STARTING, Reason.PREFLIGHT_RUNNING}:
        return seen
    if trainer.runs:
        action = seen.finding.next_action
        return seen.but(
            sentence=f"{seen.finding.sentence}; container {trainer.name} still runs",
            next_action=action.replace(" and submit again", "; the training goes on meanwhile"),
            reason=Reason.HELPER_FAILED if seen.finding.layer is Layer.PROCESS else seen.finding.reason,
        )
    ended = part(trainer.status, "state", "terminated")
    if ended is None and (one.init or one.sidecar) and trainer.ended is None:
        return seen.but(sentence=f"{seen.finding.sentence}; container {trainer.name} has not started")
    if ended is None:
        return seen
    if ended.get("exitCode") == 0:
        return seen.but(sentence=f"{seen.finding.sentence}; container {trainer.name} had ended well")
    return _fell_first(seen, one, trainer, ended)


def earlier_ends(pods: Iterable[Object]) -> str:
    """How containers that run now had ended before; empty when none was started again."""
    told = [
        _terminated(last, one).finding.sentence
        for pod in pods
        for one in containers_of(pod)
        if one.runs and (last := part(one.status, "lastState", "terminated")) is not None and last.get("exitCode")
    ]
    return f"; before: {told[0]}" if told else ""


def _fell_first(seen: Seen, one: Container, trainer: Container, ended: Object) -> Seen:
    """A helper that fell just before the training, which may have needed it; one that fell after it was only stopped."""
    before, then = moment(text_at(one.ended or {}, "finishedAt")), moment(text_at(ended, "finishedAt"))
    if before is None or then is None or part(one.ended or {}, "exitCode") in _ASKED_TO_STOP or before > then:
        return seen.but(weight=max(seen.finding.weight, 66))
    if then - before > _JUST_BEFORE:
        return seen
    seconds = int((then - before).total_seconds())
    said = f"{seen.finding.sentence}; container {trainer.name} ended {seconds} s later with exit code {ended.get('exitCode')}"
    return seen.but(sentence=said, weight=9)


def _kept_open(pod: Object, all_of_it: tuple[Container, ...], trainer: Container | None) -> Iterator[Seen]:
    """The training ended well, and another container keeps the pod, and what it holds, from ending."""
    ended = part(trainer.status, "state", "terminated") if trainer is not None else None
    if trainer is None or ended is None or ended.get("exitCode") != 0:
        return
    open_still = [one.name for one in all_of_it if one.runs and not one.trains and not one.sidecar]
    if not open_still or text_at(pod, "status", "phase") != "Running":
        return
    held = ", ".join(f"{show(value)} {name}" for name, value in requests(pod).items() if is_accelerator(name))
    yield Seen(
        finding=finding(
            Cause.OTHER,
            f"container {trainer.name} ended well (exit code 0), but container {', '.join(open_still)} still runs, so the pod does not end"
            + (f" and holds {held}" if held else ""),
            "kept-open@1",
            reason=Reason.HELPER_STILL_RUNS,
            layer=Layer.PROCESS,
            next_action=f"make {open_still[0]} a side-car (an init container with restartPolicy: Always), or have it end when {trainer.name} does",
            weight=8,
        ),
        since=moment(text_at(ended, "finishedAt")),
    )


def created(pod: Object) -> datetime | None:
    """When the pod came to its node, or was made."""
    scheduled = condition(pod, "PodScheduled")
    if is_true(pod, "PodScheduled") and scheduled is not None:
        return moment(scheduled.get("lastTransitionTime"))
    return moment(text_at(pod, "metadata", "creationTimestamp"))
