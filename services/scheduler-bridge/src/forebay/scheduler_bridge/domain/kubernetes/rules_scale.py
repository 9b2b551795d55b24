"""Rules for autoscalers: the cluster autoscaler's events, Karpenter's, and clouds that have nothing to give."""

from __future__ import annotations

import re

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.histogram import Counted, Kind, classify_reason
from forebay.scheduler_bridge.domain.kubernetes.names import without_names
from forebay.scheduler_bridge.domain.kubernetes.quantities import mentions_accelerator
from forebay.scheduler_bridge.domain.kubernetes.rules import MessageRule, Text
from forebay.scheduler_bridge.domain.kubernetes.scheduling import CAUSES
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, NEXT, Cause, Finding, finding

_NOT_TRIGGERED = re.compile(r"didn't trigger scale-?up:?\s*(?:\([^)]*\))?\s*(?P<list>.*)", re.IGNORECASE)
_TRIGGERED = re.compile(r"triggered scale-?up|should schedule on|scale-?up: (?:setting|group)", re.IGNORECASE)
_LIMIT = re.compile(
    r"max node group size|max cluster .* limit|in backoff after failed scale-?up|not ready for scale-?up|node group .* (?:limit|max)|max(?:imum)? (?:size|nodes)",
    re.IGNORECASE,
)
_POOLS = re.compile(
    r"incompatible with (?:nodepool|provisioner)|no instance type|exceed(?:s|ed)? limits? for (?:nodepool|provisioner)|nodepools? (?:were )?(?:found|not)|schedule pod, incompatible requirements",
    re.IGNORECASE,
)
_STOCKOUT = re.compile(
    r"insufficient ?instance ?capacity|insufficient ?capacity|stock ?out|resource_pool_exhausted|unfulfillable|out of capacity|capacity (?:is )?(?:not available|unavailable)"
    r"|no capacity|allocation ?failed|skunotavailable|failed to (?:increase|scale|launch|create) (?:node|instance|group|machine)",
    re.IGNORECASE,
)
_CLOUD_QUOTA = re.compile(
    r"quota_?exceeded|vcpulimitexceeded|quota .{0,40}exceeded|exceed\w* .{0,40}quota", re.IGNORECASE
)
_SHORTAGES = frozenset({Kind.GPU, Kind.COMPUTE})
_NO_HELP = f"have the limit of the node group raised, or {NEXT[Cause.GPU_SHORTAGE]}"


def _not_triggered(text: Text, rule: str) -> Finding | None:
    match = _NOT_TRIGGERED.search(text.flat)
    if match is None:
        if text.token != "nottriggerscaleup":  # noqa: S105 a reason of an event, no secret
            return None
        listed = text.flat
    else:
        listed = match.group("list")
    reasons = [_reason(piece) for piece in re.split(r",\s+(?=\d)", listed) if piece.strip()]
    limited = [reason for reason in reasons if _LIMIT.search(reason.text)]
    known = [reason for reason in reasons if reason.kind is not Kind.UNKNOWN]
    short = [reason for reason in known if reason.kind in _SHORTAGES]
    main = max(short or ([] if limited else known), key=lambda reason: reason.count or 1, default=None)
    # A group that may not grow is what the pod would have gone to; the other groups do not suit it.
    cause = (
        CAUSES[main.kind]
        if main
        else Cause.GPU_SHORTAGE
        if limited or mentions_accelerator(listed)
        else Cause.CPU_MEM_SHORTAGE
    )
    said = f"the autoscaler will not add a node for it: {listed.strip(' .') or 'it gives no reason'}"
    return finding(cause, said, rule, next_action=_NO_HELP if cause is Cause.GPU_SHORTAGE else None, weight=45)


def _reason(piece: str) -> Counted:
    match = re.fullmatch(r"(\d+) (.*)", piece.strip(" ."))
    return classify_reason(match.group(2), int(match.group(1))) if match else classify_reason(piece.strip(" ."), None)


def _triggered(text: Text, rule: str) -> Finding | None:
    if text.token not in {"triggeredscaleup", "nominated"} and not _TRIGGERED.search(text.flat):
        return None
    if "didn't trigger" in text.flat:
        return None
    return finding(
        Cause.OTHER,
        "the autoscaler is adding a node for it",
        rule,
        reason=Reason.SCALE_UP_TRIGGERED,
        layer=None,
        next_action=LATER,
        weight=28,
    )


def _pools(text: Text, rule: str) -> Finding | None:
    """Karpenter lists one verdict for each node pool; a pool that is only too small counts before pools that do not suit."""
    if not _POOLS.search(text.flat):
        return None
    pools = re.split(r";\s*(?=incompatible with|all available)", text.flat)
    short = [
        pool
        for pool in pools
        if re.search(r"no instance type|exceed(?:s|ed)? limits?|insufficient|would exceed", pool, re.IGNORECASE)
    ]
    suited = [
        pool for pool in short if not re.search(r"did not tolerate|incompatible requirements", pool, re.IGNORECASE)
    ]
    if suited:
        asked = " ".join(re.findall(r"resources\s*=?\s*\{[^}]*\}", " ".join(suited))) or without_names(" ".join(suited))
        cause = Cause.GPU_SHORTAGE if mentions_accelerator(asked) else Cause.CPU_MEM_SHORTAGE
        return finding(cause, "no node pool can add a node that is large enough", rule, weight=40)
    return finding(Cause.AFFINITY_TAINT, "no node pool suits the pod's tolerations and requirements", rule, weight=40)


def _cloud(text: Text, rule: str) -> Finding | None:
    if _CLOUD_QUOTA.search(text.flat) and re.search(
        r"gce|cloud|instance|vcpu|region|machine|scale", text.flat, re.IGNORECASE
    ):
        return finding(
            Cause.QUOTA,
            "the cloud account's own quota is used up, so no node can be added",
            rule,
            next_action="have the account's quota raised",
            weight=38,
        )
    if not _STOCKOUT.search(text.flat) and text.token not in {
        "failedtoscaleupgroup",
        "scaleuptimedout",
        "insufficientcapacityerror",
    }:
        return None
    cause = Cause.GPU_SHORTAGE if mentions_accelerator(text.flat) else Cause.CPU_MEM_SHORTAGE
    return finding(
        cause,
        "the cloud has no machine of that kind to give at present",
        rule,
        next_action="wait, or allow another machine type or zone",
        weight=38,
    )


SCALE_RULES: tuple[MessageRule, ...] = (
    MessageRule("scale-up-not-triggered", 1, _not_triggered),
    MessageRule("scale-up-triggered", 2, _triggered),
    MessageRule("node-pools", 2, _pools),
)
CLOUD_RULES: tuple[MessageRule, ...] = (MessageRule("cloud-capacity", 1, _cloud),)
