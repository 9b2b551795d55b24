"""The overlay `pod:` of a job: which Kubernetes fields it may set, and which only where the project allows it.

Everything is refused that is not listed here, at every depth, so a field that a later
Kubernetes adds opens nothing. The forms of nested fields are in `pod_forms.py`.
Secrets are names, never values (`contracts/masking.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.pod_forms import (
    AFFINITY,
    CONTAINER_SECURITY,
    DNS_CONFIG,
    HOST_ALIAS,
    LABEL,
    LABEL_VALUE,
    POD_SECURITY,
    SPREAD_CONSTRAINT,
    TOLERATION,
    Form,
    Found,
    boolean,
    form_problems,
    list_of,
    number,
    one_of,
    text,
)

Dangerous = Literal[
    "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "nodeName", "privileged", "allowPrivilegeEscalation",
    "capabilities", "seccompUnconfined", "sysctls", "procMount", "seLinuxOptions", "root", "hostAliases", "dnsConfig",
]  # fmt: skip
DANGEROUS: tuple[str, ...] = get_args(Dangerous)
"""What lets a job out of its container, past the scheduler, or between our agent and the bus."""
OUR_VARIABLE = re.compile(r"FOREBAY_.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES", re.IGNORECASE)
"""Variables that are set for each attempt."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOSTNAME = "kubernetes.io/hostname"

_LONGEST_GRACE_S = 86400
_FORMS: dict[str, Form] = {
    "imagePullSecrets": list_of({"name": text}),
    "tolerations": list_of(TOLERATION),
    "topologySpreadConstraints": list_of(SPREAD_CONSTRAINT),
    "hostAliases": list_of(HOST_ALIAS),
    "nodeSelector": {LABEL: LABEL_VALUE},
    "affinity": AFFINITY,
    "dnsConfig": DNS_CONFIG,
    "dnsPolicy": one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "runtimeClassName": text,
    "schedulerName": text,
    "enableServiceLinks": boolean,
    "automountServiceAccountToken": boolean,
    "terminationGracePeriodSeconds": number(0, _LONGEST_GRACE_S, "seconds"),
    "serviceAccountName": text,
    "securityContext": POD_SECURITY,
}
POD_FIELDS = tuple(_FORMS)
"""Fields that go into the pod's spec as they stand."""
_HOST_FORMS: dict[str, Form] = {
    "hostNetwork": boolean,
    "hostPID": boolean,
    "hostIPC": boolean,
    "shareProcessNamespace": boolean,
    "nodeName": text,
}
HOST_FIELDS = tuple(_HOST_FORMS)
"""Fields of the pod's spec that need permission."""
_CONTAINER_FORMS: dict[str, Form] = {
    "imagePullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "containerSecurityContext": CONTAINER_SECURITY,
}
CONTAINER_FIELDS = ("env", "envFrom", *_CONTAINER_FORMS)
"""Fields of the training container; the last is its own securityContext."""
_META_FORMS: dict[str, Form] = {"labels": {LABEL: LABEL_VALUE}, "annotations": {LABEL: text}}
_ALL_FORMS = {**_FORMS, **_HOST_FORMS, **_CONTAINER_FORMS, **_META_FORMS}
KNOWN = (*POD_FIELDS, *HOST_FIELDS, *CONTAINER_FIELDS, *_META_FORMS)
_OURS = {
    "containers": "Forebay writes it from `image` and `command`",
    "initContainers": "Forebay writes it",
    "volumes": "write `mounts`",
    "volumeMounts": "write `mounts`",
    "resources": "write `resources` of the job",
    "restartPolicy": "write `restart` of the job",
    "priorityClassName": "write `priority_class` of the job",
    "subdomain": "Forebay writes it for `nodes`",
    "hostname": "Forebay writes it for `nodes`",
}
_RESERVED = re.compile(
    r"(.*\.)?(forebay\.dev|kubernetes\.io|k8s\.io|x-k8s\.io)(/.*)?|job-name|controller-uid", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayRules:
    """What one project allows, by name; '*' stands for every name."""

    project: str
    allow: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    configmaps: tuple[str, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ("nvidia.com/gpu",)
    """Keys of taints."""
    annotations: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """With a domain; without one every name is the job's own."""
    runtime_classes: tuple[str, ...] = ("nvidia",)
    schedulers: tuple[str, ...] = ()


def check_overlay(overlay: Mapping[str, Any], rules: OverlayRules) -> tuple[Problem, ...]:
    """Everything that may not be said."""
    return tuple(Problem(field=f"pod.{where}", message=message) for where, message in _check(overlay, rules))


def _check(overlay: Mapping[str, Any], rules: OverlayRules) -> Found:
    for key, value in overlay.items():
        if key in _OURS:
            yield key, f"cannot be set here; {_OURS[key]}"
        elif key not in KNOWN:
            close = difflib.get_close_matches(str(key), [*KNOWN, *DANGEROUS], n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(KNOWN)}"
            yield str(key), f"no such field here; {hint}"
        elif key in _ALL_FORMS and (wrong := list(form_problems(key, value, _ALL_FORMS[key]))):
            yield from wrong
        elif key in HOST_FIELDS:
            if value:
                yield from _needs(key, key, rules)
        elif key in _CHECKS:
            yield from _CHECKS[key](key, value, rules)
    if overlay.get("automountServiceAccountToken") is True and "serviceAccountName" not in overlay:
        message = "gives the job a key of the API server; name the account that it is of with serviceAccountName"
        yield "automountServiceAccountToken", message


def _needs(where: str, permission: str, rules: OverlayRules, does: str = "lets the job out of its container") -> Found:
    if permission not in rules.allow:
        message = f"{does}; the project file of {rules.project} does not allow it"
        yield where, f"{message} (an operator would write there pod: {{allow: [{permission}]}})"


_LISTED = {
    "service_accounts": "ServiceAccount",
    "runtime_classes": "RuntimeClass",
    "schedulers": "scheduler",
    "image_pull_secrets": "Secret",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "tolerations": "taint",
    "annotations": "annotation",
    "labels": "label",
}
"""Lists of the project file: what their names are the names of."""


def _named(where: str, name: str, setting: str, rules: OverlayRules) -> Found:
    """A name that the project lists."""
    allowed: tuple[str, ...] = getattr(rules, setting)
    if name not in allowed and "*" not in allowed:
        listed = ", ".join(allowed) or "none"
        message = f"{_LISTED[setting]} {name!r} is not allowed for project {rules.project}; allowed: {listed}"
        yield where, f"{message} (pod.{setting} of the project file)"


def _service_account(key: str, value: str, rules: OverlayRules) -> Found:
    yield from _named(key, value, "service_accounts", rules)


def _runtime_class(key: str, value: str, rules: OverlayRules) -> Found:
    yield from _named(key, value, "runtime_classes", rules)


def _scheduler(key: str, value: str, rules: OverlayRules) -> Found:
    yield from _named(key, value, "schedulers", rules)


def _pull_secrets(key: str, value: list[Any], rules: OverlayRules) -> Found:
    for index, item in enumerate(value):
        if name := item.get("name"):
            yield from _named(f"{key}[{index}].name", name, "image_pull_secrets", rules)
        else:
            yield f"{key}[{index}]", "names no Secret"


def _tolerations(key: str, value: list[Any], rules: OverlayRules) -> Found:
    for index, item in enumerate(value):
        where, taint = f"{key}[{index}]", item.get("key")
        if not taint:
            yield where, "without a `key` it tolerates every taint; write the key of the taint that is meant"
        elif "*" in rules.tolerations and _RESERVED.fullmatch(taint) and taint not in rules.tolerations:
            yield f"{where}.key", f"{taint!r} is a taint of Kubernetes itself; an operator would list it by its name"
        else:
            yield from _named(f"{where}.key", taint, "tolerations", rules)


def _node_selector(key: str, value: Mapping[str, Any], rules: OverlayRules) -> Found:
    if HOSTNAME in value:
        yield from _needs(f"{key}.{HOSTNAME}", "nodeName", rules, "chooses a single node, past the scheduler")


def _affinity(key: str, value: Mapping[str, Any], rules: OverlayRules) -> Found:
    """Only node affinity can name nodes; pod affinity stays in the job's own namespace by its form."""
    for where, term in _terms(f"{key}.nodeAffinity", value.get("nodeAffinity") or {}):
        chosen = any(item.get("key") == HOSTNAME for item in term.get("matchExpressions") or ())
        if chosen or term.get("matchFields"):
            yield from _needs(where, "nodeName", rules, "chooses single nodes, past the scheduler")


def _terms(where: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    for index, term in enumerate((node.get(required) or {}).get("nodeSelectorTerms") or ()):
        yield f"{where}.{required}.nodeSelectorTerms[{index}]", term
    for index, item in enumerate(node.get(preferred) or ()):
        yield f"{where}.{preferred}[{index}].preference", item.get("preference") or {}


def _resolver(key: str, value: Any, rules: OverlayRules) -> Found:
    if value:
        does = "decides what addresses names have in the whole pod, the bus of our agent included"
        yield from _needs(key, key, rules, does)


def _dns_policy(key: str, value: str, rules: OverlayRules) -> Found:
    if value == "None":
        yield from _needs(key, "dnsConfig", rules, "goes with a dnsConfig of the job's own")


def _is_not_default(profile: Mapping[str, Any]) -> bool:
    return profile.get("type") != "RuntimeDefault"


_GUARDED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "runAsUser": ("root", lambda value: value == 0),
    "runAsGroup": ("root", lambda value: value == 0),
    "fsGroup": ("root", lambda value: value == 0),
    "supplementalGroups": ("root", lambda value: 0 in value),
    "runAsNonRoot": ("root", lambda value: not value),
    "privileged": ("privileged", bool),
    "allowPrivilegeEscalation": ("allowPrivilegeEscalation", bool),
    "capabilities": ("capabilities", lambda value: bool(value.get("add"))),
    "seccompProfile": ("seccompUnconfined", _is_not_default),
    "appArmorProfile": ("seccompUnconfined", _is_not_default),
    "procMount": ("procMount", lambda value: value != "Default"),
    "sysctls": ("sysctls", bool),
    "seLinuxOptions": ("seLinuxOptions", bool),
}
"""Fields of a securityContext: the permission, and the values that need it."""


def _security(key: str, value: Mapping[str, Any], rules: OverlayRules) -> Found:
    for name, inner in value.items():
        permission, needs_it = _GUARDED.get(name, ("", lambda _: False))
        if not needs_it(inner):
            continue
        if permission == "root":
            yield from _needs(f"{key}.{name}", permission, rules, "may make the job root")
        else:
            yield from _needs(f"{key}.{name}", permission, rules)


def _env(key: str, value: Any, rules: OverlayRules) -> Found:
    if not isinstance(value, list):
        yield key, "expected a list: [{name: WANDB_API_KEY, valueFrom: {secretKeyRef: {name: wandb, key: api}}}]"
        return
    for index, item in enumerate(value):
        where = f"{key}[{index}]"
        name = item.get("name") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not VARIABLE.fullmatch(name):
            yield where, "needs a `name` of letters, digits and '_'"
        elif OUR_VARIABLE.fullmatch(name):
            yield where, f"{name} is set by Forebay for each attempt; leave it out"
        elif unknown := sorted(str(field) for field in set(item) - {"name", "value", "valueFrom"}):
            yield f"{where}.{unknown[0]}", "no such field here; known are name, value, valueFrom"
        elif "valueFrom" in item:
            yield from _value_from(where, item, rules)
        elif not isinstance(item.get("value", ""), str):
            yield where, f"the value of {name} must be a text; put it into quotes"


_KEY_REF: Form = {"name": text, "key": text, "optional": boolean}
_FIELDS_OF_POD = re.compile(
    r"metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['[^'\n]{1,317}'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs)"
)
_SOURCES: dict[str, Form] = {
    "secretKeyRef": _KEY_REF,
    "configMapKeyRef": _KEY_REF,
    "fieldRef": {"fieldPath": text, "apiVersion": text},
    "resourceFieldRef": {"resource": text, "containerName": text, "divisor": text},
}


def _value_from(where: str, item: Mapping[str, Any], rules: OverlayRules) -> Found:
    source = item["valueFrom"]
    if "value" in item or not isinstance(source, Mapping) or len(source) != 1 or next(iter(source)) not in _SOURCES:
        yield f"{where}.valueFrom", f"expected one of {', '.join(_SOURCES)}, and no value"
        return
    ((kind, reference),) = source.items()
    where = f"{where}.valueFrom.{kind}"
    if wrong := list(form_problems(where, reference, _SOURCES[kind])):
        yield from wrong
    elif kind == "fieldRef" and not _FIELDS_OF_POD.fullmatch(str(reference.get("fieldPath"))):
        yield where, "names no field that a variable may have, for example metadata.name"
    elif kind in {"secretKeyRef", "configMapKeyRef"}:
        yield from _source(where, kind.removesuffix("KeyRef"), reference, rules)


def _env_from(key: str, value: Any, rules: OverlayRules) -> Found:
    if not isinstance(value, list):
        yield key, "expected a list: [{secretRef: {name: wandb}}]"
        return
    for index, item in enumerate(value):
        where = f"{key}[{index}]"
        sources = set(item) - {"prefix"} if isinstance(item, Mapping) else set()
        if len(sources) != 1 or not sources <= {"secretRef", "configMapRef"}:
            yield where, "expected secretRef or configMapRef with a name"
            continue
        prefix, kind = item.get("prefix", "_"), sources.pop()
        if not isinstance(prefix, str) or not VARIABLE.fullmatch(prefix) or OUR_VARIABLE.fullmatch(prefix):
            yield f"{where}.prefix", "expected letters, digits and '_', and not a prefix of Forebay's own variables"
        elif wrong := list(form_problems(f"{where}.{kind}", item[kind], {"name": text, "optional": boolean})):
            yield from wrong
        else:
            yield from _source(f"{where}.{kind}", kind.removesuffix("Ref"), item[kind], rules)


def _source(where: str, kind: str, reference: Mapping[str, Any], rules: OverlayRules) -> Found:
    setting = "configmaps" if kind == "configMap" else "secrets"
    name = reference.get("name")
    if not name:
        yield where, f"names no {_LISTED[setting]}"
    else:
        yield from _named(where, name, setting, rules)


def _labels(key: str, value: Mapping[str, Any], rules: OverlayRules) -> Found:
    for name in value:
        if _RESERVED.fullmatch(name):
            yield f"{key}.{name}", "belongs to Forebay, Kueue or Kubernetes"
        elif "/" in name:
            yield from _named(f"{key}.{name}", name, "labels", rules)


def _annotations(key: str, value: Mapping[str, Any], rules: OverlayRules) -> Found:
    """Runtimes, networks and side-cars are steered by annotations, so each needs to be listed."""
    for name in value:
        if _RESERVED.fullmatch(name):
            yield f"{key}.{name}", "belongs to Forebay, Kueue or Kubernetes"
        else:
            yield from _named(f"{key}.{name}", name, "annotations", rules)


_CHECKS: dict[str, Callable[[str, Any, OverlayRules], Found]] = {
    "serviceAccountName": _service_account,
    "runtimeClassName": _runtime_class,
    "schedulerName": _scheduler,
    "imagePullSecrets": _pull_secrets,
    "tolerations": _tolerations,
    "nodeSelector": _node_selector,
    "affinity": _affinity,
    "hostAliases": _resolver,
    "dnsConfig": _resolver,
    "dnsPolicy": _dns_policy,
    "securityContext": _security,
    "containerSecurityContext": _security,
    "env": _env,
    "envFrom": _env_from,
    "labels": _labels,
    "annotations": _annotations,
}
