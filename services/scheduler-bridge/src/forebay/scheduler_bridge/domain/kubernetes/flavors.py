"""Why Kueue could assign no flavor: its list of reasons, one for each flavor and resource, read by its grammar.

`couldn't assign flavors to pod set main: <reason>, <reason>…[; couldn't assign flavors to pod set …]`.
A job waits for the flavor that will suit it soonest: used-up quota before quota that is too small,
before topology, before taints and affinity, before what the queue does not cover. A reason token of
Kueue 0.19 decides where there is one. "Never" is said only when Kueue itself compares the request with the maximum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.quantities import is_accelerator
from forebay.scheduler_bridge.domain.kubernetes.rules import MessageRule, Text
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, Finding, finding


class _Wait(IntEnum):
    """In the order of which flavor the job really waits for."""

    BUSY = 1
    NEVER = 2
    TOPOLOGY = 3
    NODE_GONE = 4
    CONSTRAINT = 5
    NOT_COVERED = 6


@dataclass(frozen=True, slots=True)
class _Obstacle:
    wait: _Wait
    text: str
    resource: str = ""
    flavor: str = ""
    need: str = ""
    have: str = ""


_FLAVOR = r"[\w.\-]+"
_RESOURCE = r"[\w.\-/]+"
_GRAMMAR: tuple[tuple[_Wait, re.Pattern[str]], ...] = tuple(
    (wait, re.compile(expression, re.IGNORECASE))
    for wait, expression in (
        (
            _Wait.NEVER,
            (
                rf"insufficient (?:unused )?quota for (?P<resource>{_RESOURCE}) in flavor (?P<flavor>{_FLAVOR}),? "
                r"(?:previously considered podsets requests \((?P<before>[^)]*)\) \+ current podset request \((?P<need>[^)]*)\) > maximum capacity \((?P<have>[^)]*)\)"
                r"|request > maximum capacity \((?P<need2>[^\s)]+) > (?P<have2>[^\s)]+)\))"
            ),
        ),
        (
            _Wait.BUSY,
            rf"insufficient (?:unused )?quota (?:in cohort )?for (?P<resource>{_RESOURCE}) in flavor (?P<flavor>{_FLAVOR}),? (?P<need>[\w.]+) more needed",
        ),
        (_Wait.BUSY, rf"borrowing limit for (?P<resource>{_RESOURCE}) in flavor (?P<flavor>{_FLAVOR}) exceeded"),
        (
            _Wait.BUSY,
            rf"insufficient (?:unused )?quota (?:in cohort )?for (?P<resource>{_RESOURCE}) in flavor (?P<flavor>{_FLAVOR})",
        ),
        (
            _Wait.TOPOLOGY,
            (
                r"topology \"?(?P<flavor>[\w.\-]+)\"? (?:doesn't allow to fit|allows to fit only)[^;]*?(?:;[^,]*fit on level [\w./\-]+)*"
                r"(?=$|, (?:insufficient|untolerated|flavor|resource)|; (?:couldn't|failed)|\. \w)"
            ),
        ),
        (_Wait.NODE_GONE, r"cannot (?:find replacement assignment for unhealthy node|replace the node)[^;]*"),
        (_Wait.CONSTRAINT, rf"untolerated taint \{{?(?P<need>[^\s}}]*)[^}}]*\}}? in flavor (?P<flavor>{_FLAVOR})"),
        (_Wait.CONSTRAINT, rf"flavor (?P<flavor>{_FLAVOR}) doesn't match (?:with )?node affinity"),
        (
            _Wait.CONSTRAINT,
            r"(?:invalid node selectors|invalid affinity node selectors|no topology domains at level)[^;]*",
        ),
        (_Wait.NOT_COVERED, rf"resource (?P<resource>{_RESOURCE}) unavailable in ClusterQueue"),
        (_Wait.NOT_COVERED, rf"flavor (?P<flavor>{_FLAVOR}) (?:not found|does not provide resource \S+)"),
        (
            _Wait.NOT_COVERED,
            r"flavor \"(?P<flavor>[^\"]+)\" (?:does not support|information missing|does not contain|supports only)[^,;]*",
        ),
        (_Wait.NOT_COVERED, r"no requested topology level[^;]*"),
        (
            _Wait.NOT_COVERED,
            r"requires topology, but there is no tas cache information|(?:no|more than one) tas flavor assigned[^;]*",
        ),
    )
)
_RESERVED = re.compile(r"quota reserved in", re.IGNORECASE)
"""From 0.15 on this is followed by the flavors that were looked at and not taken."""
_EXCLUDED = re.compile(r"excluded:\s*(.*)", re.IGNORECASE)
_EXCLUSION = re.compile(
    r"(resource|taint) \"([^\"]+)\":\s*(\d+)|(nodeSelector|affinity|topologyDomain):\s*(\d+)", re.IGNORECASE
)
_HEAD = re.compile(r"(?:couldn't|could not|failed to) assign flavors to pod ?set", re.IGNORECASE)
_PENDING = re.compile(r"pending the (?:preemption|migration) of (\d+) workload", re.IGNORECASE)
_BY_TOKEN: dict[str, _Wait] = {
    "waitingforquota": _Wait.BUSY,
    "exceedsmaxquota": _Wait.NEVER,
    "topologyplacementfailed": _Wait.TOPOLOGY,
    "nomatchingflavor": _Wait.CONSTRAINT,
    "misconfigured": _Wait.NOT_COVERED,
}


def _obstacles(flat: str) -> list[_Obstacle]:
    """Every reason of the list, each stretch of the text read once."""
    found: list[_Obstacle] = []
    taken: list[tuple[int, int]] = []
    for wait, expression in _GRAMMAR:
        for match in expression.finditer(flat):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            taken.append(match.span())
            groups = match.groupdict()
            found.append(
                _Obstacle(
                    wait=wait,
                    text=match.group(0).strip(),
                    resource=groups.get("resource") or "",
                    flavor=groups.get("flavor") or "",
                    need=groups.get("need") or groups.get("need2") or "",
                    have=groups.get("have") or groups.get("have2") or "",
                )
            )
    return found


def _judge(text: Text, rule: str) -> Finding | None:
    flat = text.flat
    if _RESERVED.match(flat):
        return None
    obstacles = _obstacles(flat)
    if not obstacles and not _HEAD.search(flat):
        return None
    pending = _PENDING.search(flat)
    if pending is not None:
        return finding(
            Cause.PREEMPTED,
            f"{pending.group(1)} workloads are being preempted to make room for it; it starts when they have ended",
            rule,
            reason=Reason.WAITS_FOR_PREEMPTION,
            next_action=LATER,
            weight=30,
        )
    if not obstacles:
        return None
    told = _BY_TOKEN.get(text.token)
    main = min(obstacles, key=lambda one: (one.wait is not told, one.wait))
    return _say(main, flat, rule, len({one.flavor for one in obstacles if one.flavor}))


def _say(main: _Obstacle, flat: str, rule: str, flavors: int) -> Finding:
    more = f"{flavors - 1} other flavors do" if flavors > 2 else "another flavor does"
    others = f" ({more} not suit it either)" if flavors > 1 else ""
    match main.wait:
        case _Wait.BUSY:
            more = f", {main.need} more needed" if main.need else ""
            return finding(
                Cause.QUOTA,
                f"quota for {main.resource} in flavor {main.flavor} is used up{more}{others}",
                rule,
                need=f"{main.resource}={main.need} more" if main.need else main.resource,
                where=main.flavor,
                weight=30,
            )
        case _Wait.NEVER:
            return finding(
                Cause.QUOTA,
                f"asks for {main.need} of {main.resource} in flavor {main.flavor}, whose maximum is {main.have}: it will never be admitted as it is{others}",
                rule,
                reason=Reason.NEVER_FITS,
                next_action="ask for less, or have the queue's quota or borrowing limit raised",
                need=f"{main.resource}={main.need}",
                have=f"{main.resource}={main.have} at most",
                where=main.flavor,
                fits="never",
                weight=30,
            )
        case _Wait.TOPOLOGY:
            return _topology(main, flat, rule)
        case _Wait.NODE_GONE:
            return finding(
                Cause.NODE_LOST, f"a node of the job is unhealthy and there is no other: {main.text}", rule, weight=30
            )
        case _Wait.CONSTRAINT:
            return finding(
                Cause.AFFINITY_TAINT,
                f"no flavor of the queue suits the job: {main.text}",
                rule,
                need=main.need or None,
                where=main.flavor or None,
                weight=30,
            )
        case _Wait.NOT_COVERED:
            return finding(
                Cause.QUEUE_MISCONFIG,
                f"the queue does not cover what the job asks for: {main.text}",
                rule,
                next_action=f"have {main.resource or main.flavor or 'it'} added to the ClusterQueue, or do not ask for it",
                need=main.resource or None,
                weight=30,
            )


def _topology(main: _Obstacle, flat: str, rule: str) -> Finding:
    """Quota is free; the nodes close to each other are not. What was left out says what for."""
    counts: dict[str, int] = {}
    excluded = _EXCLUDED.search(flat)
    for kind, name, count, plain, plain_count in _EXCLUSION.findall(excluded.group(1)) if excluded else ():
        key = f"{kind.lower()}:{name}" if kind else f"selector:{plain}"
        counts[key] = counts.get(key, 0) + int(count or plain_count)
    cause, need = Cause.GPU_SHORTAGE, ""
    resources = {key.partition(":")[2]: value for key, value in counts.items() if key.startswith("resource:")}
    if resources:
        need = max(resources, key=lambda name: (resources[name], is_accelerator(name)))
        cause = Cause.GPU_SHORTAGE if is_accelerator(need) else Cause.CPU_MEM_SHORTAGE
    elif counts:
        cause, need = Cause.AFFINITY_TAINT, max(counts, key=lambda key: counts[key]).partition(":")[2]
    return finding(
        cause,
        f"quota is free, but {main.text}" + (f"; most nodes lack {need}" if resources else ""),
        rule,
        next_action="wait until nodes that are close to each other are free, or relax the topology request"
        if cause is not Cause.AFFINITY_TAINT
        else None,
        need=need or None,
        where=main.flavor or None,
        weight=30,
    )


FLAVOR_RULES: tuple[MessageRule, ...] = (MessageRule("kueue-flavors", 2, _judge),)
