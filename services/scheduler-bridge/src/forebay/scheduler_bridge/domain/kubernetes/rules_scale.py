"""Rules for autoscalers: the cluster autoscaler's events, Karpenter's, and clouds that have nothing to give."""

from __future__ import annotations

import re

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.histogram import Counted, Kind, classify_reason
from forebay.scheduler_bridge.domain.kubernetes.names import without_names
from forebay.scheduler_bridge.domain.kubernetes.quantities import mentions_accelerator
from forebay.scheduler_bridge.domain.kubernetes.rules import MessageRule, Text, telling
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
    r"insufficient ?(?:instance|host|free)? ?capacity|out of (?:host )?capacity|stock ?out|resource_pool_exhausted|unfulfillable ?capacity|capacity (?:is )?(?:not available|unavailable)"
    r"|\bno capacity\b|\w*allocation ?failed\b|overconstrained\w*allocation|sku ?not ?available|gce out of resources|(?:does|do) not have (?:enough resources available|sufficient [\w.\- ]*capacity)"
    r"|reservation ?capacity ?exceeded|capacity ?is ?not ?found|(?:spot )?max ?price ?too ?low|unavailable offerings?",
    re.IGNORECASE,
)
_CLOUD_QUOTA = re.compile(
    r"\b\w*(?:quota|limit)_?exceeded\b|gce quota exceeded|\bquota '[^']*' exceeded|exceeding approved [\w. ]*quota|(?:vcpu|instance|core|cpu|gpu)s?\b[^.:]{0,60}\b(?:quota|limit)\b[^.:]{0,40}(?:exceeded|allows|reached)"
    r"|max\w*instance\w*exceeded|(?:instance|spot|vcpu)\w*limit ?exceeded|exceed\w* .{0,40}(?:cloud|region\w*|subscription|account|family|approved)\b.{0,40}quota",
    re.IGNORECASE,
)
_OF_A_CLOUD = re.compile(
    r"\bgce\b|gke|\baws\b|azure|cloud|instance|\bvcpu|\bvm\b|region|\bzones?\b|machine|scale|\bsku|fleet|node ?claim|node ?group|ec2|googleapis|resource manager|oci\b",
    re.IGNORECASE,
)
"""Who says it makes machines: `exceeded quota` of a namespace has nothing of that."""
_CLOUD_DENIES = re.compile(
    r"(?:unauthorized ?operation|not authorized to perform|access ?denied|authorizationfailed|permission[_ ]denied|iam_permission)",
    re.IGNORECASE,
)
_NO_ADDRESS = re.compile(
    r"insufficient ?free ?addresses|ip_space_exhausted|(?:subnet|ip) \S* ?(?:is )?exhausted|no free addresses",
    re.IGNORECASE,
)
_CLOUD_TOKENS = frozenset(
    {
        "failedtoscaleupgroup",
        "failedscaleup",
        "scaleupfailed",
        "scaleuptimedout",
        "insufficientcapacityerror",
        "launchfailed",
        "capacityisnotfound",
        "failedlaunch",
        "nodeclaimlaunchfailed",
    }
)
_PLACE = re.compile(
    r"\bzones? '?(?:projects/[^/ ]+/zones/)?(?P<zone>[a-z]+(?:-[a-z0-9]+)+\d?[a-z]?(?:, ?[a-z]+(?:-[a-z0-9]+)+)*)|availability zone [^(]*\((?P<az>[\w\-]+)\)|location:? '?(?P<place>[\w\-]+)",
    re.IGNORECASE,
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
    """What a cloud answers when it is asked for a machine. Its own words tell the zone and the kind of machine."""
    if (
        "exceeded quota:" in text.flat
        or text.token in _OF_PODS
        or _NOT_TRIGGERED.search(text.flat)
        or _POOLS.search(text.flat)
    ):
        return None
    asked_for_one = text.token in _CLOUD_TOKENS
    if not asked_for_one and _OF_A_CLOUD.search(text.bare) is None:
        return None
    place = _PLACE.search(text.flat)
    where = next((found for found in place.groups() if found), None) if place else None
    said = telling(text.flat) or text.message.reason
    if _CLOUD_QUOTA.search(text.flat):
        sentence, action = (
            "the cloud account's own quota is used up, so no node can be added",
            "have the account's quota raised",
        )
        cause, code = Cause.QUOTA, Reason.CLOUD_QUOTA
    elif _NO_ADDRESS.search(text.flat):
        sentence, action = (
            "the cloud's network has no address free for another node",
            "have the subnet of the node group made larger",
        )
        cause, code = Cause.OTHER, Reason.CLOUD_CAPACITY
    elif asked_for_one and _CLOUD_DENIES.search(text.flat):
        sentence, action = (
            "the cloud does not let the autoscaler add a node",
            "grant the permission that the message names to the autoscaler's identity",
        )
        cause, code = Cause.PERMISSION, Reason.PERMISSION_DENIED
    elif _STOCKOUT.search(text.flat) or asked_for_one:
        sentence, action = (
            "the cloud has no machine of that kind to give at present",
            "wait, or allow another machine type or zone",
        )
        if not _STOCKOUT.search(text.flat):
            sentence, action = "the autoscaler could not add a node", "look at the autoscaler's log and the node group"
        cause, code = _short_of(text), Reason.CLOUD_CAPACITY
    else:
        return None
    return finding(
        cause, f"{sentence}: {said}", rule, reason=code, layer=Layer.NODE, next_action=action, where=where, weight=38
    )


def _short_of(text: Text) -> Cause:
    return (
        Cause.GPU_SHORTAGE
        if mentions_accelerator(text.flat) or not _PLAIN_MACHINE.search(text.flat)
        else Cause.CPU_MEM_SHORTAGE
    )


_PLAIN_MACHINE = re.compile(
    r"\b(?:[cmrtx]\d[a-z]*\.\w+|[a-z]\d[a-z]*-(?:standard|highmem|highcpu|medium|micro|small)\S*|standard_[bdef]\w+|cpu)\b|\bcpu-",
    re.IGNORECASE,
)
"""Machine types that carry no GPU. Which kind of machine was asked for is often not said; jobs here train."""
_OF_PODS = frozenset(
    {
        "failedcreate",
        "failedmount",
        "failedattachvolume",
        "failed",
        "backoff",
        "errimagepull",
        "imagepullbackoff",
        "provisioningfailed",
    }
)


SCALE_RULES: tuple[MessageRule, ...] = (
    MessageRule("scale-up-not-triggered", 1, _not_triggered),
    MessageRule("scale-up-triggered", 2, _triggered),
    MessageRule("node-pools", 2, _pools),
)
CLOUD_RULES: tuple[MessageRule, ...] = (MessageRule("cloud-capacity", 2, _cloud),)
