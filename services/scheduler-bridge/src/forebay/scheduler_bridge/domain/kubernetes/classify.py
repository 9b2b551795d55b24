"""One message, one cause: the tables of rules in order, and the first that speaks.

Called for every raw text: by `diagnosis.py` for API objects, by `forebay diagnose` for lines.
The order of the tables is part of the judgement: what an autoscaler or the scheduler says about nodes is
read by its grammar before any word in it can be taken for something else.
"""

from __future__ import annotations

import re
from functools import lru_cache

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.exit_codes import EXIT_RULES, WRAPPER_RULES
from forebay.scheduler_bridge.domain.kubernetes.flavors import FLAVOR_RULES
from forebay.scheduler_bridge.domain.kubernetes.histogram import Kind, classify_reason, parse
from forebay.scheduler_bridge.domain.kubernetes.quantities import amount, is_accelerator, mentions_accelerator
from forebay.scheduler_bridge.domain.kubernetes.rules import MessageRule, Text, flatten
from forebay.scheduler_bridge.domain.kubernetes.rules_api import API_RULES
from forebay.scheduler_bridge.domain.kubernetes.rules_container import CONFIG_RULES, CONTAINER_RULES, IMAGE_RULES
from forebay.scheduler_bridge.domain.kubernetes.rules_ending import ADMISSION_ON_NODE_RULES, ENDING_RULES
from forebay.scheduler_bridge.domain.kubernetes.rules_queue import GANG_RULES, QUEUE_RULES
from forebay.scheduler_bridge.domain.kubernetes.rules_scale import CLOUD_RULES, SCALE_RULES
from forebay.scheduler_bridge.domain.kubernetes.rules_volume import DEAD_MOUNT_RULE, VOLUME_RULES
from forebay.scheduler_bridge.domain.kubernetes.scheduling import CAUSES, judge
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Finding, Message, finding

_OF_KUBELET = frozenset(
    [
        "failedmount",
        "failedattachvolume",
        "failedmapvolume",
        "failed",
        "backoff",
        "errimagepull",
        "imagepullbackoff",
        "errimageneverpull",
        "invalidimagename",
        "imageinspecterror",
        "crashloopbackoff",
        "createcontainererror",
        "createcontainerconfigerror",
        "runcontainererror",
        "starterror",
        "containercannotrun",
        "evicted",
        "oomkilled",
        "error",
        "containercreating",
        "podinitializing",
        "unhealthy",
        "killing",
        "failedcreatepodsandbox",
        "provisioningfailed",
        "failedbinding",
        "failedcreate",
        "nodenotready",
    ]
)
_MOUNTS = frozenset(["failedmount", "failedattachvolume", "failedmapvolume", "provisioningfailed"])
"""A histogram inside one of these is about the pod behind the mount."""
_LONGEST_HISTOGRAM = 32_768
"""As long as a condition may be: many taints make a long list, and its grammar is read in one pass."""


def _scheduler(text: Text, rule: str) -> Finding | None:
    if text.token in _MOUNTS:
        return None
    histogram = parse(text.message.text[:_LONGEST_HISTOGRAM].replace('\\"', '"'))
    return None if histogram is None else judge(histogram, rule)


def _bare_reason(text: Text, rule: str) -> Finding | None:
    """A scheduler's reason that came without a histogram: from a plugin, from KAI, or from a queue of its own."""
    if text.token not in {
        "unschedulable",
        "failedscheduling",
        "filteringfailed",
        "schedulererror",
        "podschedulingerrors",
        "unschedulablepod",
    }:
        return None
    reason = classify_reason(text.flat, None)
    if reason.kind is Kind.UNKNOWN:
        return None
    return finding(
        CAUSES[reason.kind], f"it cannot be placed: {text.flat[:300]}", rule, need=reason.detail or None, weight=35
    )


def _no_nodes(text: Text, rule: str) -> Finding | None:
    """Schedulers that only say that no node will do."""
    low = text.flat.casefold()
    words = (
        "no available node",
        "no nodes available",
        "all nodes are unavailable",
        "no nodes with enough resources",
        "not enough resources",
        "insufficient resources",
        "resources were not found",
        "no node in the",
        "resources available in a single node",
        "didn't have enough resource",
        "can allocate only",
    )
    if not any(word in low for word in words):
        return None
    if "no nodes available" in low:
        cause = Cause.CPU_MEM_SHORTAGE
    elif "cpu" in low or "memory" in low.replace("gpu memory", ""):
        cause = (
            Cause.GPU_SHORTAGE
            if mentions_accelerator(low) and "didn't have enough" not in low
            else Cause.CPU_MEM_SHORTAGE
        )
    else:
        cause = Cause.GPU_SHORTAGE
    return finding(cause, f"no node has room for it: {text.flat[:300]}", rule, weight=40)


_TOPPED = re.compile(
    r"requires (?P<asked>.*?)\. max (?P<name>\S+) resources available in a single node .*? is topped at (?P<most>[\d.]+)",
    re.IGNORECASE,
)


def _too_large(text: Text, rule: str) -> Finding | None:
    """KAI compares a pod with the largest node itself, and says both numbers."""
    match = _TOPPED.search(text.flat)
    if match is None:
        return None
    gpu = is_accelerator(match.group("name")) or "gpu" in match.group("name").casefold()
    asked = re.search(
        rf"{'GPU' if gpu else re.escape(match.group('name'))}s?:\s*([\d.]+)", match.group("asked"), re.IGNORECASE
    )
    need, most = amount(asked.group(1)) if asked else None, amount(match.group("most").rstrip("."))
    never = need is not None and most is not None and need > most
    return finding(
        Cause.GPU_SHORTAGE if gpu else Cause.CPU_MEM_SHORTAGE,
        f"no single node is large enough for {match.group('name')}: {match.group('asked')} asked, {match.group('most').rstrip('.')} at most",
        rule,
        reason=Reason.NEVER_FITS if never else None,
        need=f"{match.group('name')}={asked.group(1)}" if asked else None,
        have=f"{match.group('most').rstrip('.')} on the largest node",
        fits="never" if never else "unknown",
        next_action="ask for less per pod, or add a node that is large enough",
        weight=30,
    )


_STATED = re.compile(r"(?P<type>[A-Za-z]\w*)=(?:False|false)\b")
_TROUBLE_WHEN_TRUE = frozenset(
    [
        *("Evicted", "Preempted", "Failed", "FailureTarget", "DisruptionTarget", "Finished", "Suspended", "Stalled"),
        *(
            "MemoryPressure",
            "DiskPressure",
            "PIDPressure",
            "NetworkUnavailable",
            "ReplicaFailure",
            "DeactivationTarget",
        ),
    ]
)


def _over(text: Text, rule: str) -> Finding | None:
    """A condition that tells of trouble only while it is True, and is not: what its text tells is past."""
    stated = _STATED.search(text.message.object)
    past = (
        text.flat.startswith("Previously:")
        and text.message.where == "condition"
        and "reset to pending" not in text.flat.lower()
    )
    if not past and (stated is None or stated.group("type") not in _TROUBLE_WHEN_TRUE):
        return None
    what = stated.group("type") if stated is not None else "the condition"
    told = text.flat.removeprefix("Previously:").strip()
    said = f": {told}" if told else ""
    return finding(
        Cause.OTHER,
        f"{what} is over{said}",
        rule,
        next_action="nothing: look at the conditions that hold",
        weight=94,
    )


_NOT_FOUND = re.compile(
    r"\b(?P<kind>[a-z]{3,40})(?P<group>(?:\.[a-z0-9\-]+)*) \"(?P<name>[^\"]{1,253})\" (?:not found|does(?: not|n't) exist)",
    re.IGNORECASE,
)
"""As the API server says it of every kind of object: `resourceclaims.resource.k8s.io "x" not found`."""
_GONE_BY_ITSELF = frozenset({"pod", "pods", "volume", "job", "jobs", "event", "events"})


def _object_missing(text: Text, rule: str) -> Finding | None:
    match = _NOT_FOUND.search(text.flat)
    if match is None or match.group("kind").lower() in _GONE_BY_ITSELF:
        return None
    name = f'{match.group("kind")}{match.group("group")} "{match.group("name")}"'
    if match.group("kind").lower() in {"node", "nodes"}:
        return finding(
            Cause.NODE_LOST,
            f"the node {match.group('name')} does not exist any more",
            rule,
            where=match.group("name"),
            weight=20,
        )
    return finding(
        Cause.CONFIG,
        f"it names {name}, which does not exist",
        rule,
        reason=Reason.CONFIG_MISSING,
        next_action=f"create {name}, or correct its name in the job",
        need=name,
        weight=20,
    )


OVER_RULES = (MessageRule("condition-over", 1, _over),)
MISSING_RULES = (MessageRule("object-missing", 1, _object_missing),)
HISTOGRAM_RULES = (MessageRule("scheduler-histogram", 4, _scheduler),)
BARE_RULES = (
    MessageRule("larger-than-any-node", 1, _too_large),
    MessageRule("no-nodes", 2, _no_nodes),
    MessageRule("scheduler-reason", 2, _bare_reason),
)

RULES: tuple[MessageRule, ...] = (
    *OVER_RULES,
    *WRAPPER_RULES,
    *CLOUD_RULES,
    *SCALE_RULES,
    *HISTOGRAM_RULES,
    *API_RULES,
    *FLAVOR_RULES,
    DEAD_MOUNT_RULE,
    *QUEUE_RULES,
    *IMAGE_RULES,
    *(rule for rule in VOLUME_RULES if rule is not DEAD_MOUNT_RULE),
    *ENDING_RULES,
    *ADMISSION_ON_NODE_RULES,
    *GANG_RULES,
    *BARE_RULES,
    *CONFIG_RULES,
    *MISSING_RULES,
    *CONTAINER_RULES,
    *EXIT_RULES,
)
"""Every rule, in the order in which it is asked."""
_ABOUT_A_PROCESS = tuple(
    rule
    for rule in RULES
    if rule in {*WRAPPER_RULES, *EXIT_RULES}
    or rule.name
    in {
        "mount-dead",
        "own-disk-limit",
        "node-disk-eviction",
        "node-memory-eviction",
        "gpu-memory",
        "system-oom",
        "own-architecture",
        "shared-memory",
        "out-of-memory-text",
        "disk-full",
    }
)
"""What a process says before it ends are its own words: a `permission denied` there is its own affair."""
_OF_QUEUES = frozenset(rule.name for rule in QUEUE_RULES)
_OF_API = frozenset(rule.name for rule in API_RULES)


def _in_its_own_words(message: Message, text: Text) -> bool:
    return message.where == "containerStatus" and text.token == "error" and message.exit_code is not None  # noqa: S105 a reason


@lru_cache(maxsize=4096)  # every fact of a job has all of its texts judged again
def classify(message: Message) -> Finding:
    """What a message means. Always an answer: what no rule knows is `other`, with the raw text kept."""
    text = flatten(message)
    of_kubelet = text.token in _OF_KUBELET
    for rule in _ABOUT_A_PROCESS if _in_its_own_words(message, text) else RULES:
        if (of_kubelet and rule.name in _OF_QUEUES) or (text.token in _MOUNTS and rule.name in _OF_API):
            continue
        found = rule.judge(text, rule.id)
        if found is not None:
            return found
    said = text.flat[:200].rstrip(" :") or message.reason or "nothing was said"
    return finding(Cause.OTHER, f"no rule knows what this means: {said}", "unknown@1", weight=95)


def classify_message(
    *,
    source: str = "",
    where: str = "",
    reason: str = "",
    message: str = "",
    exit_code: int | None = None,
    object: str = "",  # noqa: A002 the name of the field in the line
) -> Cause:
    """Only the cause of one line."""
    return classify(
        Message(source=source, where=where, reason=reason, text=message, exit_code=exit_code, object=object)
    ).cause
