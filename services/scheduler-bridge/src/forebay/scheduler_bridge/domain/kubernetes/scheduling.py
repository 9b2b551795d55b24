"""From a histogram to the one reason: what blocks the nodes that nothing else rules out.

Rules that hold: a reason without a count decides alone; a reason that holds on every node decides
(constraints before shortages, because ending other pods does not help there); control-plane taints, selectors and
cordons are the background that is discounted first; of the rest the largest decides, volumes
before GPUs before compute. The preemption part tells a full node from one that is too small, but
never proves "never": nodes may be added, and older schedulers do not look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.histogram import Counted, Histogram, Kind
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import NEXT, Cause, Finding, finding

CAUSES: dict[Kind, Cause] = {
    Kind.GPU: Cause.GPU_SHORTAGE,
    Kind.COMPUTE: Cause.CPU_MEM_SHORTAGE,
    Kind.TAINT: Cause.AFFINITY_TAINT,
    Kind.CONTROL_PLANE: Cause.AFFINITY_TAINT,
    Kind.LOST: Cause.NODE_LOST,
    Kind.DISK_PRESSURE: Cause.EVICTED_DISK,
    Kind.MEMORY_PRESSURE: Cause.EVICTED_NODE,
    Kind.LEAVING: Cause.AFFINITY_TAINT,
    Kind.CORDONED: Cause.AFFINITY_TAINT,
    Kind.SELECTOR: Cause.AFFINITY_TAINT,
    Kind.PLACEMENT: Cause.AFFINITY_TAINT,
    Kind.VOLUME_UNBOUND: Cause.VOLUME_UNBOUND,
    Kind.VOLUME_ATTACH: Cause.VOLUME_ATTACH,
    Kind.CONFIG: Cause.CONFIG,
    Kind.GANG: Cause.OTHER,
    Kind.QUOTA: Cause.QUOTA,
    Kind.UNKNOWN: Cause.OTHER,
}
"""What kind of reason stands for which cause."""

OTHERS = "; the other nodes: "
_SHORT = frozenset({Kind.GPU, Kind.COMPUTE})
_VOLUME = frozenset({Kind.VOLUME_UNBOUND, Kind.VOLUME_ATTACH})
_LATE = _SHORT | _VOLUME | {Kind.PLACEMENT, Kind.CONFIG, Kind.QUOTA}
"""Said only of nodes that taints and selectors let pass."""
_ON_TIES = (
    Kind.VOLUME_UNBOUND,
    Kind.VOLUME_ATTACH,
    Kind.GPU,
    Kind.COMPUTE,
    Kind.CONFIG,
    Kind.QUOTA,
    Kind.PLACEMENT,
    Kind.LOST,
    Kind.DISK_PRESSURE,
    Kind.MEMORY_PRESSURE,
    Kind.TAINT,
    Kind.SELECTOR,
    Kind.CORDONED,
    Kind.LEAVING,
    Kind.CONTROL_PLANE,
    Kind.GANG,
    Kind.UNKNOWN,
)
_REASONS: dict[Kind, Reason] = {
    Kind.VOLUME_ATTACH: Reason.VOLUME_ELSEWHERE,
    Kind.GANG: Reason.GANG_INCOMPLETE,
    Kind.CONFIG: Reason.CONFIG_MISSING,
}


def dominant(histogram: Histogram) -> Counted | None:
    """The reason that decides."""
    alone = [reason for reason in histogram.uncounted if reason.kind is not Kind.UNKNOWN]
    if alone:
        return min(alone, key=lambda reason: _ON_TIES.index(reason.kind))
    counted = histogram.counted
    if not counted:
        return histogram.uncounted[0] if histogram.uncounted else None
    known = any(reason.kind in _LATE for _, reason in counted)
    everywhere = [
        reason
        for count, reason in counted
        if histogram.nodes and count >= histogram.nodes and not (known and reason.kind is Kind.UNKNOWN)
    ]
    if everywhere:
        return min(everywhere, key=lambda reason: (reason.kind in _SHORT, _ON_TIES.index(reason.kind)))
    late = [(count, reason) for count, reason in counted if reason.kind in _LATE]
    told = _by_tail(histogram, late)
    if told is not None:
        return told
    rest = (
        late or [(count, reason) for count, reason in counted if reason.kind is not Kind.CONTROL_PLANE] or list(counted)
    )
    return _largest(rest)


def _by_tail(histogram: Histogram, late: list[tuple[int, Counted]]) -> Counted | None:
    """Between two shortages, the one on the nodes where room could be made: the others lack the resource altogether."""
    shortages = [(count, reason) for count, reason in late if reason.kind in _SHORT]
    victims, helpless = histogram.no_victims, histogram.not_helpful
    if len(shortages) < 2 or len(shortages) != len(late) or not victims or not helpless:
        return None
    fixed = sum(count for count, _ in histogram.counted) - sum(count for count, _ in shortages)
    exact = [
        reason
        for count, reason in shortages
        if count == victims and fixed + sum(n for n, other in shortages if other is not reason) == helpless
    ]
    return exact[0] if len(exact) == 1 else None


def _largest(reasons: Iterable[tuple[int, Counted]]) -> Counted:
    """The kind that holds on most nodes, and its largest reason."""
    listed = list(reasons)
    sums: Counter[Kind] = Counter()
    for count, reason in listed:
        sums[reason.kind] += count
    kind = min(sums, key=lambda item: (-sums[item], _ON_TIES.index(item)))
    return max((entry for entry in listed if entry[1].kind is kind), key=lambda entry: entry[0])[1]


def judge(histogram: Histogram, rule: str) -> Finding | None:
    """The finding of a histogram; None when it names no reason."""
    main = dominant(histogram)
    if main is None:
        return None
    cause = CAUSES[main.kind]
    others = [_say(reason) for reason in histogram.reasons if reason is not main]
    sentence = _sentence(main, histogram)
    if others:
        sentence += f"{OTHERS}{', '.join(others)}"
    return finding(
        cause,
        sentence,
        rule,
        reason=_REASONS.get(main.kind),
        layer=Layer.GANG if main.kind is Kind.GANG else None,
        next_action=_action(main),
        need=main.detail or None,
        weight=30,
    )


def _say(reason: Counted) -> str:
    return f"{reason.count} {reason.text}" if reason.count is not None else reason.text


_SAYS: dict[Kind, str] = {
    Kind.GPU: "{of} could take the pod but have too little {what}{hint}",
    Kind.COMPUTE: "{of} could take the pod but have too little {what}{hint}",
    Kind.TAINT: "{of} carry the taint {what}, which the pod does not tolerate",
    Kind.CONTROL_PLANE: "{of} are for the control plane only ({what}), and no other node is left",
    Kind.LOST: "{of} do not answer or are not ready",
    Kind.DISK_PRESSURE: "{of} are short of disk and take no pods",
    Kind.MEMORY_PRESSURE: "{of} are short of memory or processes and take no pods",
    Kind.CORDONED: "{of} are cordoned (marked unschedulable)",
    Kind.LEAVING: "{of} are about to be removed by the autoscaler",
    Kind.SELECTOR: "{of} do not match the pod's node selector or affinity",
    Kind.VOLUME_UNBOUND: "a volume claim of the pod is not bound: {text}",
    Kind.VOLUME_ATTACH: "a volume of the pod cannot be used on {of}: {text}",
}
_UNNAMED = {Kind.TAINT: "(the message does not name it)", Kind.CONTROL_PLANE: "by their taint"}


def _sentence(main: Counted, histogram: Histogram) -> str:
    of = f"{main.count} of {histogram.nodes} nodes" if main.count is not None else f"any of {histogram.nodes} nodes"
    what = main.detail or _UNNAMED.get(main.kind, main.text)
    template = _SAYS.get(main.kind, "{of} cannot take the pod: {text}")
    if main.kind in _SHORT and not main.detail:
        template = "{of} could take the pod but have no room for it{hint} ({text})"
    if main.count is None and main.kind not in _VOLUME:
        template = "the pod cannot be placed: {text}"
    return template.format(of=of, what=what, text=main.text, hint=_hint(main, histogram))


def _hint(main: Counted, histogram: Histogram) -> str:
    """What the preemption part adds, without claiming more than it proves."""
    if histogram.not_helpful is None:
        return ""
    if histogram.no_victims:
        return " free at present" if main.detail else " at present"
    if main.count is not None and histogram.not_helpful >= histogram.nodes:
        return "; ending other pods would not help, so the request may be larger than these nodes"
    return ""


_ACTIONS: dict[Kind, str] = {
    Kind.CONFIG: "create what is missing, or correct its name in the job",
    Kind.TAINT: "tolerate {what} if the job belongs on these nodes, or wait for others",
    Kind.CONTROL_PLANE: "add worker nodes, or tolerate the taint on purpose",
    Kind.LOST: NEXT[Cause.NODE_LOST],
    Kind.CORDONED: "uncordon the nodes when their maintenance is over",
    Kind.LEAVING: "wait for new nodes",
    Kind.SELECTOR: "correct the node selector or affinity of the pod, or label nodes that suit it",
    Kind.DISK_PRESSURE: "free disk on the nodes",
    Kind.MEMORY_PRESSURE: "wait until the pressure on the nodes is over",
    Kind.PLACEMENT: "wait until the other pods end, or relax the pod's affinity, spread or host ports",
    Kind.VOLUME_ATTACH: "move the pod to where its volume is, or use a volume that can be reached from every node",
}


_BY_WORDS = (
    ("max volume count", "wait until pods with volumes leave these nodes, or use nodes to which more can be attached"),
    (
        "readwriteoncepod",
        "wait until the pod that uses the claim has ended, or use a claim that several pods may share",
    ),
)


def _action(main: Counted) -> str | None:
    template = next((do for words, do in _BY_WORDS if words in main.text.casefold()), _ACTIONS.get(main.kind))
    return template.format(what=main.detail or "the taint") if template else None
