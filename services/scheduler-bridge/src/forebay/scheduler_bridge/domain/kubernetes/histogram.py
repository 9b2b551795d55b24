"""The scheduler's histogram read by its grammar, in old and new wordings.

`0/N nodes are available: <count> <reason>, … . [<post filter>, ]preemption: 0/N nodes are available: <count> <reason>, …`

Counts and reasons are split only where a number follows the comma, because old texts of taints
have a comma inside. A reason without a count stopped the pod before any node was looked at.
Up to Kubernetes 1.9 the count stood behind its reason, in brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from forebay.scheduler_bridge.domain.kubernetes.names import without_names
from forebay.scheduler_bridge.domain.kubernetes.quantities import is_accelerator


class Kind(StrEnum):
    """What a reason is about."""

    GPU = "gpu"
    COMPUTE = "compute"
    TAINT = "taint"
    CONTROL_PLANE = "control-plane"
    LOST = "lost"
    DISK_PRESSURE = "disk-pressure"
    MEMORY_PRESSURE = "memory-pressure"
    LEAVING = "leaving"
    CORDONED = "cordoned"
    SELECTOR = "selector"
    PLACEMENT = "placement"
    """Other pods stand in the way: anti-affinity, spread, ports."""
    VOLUME_UNBOUND = "volume-unbound"
    VOLUME_ATTACH = "volume-attach"
    CONFIG = "config"
    GANG = "gang"
    QUOTA = "quota"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Counted:
    """One reason and on how many nodes it holds; None when it was said without a count."""

    count: int | None
    text: str
    kind: Kind
    detail: str = ""
    """The taint's key, or the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A scheduler's message in its parts."""

    nodes: int
    reasons: tuple[Counted, ...]
    post_filter: str = ""
    not_helpful: int | None = None
    """Nodes on which ending other pods would not help; None when nothing was said."""
    no_victims: int | None = None
    """Nodes on which it would help, had anybody less important been there."""

    @property
    def uncounted(self) -> tuple[Counted, ...]:
        return tuple(reason for reason in self.reasons if reason.count is None)

    @property
    def counted(self) -> tuple[tuple[int, Counted], ...]:
        return tuple((reason.count, reason) for reason in self.reasons if reason.count is not None)


_HEAD = re.compile(
    r"(?:\d{1,6}/(\d{1,6}) (?:nodes|node\(s\)|node) (?:(?:are|is) )?(?:un)?available|\ball nodes are unavailable)\s*:?\s*",
    re.IGNORECASE,
)
"""Volcano may say `all nodes` without their number; then the counts say how many there are."""
_OLD_HEAD = re.compile(
    r"(?:no nodes are available that match all of the (?:following )?predicates|fit failure summary on nodes)\s*:+\s*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"\bpreemption:\s*", re.IGNORECASE)
_SPLIT = re.compile(r"(?:,|\.|;)\s+(?=\d{1,6} )")
_COUNTED = re.compile(r"(\d{1,6}) (.+)", re.DOTALL)
_BEHIND = re.compile(r"([A-Za-z][^(),]*?)\s*\((\d{1,6})\)")
_POST_FILTER = re.compile(r"\.\s+([A-Za-z][^.]*)$")

_TAINTS = re.compile(r"taints?(?:\(s\))?\s*(\{[^{}]*\})", re.IGNORECASE)
_KEY = re.compile(r"[{,]\s*(?:key:)?\s*([\w.\-/]+)")
"""`{key: value}`, `{key=value:Effect}`, `{key value Effect <nil>}`, and several of them in one pair of braces."""

_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            Kind.VOLUME_UNBOUND,
            (
                r"unbound (?:immediate )?persistentvolumeclaim|find available persistent volumes? to bind|non-existent (?:pv|persistentvolume)|(?:persistentvolume|\bpv) \"?[\w.\-]+\"? (?:is )?not found"
                r"|(?:did not|didn't|do not) have enough free storage|no allocatable storage|exceeds allocatable storage|NoVolumeBind|VolumeBindingNoMatch"
                r"|storageclass(?:\.storage\.k8s\.io)? \S+ not found|create the persistentvolumeclaim"
                r"|deleted storage claims"
                r"|(?:persistentvolumeclaim|\bpvc\b)\s.*(?:not found|not created|being deleted|non-existent|lost its|is lost|not bound|unbound|terminating)"
                r"|error getting pvc|binding volumes|to place volume|volume capacity"
            ),
        ),
        (
            Kind.VOLUME_ATTACH,
            (
                r"volume node affinity conflict|PersistentVolume'?s? node affinity|available volume zone|volume zone conflict|NoVolumeZoneConflict|exceed(?:s|ed)? max volume count"
                r"|max volume count|MaxVolumeCount|ReadWriteOncePod|readwriteonce|no available disk|disk conflict|NoDiskConflict|volume conflict"
                r"|CSI ?node|conflict.*volume|volume limits?"
            ),
        ),
        (
            Kind.GANG,
            r"(?:pod ?group|\bgang\b).*(?:not ready|waiting|minmember|minimum)",
        ),
        (
            Kind.LOST,
            (
                r"nodes?(?:\(s\))? (?:were|was|is|are) (?:not ready|unreachable|not reachable|out of service)"
                r"|^(?:were|was|is) (?:not ready|unreachable|out of service)|node unregistered|NodeNotReady|network unavailable|not reachable"
            ),
        ),
        (Kind.DISK_PRESSURE, r"disk ?pressure|out of disk"),
        (Kind.MEMORY_PRESSURE, r"(?:memory|pid) ?pressure"),
        (Kind.CORDONED, r"(?:were|was|is|marked(?: as)?) unschedulable|NodeUnschedulable|cordoned"),
        (
            Kind.CONFIG,
            r"(?:configmap|secret|device ?class|resourceclaim(?:template)?)s?\b.*(?:not found|missing|does not exist|doesn't exist)|missing required configmaps",
        ),
        (
            Kind.GPU,
            (
                r"cannot allocate all (?:dra )?claims|resourceclaim|dynamic ?resource|resource claim|\bcard\w*|Node(?:UnfitPod|InsufficientDevice)|ExclusiveDevice"
                r"|allocated? ?cards?|\bmig profile\b|insufficient GPUs?\b|enough (?:resources?: )?(?:of )?(?:gpus?|mig)|timeSlicing|NumaNotFit"
            ),
        ),
        (
            Kind.PLACEMENT,
            (
                r"pod (?:anti-)?affinity|anti-affinity|pods? anti|topology spread|free ports|PodFitsHostPorts|host ?ports?|InterPodAffinity|MatchInterPodAffinity|NodePorts"
                r"|inter-?pod"
            ),
        ),
        (
            Kind.SELECTOR,
            r"node (?:group )?affinity|node ?selector|prefilter result|satisfy plugin|declared features|requested node name|HostName|affinity\b|NodeAffinity|label|nominated|didn't match Pod",
        ),
        (
            Kind.GANG,
            r"pod ?group|\bgang\b|minAvailable|min-?available|min ?member|min ?count|sibling pods|pgName|coscheduling|member pod",
        ),
        (
            Kind.COMPUTE,
            r"too many pods|pod number exceeded|PodFitsResources|PodExceeds\w+|resource fit failed|NodeResourcesFit|overcommit|usage exceeds? threshold|cpus? per core|cpu (?:bind|topology)|topology locality|numa|cannot align (?:pod|container)",
        ),
    )
)
_GPU_WORDS = re.compile(r"gpu|nvidia|\bnpu|\bdevices? (?:available|left)", re.IGNORECASE)
_QUOTA = re.compile(r"\bquotas?\b|quotaNotFit|elastic-?quota|quotaName|exceedDimensions", re.IGNORECASE)
_INSUFFICIENT = re.compile(
    r"(?:insufficient|not enough|didn't have enough resources?:|out ?of)\s+([\w.\-/]+(?: memory| cores)?)",
    re.IGNORECASE,
)


def parse(text: str) -> Histogram | None:
    """The histogram in a text; None when there is none. What stands before it is left out."""
    flat = " ".join(text.split())
    head = _HEAD.search(flat)
    if head is None:
        return _parse_old(flat)
    rest = flat[head.end() :]
    tail = _TAIL.search(rest)
    body = rest[: tail.start()] if tail else rest
    body = body.strip().rstrip(",").strip()
    post = ""
    if tail is not None or not body.endswith("."):
        found = _POST_FILTER.search(body)
        if found is not None and not found.group(1)[:1].isdigit():
            post, body = found.group(1), body[: found.start()]
    reasons = tuple(_reason(piece) for piece in _SPLIT.split(body.strip(" .")) if piece.strip(" .,"))
    nodes = int(head.group(1)) if head.group(1) else sum(reason.count or 0 for reason in reasons)
    helpful, victims = _tail(rest[tail.end() :], nodes) if tail else (None, None)
    return Histogram(nodes=nodes, reasons=reasons, post_filter=post, not_helpful=helpful, no_victims=victims)


def _parse_old(flat: str) -> Histogram | None:
    head = _OLD_HEAD.search(flat)
    if head is None:
        return None
    found = [(match.group(1).strip(), int(match.group(2))) for match in _BEHIND.finditer(flat, head.end())]
    if not found:
        return None
    reasons = tuple(classify_reason(text, count) for text, count in found)
    return Histogram(nodes=max(count for _, count in found), reasons=reasons)


def _reason(piece: str) -> Counted:
    piece = piece.strip(" .,")
    counted = _COUNTED.fullmatch(piece)
    if counted is None:
        behind = _BEHIND.fullmatch(piece)
        if behind is not None and not behind.group(1).endswith(("node", "pvc", "pv", "pod")):
            return classify_reason(behind.group(1).strip(), int(behind.group(2)))
        return classify_reason(piece, None)
    return classify_reason(counted.group(2).strip(), int(counted.group(1)))


def _tail(text: str, nodes: int) -> tuple[int | None, int | None]:
    """(not helpful, no victims) of the part behind `preemption:`."""
    if re.search(r"not eligible", text, re.IGNORECASE):
        return None, None
    not_helpful = sum(int(n) for n in re.findall(r"(\d{1,6}) preemption is not helpful", text, re.IGNORECASE))
    no_victims = sum(
        int(n) for n in re.findall(r"(\d{1,6}) (?:no (?:preemption )?victims|insufficient)", text, re.IGNORECASE)
    )
    if not not_helpful and not no_victims:
        return None, None
    return min(not_helpful, nodes), min(no_victims, nodes)


def classify_reason(text: str, count: int | None) -> Counted:
    """What one reason is about."""
    bare = without_names(text)
    if re.search(
        r"\btaints?\b|taint\(s\)|PodToleratesNodeTaints|TaintToleration|did not tolerate", bare, re.IGNORECASE
    ):
        return _taint(text, count)
    if _QUOTA.search(bare):
        return Counted(count, text, Kind.QUOTA)
    short = _INSUFFICIENT.search(bare)
    if short is not None and "storage" not in text.lower().replace("ephemeral-storage", ""):
        resource = short.group(1).rstrip(".,")
        return Counted(count, text, Kind.GPU if is_accelerator(resource) else Kind.COMPUTE, resource)
    for kind, pattern in _KINDS:
        if pattern.search(bare):
            return Counted(count, text, kind)
    return Counted(count, text, Kind.GPU if _GPU_WORDS.search(bare) else Kind.UNKNOWN)


_TAINT_KINDS: dict[Kind, re.Pattern[str]] = {
    kind: re.compile(keys, re.IGNORECASE)
    for kind, keys in (
        (
            Kind.LOST,
            (
                r"node(?:\.alpha)?\.kubernetes\.io/(?:unreachable|not-?ready|out-of-service|network-unavailable|unregistered)"
                r"|node\.cloudprovider\.kubernetes\.io/(?:uninitialized|shutdown)|karpenter\.sh/unregistered"
            ),
        ),
        (Kind.DISK_PRESSURE, r"node\.kubernetes\.io/disk-pressure"),
        (Kind.MEMORY_PRESSURE, r"node\.kubernetes\.io/(?:memory|pid)-pressure"),
        (Kind.CORDONED, r"node\.kubernetes\.io/unschedulable"),
        (
            Kind.LEAVING,
            r"ToBeDeletedByClusterAutoscaler|DeletionCandidateOfClusterAutoscaler|karpenter\.sh/disrupt(?:ion|ed)",
        ),
        (Kind.CONTROL_PLANE, r"node-role\.kubernetes\.io/(?:master|control-?plane|etcd|infra)|CriticalAddonsOnly"),
    )
}
"""The keys that Kubernetes and its autoscalers own. Any other key is its owner's word, whatever it is called."""


def kind_of_taint(key: str) -> Kind:
    """Some taints are conditions of a node, not a wish of its owner; only the whole key tells."""
    return next((kind for kind, keys in _TAINT_KINDS.items() if keys.fullmatch(key)), Kind.TAINT)


def _taint(text: str, count: int | None) -> Counted:
    named = _TAINTS.search(text)
    keys = _KEY.findall(named.group(1)) if named else []
    if not keys:
        keys = [
            word for word in re.findall(r"[\w.\-]+/[\w.\-]+|\w{16,}", text) if kind_of_taint(word) is not Kind.TAINT
        ]
    kinds = {kind_of_taint(key) for key in keys}
    kind = Kind.TAINT if Kind.TAINT in kinds else next((one for one in _TAINT_KINDS if one in kinds), Kind.TAINT)
    return Counted(count, text, kind, keys[0] if keys else "")
