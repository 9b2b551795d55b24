"""Rules for what the API server refuses: quotas, limits, policies, webhooks, permissions, names."""

from __future__ import annotations

import re
from decimal import Decimal

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.quantities import amount
from forebay.scheduler_bridge.domain.kubernetes.rules import MessageRule, Text, pattern
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Finding, finding

_EXCEEDED = re.compile(
    r"exceeded quota:\s*(?P<name>[^,\s]+),\s*requested:\s*(?P<requested>.*?),\s*used:\s*(?P<used>.*?),\s*limited:\s*(?P<limited>[^\s\]}]+)",
    re.IGNORECASE,
)
_NAMESPACE = "wait until other objects of the namespace are gone, or have {} raised; a queue has no part in it"
_PAIR = re.compile(r"([^=,\s]+)=([^,\s]+)")


def _quota(text: Text, rule: str) -> Finding | None:
    match = _EXCEEDED.search(text.flat)
    if match is None:
        if not re.search(r"\bexceeded quota\b|insufficient quota to match these scopes", text.flat, re.IGNORECASE):
            return None
        return finding(
            Cause.QUOTA,
            "a ResourceQuota of the namespace is used up",
            rule,
            reason=Reason.NAMESPACE_QUOTA,
            next_action=_NAMESPACE.format("the namespace's ResourceQuota"),
            weight=20,
        )
    requested, used, limited = (_amounts(match.group(part)) for part in ("requested", "used", "limited"))
    over = [
        name
        for name, value in requested.items()
        if name in limited and value + used.get(name, Decimal(0)) > limited[name]
    ]
    never = [name for name in over if requested[name] > limited[name]]
    shown = never or over or list(requested)
    asked = _pairs(match.group("requested"))
    have, most = _pairs(match.group("used")), _pairs(match.group("limited"))
    numbers = "; ".join(
        f"{name}: {asked.get(name, '?')} asked, {have.get(name, '?')} of {most.get(name, '?')} used" for name in shown
    )
    sentence = f"ResourceQuota {match.group('name')} of the namespace leaves no room ({numbers})"
    if never:
        sentence += "; the request alone is larger than the quota"
    return finding(
        Cause.QUOTA,
        sentence,
        rule,
        reason=Reason.NEVER_FITS if never else Reason.NAMESPACE_QUOTA,
        next_action=f"ask for less, or have the ResourceQuota {match.group('name')} raised"
        if never
        else _NAMESPACE.format(f"the ResourceQuota {match.group('name')}"),
        need=", ".join(f"{name}={asked[name]}" for name in shown if name in asked) or None,
        have=", ".join(f"{name}={have.get(name, '?')} of {most[name]} used" for name in shown if name in most) or None,
        where=match.group("name"),
        fits="never" if never else "unknown",
        weight=20,
    )


def _pairs(text: str) -> dict[str, str]:
    return {name: value.rstrip(".;") for name, value in _PAIR.findall(text)}


def _amounts(text: str) -> dict[str, Decimal]:
    return {name: found for name, value in _pairs(text).items() if (found := amount(value)) is not None}


_MUST = re.compile(r"(?:failed quota: (?P<name>[^:\s]+): )?must specify (?P<need>[^\]}]+)", re.IGNORECASE)
_OF_CONTAINERS = re.compile(r"(?P<resource>[\w.\-/]+) for: (?P<containers>[\w.\-, ]+)")


def _must_specify(text: Text, rule: str) -> Finding | None:
    """A quota that counts a resource takes no pod whose containers do not say how much of it they want."""
    match = _MUST.search(text.flat)
    if match is None or not re.search(r"failed quota|(?:limits|requests)\.", text.flat, re.IGNORECASE):
        return None
    listed = _OF_CONTAINERS.findall(match.group("need"))
    resources = list(dict.fromkeys(name for name, _ in listed)) or [match.group("need").strip(" .")]
    named = list(dict.fromkeys(name.strip() for _, names in listed for name in names.split(",") if name.strip()))
    whose = f" of container {', '.join(named)}" if named else " of every container, init containers too,"
    quota = f" {match.group('name')}" if match.group("name") else ""
    return finding(
        Cause.ADMISSION_DENIED,
        f"the namespace's quota{quota} demands that {', '.join(resources)}{whose} be set",
        rule,
        next_action=f"set {', '.join(resources)}{whose.rstrip(',')}, and submit again",
        need=", ".join(resources),
        where=match.group("name"),
        weight=20,
    )


_FORBIDDEN = r"(?:is forbidden|forbidden:)"
_MEND = "change the pod so that it meets the policy that the message names, and submit again"

API_RULES: tuple[MessageRule, ...] = (
    MessageRule("resource-quota", 3, _quota),
    MessageRule("quota-needs-requests", 2, _must_specify),
    pattern(
        "pod-security",
        Cause.ADMISSION_DENIED,
        "pod security[ ({name})] forbids the pod[: {what}]",
        r"violates PodSecurity \"?(?P<name>[\w.:\-]+)\"?:? ?(?P<what>.*)",
        r"podsecuritypolic",
        r"unable to validate against any (?:pod security policy|security context constraint)",
        version=2,
        do="set what the message lists in the pod's securityContext, and submit again",
        weight=20,
    ),
    pattern(
        "limit-range",
        Cause.ADMISSION_DENIED,
        "a LimitRange of the namespace forbids the pod[: {what}]",
        r"(?P<what>(?:maximum|minimum) [\w.\-/]+ usage per \w+ is (?P<have>[\w.]+),? but (?:limit|request) is (?P<need>[\w.]+))",
        r"(?P<what>(?:maximum|minimum) [\w.\-/]+ usage per \w+ is (?P<have>[\w.]+)[^,\]]*)",
        r"(?P<what>[\w.\-/]+ max limit to request ratio per \w+ is (?P<have>[\w.]+)[^\]]*)",
        r"(?:\[\"?(?P<need>[\w.\-/]+)[^\]]*\]: )?(?P<what>requests must not be (?:above|below) the limitrange m(?:ax|in))",
        r"(?P<what>didn't satisfy limitrange constraints.{0,160})",
        version=2,
        do="bring the request inside the LimitRange, or have it changed",
        weight=20,
    ),
    pattern(
        "queue-closed-at-creation",
        Cause.QUEUE_MISCONFIG,
        "the queue does not take the job[: {name}]",
        r"(?P<name>unable to find (?:job )?queue[^.]*)",
        r"(?P<name>can only submit \w+ to (?:leaf queue|queue with state `?Open`?)[^.]*)",
        r"(?P<name>can ?not submit \w+ to root queue)",
        r"(?P<name>queue[s.\w]* \"?[\w.\-]+\"? (?:is|status is) `?(?:closed|closing))",
        version=2,
        code=Reason.QUEUE_STOPPED,
        weight=20,
    ),
    pattern(
        "webhook-down",
        Cause.OTHER,
        "the webhook[ {webhook}], which must be asked, does not answer[: {why}]",
        r"failed calling webhook \"?(?P<webhook>[\w.\-]+)\"?:? ?(?:failed to call webhook: )?(?P<why>.*)",
        r"failed to call webhook",
        r"no endpoints available for service",
        code=Reason.WEBHOOK_UNAVAILABLE,
        layer=Layer.JOB_OBJECT,
        do="look at the webhook's pods and certificate; creating the object is tried again",
        version=3,
        weight=20,
    ),
    pattern(
        "webhook-denied",
        Cause.ADMISSION_DENIED,
        "the admission webhook[ {webhook}] denied the object[: {why}]",
        r"admission webhook \"?(?P<webhook>[\w.\-]+)\"? (?:denied|does not support|rejected)[\w ]*:? ?(?P<why>.*)",
        do=_MEND,
        version=2,
        weight=20,
    ),
    pattern(
        "admission-policy",
        Cause.ADMISSION_DENIED,
        "the admission policy[ {name}] denied the object[: {why}]",
        r"validatingadmissionpolicy '?(?P<name>[\w.\-]+)'? .*denied(?: request)?:? ?(?P<why>.*)",
        r"mutatingadmissionpolicy '?(?P<name>[\w.\-]+)'?",
        r"(?:denied|blocked) (?:by|due to)(?: the)?(?: following)? polic(?:y|ies) ?(?P<name>[\w.\-]*)",
        version=2,
        do=_MEND,
        weight=20,
    ),
    pattern(
        "rbac",
        Cause.PERMISSION,
        "{name|the identity that was used} may not do this[: {what}]",
        r"user \"?(?P<name>[^\"\s,()]+)\"? (?P<what>cannot \w+ (?:resource )?\"?[\w./\-]+\"?)",
        r"(?P<what>(?:is )?not authorized to perform[:\s]+\S+)",
        r"(?P<what>attempting to grant RBAC permissions not currently held)",
        r"(?P<what>refers to a resource you can't set finalizers on)",
        where="apiError event condition jobCondition",
        unless=r"(?:attach|mount|map)\w*\.\w+ failed|failed to (?:provision|attach|mount)|pull",
        version=3,
        do="grant the missing verb to that identity (Role and RoleBinding)",
        weight=20,
    ),
    pattern(
        "unauthorized",
        Cause.PERMISSION,
        "the API server does not accept the credentials",
        r"^\W*(?:error: )?(?:unauthorized|you must be logged in|the server has asked for the client to provide credentials)",
        r"(?:token|certificate)[\w ]* (?:has )?expired",
        where="apiError",
        version=2,
        weight=20,
    ),
    pattern(
        "unauthorized-token",
        Cause.PERMISSION,
        "the API server does not accept the credentials",
        tokens="Unauthorized",
        where="apiError",
    ),
    pattern(
        "service-account-missing",
        Cause.CONFIG,
        "the service account[ {name}] does not exist",
        r"error looking up service account (?P<name>[\w./\-]+)",
        r"serviceaccounts? \"(?P<name>[^\"]+)\" not found",
        code=Reason.CONFIG_MISSING,
        layer=Layer.JOB_OBJECT,
        do="create the service account[ {name}], or correct its name in the job",
        weight=20,
    ),
    pattern(
        "class-missing",
        Cause.CONFIG,
        "the pod names the class[ {name}], which does not exist",
        r"no PriorityClass with name (?P<name>[\w.\-]+) was found",
        r"runtimeclass(?:es)?(?:[.\w\-]*) \"?(?P<name>[\w.\-]+)\"? (?:not found|doesn't exist|does not exist)",
        r"(?:workload)?priorityclass(?:es)?(?:[.\w\-]*) \"?(?P<name>[\w.\-]+)\"? (?:not found|doesn't exist|does not exist)",
        code=Reason.CONFIG_MISSING,
        layer=Layer.JOB_OBJECT,
        do="create the class[ {name}], or correct its name in the job",
        version=2,
        weight=20,
    ),
    pattern(
        "name-taken",
        Cause.OTHER,
        "an object of that name exists already[: {name}]",
        r"\"(?P<name>[^\"]+)\" already exists",
        where="apiError event",
        code=Reason.NAME_CONFLICT,
        layer=Layer.JOB_OBJECT,
        do="look at the existing object: ours is adopted, a foreign one needs another name",
        weight=20,
    ),
    pattern(
        "spec-invalid",
        Cause.CONFIG,
        "the API server finds the object invalid[: {what}]",
        r"is invalid: (?P<what>.{1,200})",
        r"(?P<what>(?:invalid value|required value|unsupported value|field is immutable)[^;]{0,160})",
        r"(?P<what>no matches for kind [^;]{1,120}|error validating data[^;]{1,160}|could not find the requested resource[^;]{0,80})",
        r"(?P<what>(?:unknown|strict decoding error: unknown) field [^;]{1,120})",
        where="apiError",
        version=2,
        layer=Layer.JOB_OBJECT,
        weight=20,
    ),
    pattern(
        "requests-over-limits",
        Cause.CONFIG,
        "the pod asks for more than its own limit allows",
        r"requests? must not exceed its limits?",
        layer=Layer.JOB_OBJECT,
        do="make each request at most as large as its limit",
        weight=20,
    ),
    pattern(
        "created-invalid",
        Cause.CONFIG,
        "what should be created is not valid[: {what}]",
        r"error creating: \w[\w.]* \"[^\"]*\" is invalid: (?P<what>.{1,200})",
        r"\bspec\.\S+: (?P<what>(?:invalid|required|unsupported|duplicate) value.{0,160})",
        r"(?:found validation errors|could not construct workload): (?P<what>.{1,200})",
        version=2,
        layer=Layer.JOB_OBJECT,
        weight=20,
    ),
    pattern(
        "namespace-terminating",
        Cause.ADMISSION_DENIED,
        "the namespace[ {name}] is being deleted, so nothing new may be made in it",
        r"(?:in namespace \"?(?P<name>[\w.\-]+)\"? )?because it is being terminated",
        code=Reason.BEING_DELETED,
        do="submit the job to another namespace; to have this one again, see what holds its deletion (kubectl describe namespace)",
        weight=20,
    ),
    pattern(
        "forbidden",
        Cause.ADMISSION_DENIED,
        "the cluster refuses to create the object[: {said}]",
        r"(?:pods?|jobs?(?:\.batch)?|persistentvolumeclaims?|workloads?[\w.]*|services?|podgroups?[\w.]*) \"?[\w.\-/]*\"? "
        + _FORBIDDEN,
        r"error creating: .*" + _FORBIDDEN,
        unless=r"failed to pull|pull access|volume \"",
        version=4,
        weight=25,
    ),
    pattern(
        "api-timeout",
        Cause.TIMEOUT,
        "the API server did not answer in time; whether it did what was asked is not known",
        r"request did not complete within (?:the )?requested timeout|in the time allotted",
        r"(?:etcdserver|etcd): .*(?:timed out|timeout)",
        r"gateway time-?out",
        r"context deadline exceeded|client\.timeout|i/o timeout|tls handshake timeout",
        where="apiError",
        layer=Layer.JOB_OBJECT,
        do="read the object before trying again: it may exist",
        version=2,
        weight=20,
    ),
    pattern(
        "creation-timeout",
        Cause.TIMEOUT,
        "the API server did not answer in time; it is tried again",
        r"error creating: .*(?:request did not complete within|timed? ?out|deadline exceeded)",
        layer=Layer.JOB_OBJECT,
        do="nothing: the controller tries again",
        weight=40,
    ),
    pattern(
        "api-unreachable",
        Cause.OTHER,
        "the API server cannot be reached or asks for patience[: {said}]",
        r"too old resource version|too many requests|connection refused|etcdserver|leader changed|service unavailable|internal ?error",
        where="apiError",
        layer=Layer.JOB_OBJECT,
        do="nothing: it is tried again with a growing delay",
        version=2,
        weight=40,
    ),
)
