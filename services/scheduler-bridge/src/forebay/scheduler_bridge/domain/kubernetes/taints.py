"""Taints by name: from 1.34 on the scheduler only counts nodes with "untolerated taint(s)". Pure.

The nodes that were seen tell which: a taint that a pod does not tolerate is named with
its node, and a taint that says something about the node itself (it does not answer, it
is short of disk) makes that the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.facts import Facts, Object, condition, items_at, name_of, part, text_at
from forebay.scheduler_bridge.domain.kubernetes.histogram import Counted, Kind, classify_reason, kind_of_taint, parse
from forebay.scheduler_bridge.domain.kubernetes.scheduling import OTHERS, dominant, judge
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_NAMED = 5
RULE = "taints-of-nodes@1"


class Taint(NamedTuple):
    """What a node repels pods with."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """As `kubectl taint` writes it."""
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


def taints_of(node: Object) -> Iterator[Taint]:
    """Those that keep pods away, in their order."""
    for one in items_at(node, "spec", "taints"):
        taint = Taint(text_at(one, "key"), text_at(one, "value"), text_at(one, "effect"))
        if taint.effect in _BLOCKING:
            yield taint


def tolerates(pod: Object, taint: Taint) -> bool:
    """As the scheduler judges it."""
    for one in items_at(pod, "spec", "tolerations"):
        key, effect = text_at(one, "key"), text_at(one, "effect")
        exists = text_at(one, "operator") == "Exists"
        right_key = key == taint.key or (not key and exists)
        if right_key and effect in {"", taint.effect} and (exists or text_at(one, "value") == taint.value):
            return True
    return False


def is_repelled(pod: Object) -> bool:
    """The scheduler says that taints keep the pod from nodes, and does not say which."""
    said = condition(pod, "PodScheduled")
    histogram = parse(text_at(said, "message")[:32_768]) if said is not None else None
    return histogram is not None and any(_is_unnamed(reason) for reason in histogram.reasons)


def _is_unnamed(reason: Counted) -> bool:
    return reason.kind is Kind.TAINT and not reason.detail


def named(pod: Object, nodes: Iterable[Object], seen: Seen) -> Seen:
    """The finding with the taints by name, when they decide, the scheduler did not name them, and nodes are known."""
    histogram = parse(seen.evidence[0].text[:32_768]) if seen.evidence else None
    main = dominant(histogram) if histogram is not None else None
    where = _repelling(pod, nodes)
    if histogram is None or main is None or not _is_unnamed(main) or not where:
        return seen
    reasons = [one for reason in histogram.reasons for one in (_by_kind(reason, where) if reason is main else [reason])]
    known = replace(histogram, reasons=tuple(reasons))
    found = judge(known, RULE)
    decides = dominant(known)
    if found is None or decides is None:
        return seen
    said, others, listed = found.sentence.partition(OTHERS)
    holders = sorted({name for taint, names in where.items() for name in names if str(taint) in decides.detail})
    return Seen(
        finding=replace(found, sentence=f"{said}{f': {_few(holders)}' if holders else ''}{others}{listed}"),
        since=seen.since,
        evidence=seen.evidence,
    )


def by_taint(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """A pod that a taint of its node ended: which one, when the node itself is well."""
    said = " ".join(message.reason for message in seen.evidence)
    node = facts.find("Node", "", text_at(pod, "spec", "nodeName")) if text_at(pod, "spec", "nodeName") else None
    if "DeletionByTaintManager" not in said or node is None:
        return seen
    expelling = [one for one in taints_of(node) if one.effect == "NoExecute" and not tolerates(pod, one)]
    taint = next((one for one in expelling if kind_of_taint(one.key) is not Kind.LOST), None)
    if taint is None or any(kind_of_taint(one.key) is Kind.LOST for one in expelling):
        return seen
    return seen.but(
        cause=Cause.EVICTED_NODE,
        reason=Reason.EVICTED_DRAIN,
        sentence=f"the pod was moved off {name_of(node)} by its taint {taint}, which the pod does not tolerate",
        next_action=f"nothing: it is tried again on another node; tolerate {taint.key} if it belongs there",
        where=name_of(node),
    )


_STATE: dict[Kind, Callable[[Object], bool]] = {
    Kind.CORDONED: lambda node: part(node, "spec", "unschedulable") is True,
    Kind.LOST: lambda node: not _is(node, "Ready", "True"),
    Kind.DISK_PRESSURE: lambda node: _is(node, "DiskPressure", "True"),
    Kind.MEMORY_PRESSURE: lambda node: _is(node, "MemoryPressure", "True") or _is(node, "PIDPressure", "True"),
}


def _is(node: Object, kind: str, status: str) -> bool:
    found = condition(node, kind)
    return found is not None and str(found.get("status")) == status


def with_names(nodes: Iterable[Object], seen: Seen) -> Seen:
    """The finding with the nodes by name, when their own state decides: cordoned, not ready, short of disk."""
    histogram = parse(seen.evidence[0].text[:32_768]) if seen.evidence else None
    main = dominant(histogram) if histogram is not None else None
    holds = _STATE.get(main.kind) if main is not None else None
    names = sorted(name_of(node) for node in nodes if holds is not None and holds(node))
    said, others, listed = seen.finding.sentence.partition(OTHERS)
    if not names or any(name in said for name in names):
        return seen
    return seen.but(sentence=f"{said}: {_few(names)}{others}{listed}")


def _repelling(pod: Object, nodes: Iterable[Object]) -> dict[Taint, list[str]]:
    """The first taint of each node that the pod does not tolerate, with the nodes' names."""
    where: dict[Taint, list[str]] = {}
    for node in nodes:
        if part(node, "spec", "unschedulable") is True:
            continue  # cordoned, which the scheduler counts for itself
        taint = next((one for one in taints_of(node) if not tolerates(pod, one)), None)
        if taint is not None:
            where.setdefault(taint, []).append(name_of(node))
    return where


def _by_kind(reason: Counted, where: dict[Taint, list[str]]) -> list[Counted]:
    """The unnamed reason as one for each kind of taint. Nodes that were not seen are taken for those of the largest."""
    kinds: dict[Kind, list[Taint]] = {}
    for taint in sorted(where):
        kinds.setdefault(classify_reason(f"untolerated taint {{{taint.key}: {taint.value}}}", 1).kind, []).append(taint)
    counts = {kind: sum(len(where[taint]) for taint in taints) for kind, taints in kinds.items()}
    most = max(counts, key=lambda kind: (counts[kind], kind is Kind.TAINT))
    if reason.count is not None:
        counts[most] += max(0, reason.count - sum(counts.values()))
    return [
        Counted(counts[kind], f"node(s) had untolerated taint {names}", kind, names)
        for kind, taints in kinds.items()
        for names in [", ".join(str(taint) for taint in taints[:_NAMED])]
    ]


def _few(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
