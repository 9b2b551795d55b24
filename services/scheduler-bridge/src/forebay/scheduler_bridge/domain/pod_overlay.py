"""The overlay `pod:` of a job: which Kubernetes fields it may set, and which only where the project allows it.

Everything is refused that is not listed here, so a field that a later Kubernetes adds
opens nothing. Secrets are names, never values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from forebay.scheduler_bridge.domain.job_file import Problem

Dangerous = Literal[
    "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "nodeName", "privileged", "allowPrivilegeEscalation",
    "capabilities", "seccompUnconfined", "sysctls", "procMount", "seLinuxOptions",
]  # fmt: skip
DANGEROUS: tuple[str, ...] = get_args(Dangerous)
"""What lets a job out of its container, or past the scheduler."""
SECRET_NAME = re.compile(
    r"(.*_TOKEN|TOKEN|.*PASSWORD.*|.*PASSWD.*|.*SECRET.*|AWS_.*|.*API_KEY|.*PRIVATE_KEY.*)", re.IGNORECASE
)
"""Variables whose value is most likely a secret."""
OUR_VARIABLE = re.compile(r"FOREBAY_.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES", re.IGNORECASE)
"""Variables that are set for each attempt."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_POD_LISTS = ("imagePullSecrets", "tolerations", "topologySpreadConstraints", "hostAliases")
_POD_MAPS = ("nodeSelector", "affinity", "dnsConfig")
_POD_TEXTS = ("runtimeClassName", "schedulerName", "dnsPolicy")
_POD_SWITCHES = ("enableServiceLinks", "automountServiceAccountToken")
POD_FIELDS = (
    *_POD_LISTS, *_POD_MAPS, *_POD_TEXTS, *_POD_SWITCHES, "terminationGracePeriodSeconds", "serviceAccountName",
    "securityContext",
)  # fmt: skip
"""Fields that go into the pod's spec as they stand."""
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "nodeName")
"""Fields of the pod's spec that need permission."""
CONTAINER_FIELDS = ("env", "envFrom", "imagePullPolicy", "containerSecurityContext")
"""Fields of the training container; the last is its own securityContext."""
META_FIELDS = ("labels", "annotations")
KNOWN = (*POD_FIELDS, *HOST_FIELDS, *CONTAINER_FIELDS, *META_FIELDS)
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
_POD_SECURITY = frozenset(
    {"runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "fsGroupChangePolicy", "supplementalGroups"}
)
_CONTAINER_SECURITY = frozenset({"runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem"})
_LONGEST_GRACE_S = 86400
_RESERVED = re.compile(r"(.*\.)?(forebay\.dev|kubernetes\.io|k8s\.io)(/.*)?|(.*\.)?x-k8s\.io/.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayRules:
    """What one project allows."""

    project: str
    allow: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def check_overlay(overlay: Mapping[str, Any], rules: OverlayRules) -> tuple[Problem, ...]:
    """Everything that may not be said."""
    return tuple(Problem(field=f"pod.{where}", message=message) for where, message in _check(overlay, rules))


_Found = Iterator[tuple[str, str]]


def _check(overlay: Mapping[str, Any], rules: OverlayRules) -> _Found:
    for key, value in overlay.items():
        if key in _OURS:
            yield key, f"cannot be set here; {_OURS[key]}"
        elif key not in KNOWN:
            close = difflib.get_close_matches(str(key), [*KNOWN, *DANGEROUS], n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(KNOWN)}"
            yield str(key), f"no such field here; {hint}"
        else:
            yield from _field(key, value, rules)


def _field(key: str, value: Any, rules: OverlayRules) -> _Found:
    if key in _CHECKS:
        yield from _CHECKS[key](key, value, rules)
    elif key in HOST_FIELDS:
        if value:
            yield from _needs(key, key, rules)
    elif (wanted := _form_problem(key, value)) is not None:
        yield key, f"expected {wanted}, found {value!r:.60}"


def _form_problem(key: str, value: Any) -> str | None:
    """What the value should be; None when it is."""
    if key in _POD_LISTS:
        fits = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
        return None if fits else "a list of mappings"
    if key in _POD_MAPS:
        return None if isinstance(value, Mapping) else "a mapping"
    if key in _POD_SWITCHES:
        return None if isinstance(value, bool) else "true or false"
    if key == "terminationGracePeriodSeconds":
        fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LONGEST_GRACE_S
        return None if fits else f"seconds, 0 to {_LONGEST_GRACE_S}"
    return None if isinstance(value, str) and value else "a text"


def _needs(where: str, permission: str, rules: OverlayRules) -> _Found:
    if permission not in rules.allow:
        message = (
            f"lets the job out of its container; the project file of {rules.project} does not allow it"
            f" (an operator would write there pod: {{allow: [{permission}]}})"
        )
        yield where, message


def _service_account(key: str, value: Any, rules: OverlayRules) -> _Found:
    if value not in rules.service_accounts:
        allowed = ", ".join(rules.service_accounts) or "none"
        yield key, f"{value!r} is not allowed for project {rules.project}; allowed: {allowed}"


def _pod_security(key: str, value: Any, rules: OverlayRules) -> _Found:
    yield from _security(key, value, rules, _POD_SECURITY)


def _container_security(key: str, value: Any, rules: OverlayRules) -> _Found:
    yield from _security(key, value, rules, _CONTAINER_SECURITY)


def _security(key: str, value: Any, rules: OverlayRules, harmless: frozenset[str]) -> _Found:
    if not isinstance(value, Mapping):
        yield key, f"expected a mapping, found {value!r:.60}"
        return
    for name, inner in value.items():
        if name in harmless:
            continue
        permission = _permission_for(name, inner, of_container=harmless is _CONTAINER_SECURITY)
        if permission is None:
            yield f"{key}.{name}", f"no such field here; known are {', '.join(sorted(harmless))}"
        elif permission:
            yield from _needs(f"{key}.{name}", permission, rules)


def _permission_for(name: str, value: Any, *, of_container: bool) -> str | None:
    """The permission that a field of a securityContext needs; "" for none; None when it may not stand there."""
    if name in {"privileged", "allowPrivilegeEscalation"} and of_container:
        return name if value else ""
    if name == "capabilities" and of_container:
        return "" if isinstance(value, Mapping) and set(value) <= {"drop"} else name
    if name == "seccompProfile":
        return "" if isinstance(value, Mapping) and value.get("type") == "RuntimeDefault" else "seccompUnconfined"
    return name if name in {"sysctls", "procMount", "seLinuxOptions"} else None


def _env(key: str, value: Any, rules: OverlayRules) -> _Found:
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
        elif "valueFrom" in item:
            yield from _value_from(where, item["valueFrom"], rules)
        elif SECRET_NAME.fullmatch(name):
            yield where, f"{name} looks like a secret: secrets are names, never values; write valueFrom: secretKeyRef"
        elif not isinstance(item.get("value", ""), str):
            yield where, f"the value of {name} must be a text; put it into quotes"


def _value_from(where: str, source: Any, rules: OverlayRules) -> _Found:
    kinds = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef")
    if not isinstance(source, Mapping) or len(source) != 1 or next(iter(source)) not in kinds:
        yield f"{where}.valueFrom", f"expected one of {', '.join(kinds)}"
    elif "secretKeyRef" in source:
        yield from _secret(f"{where}.valueFrom.secretKeyRef", source["secretKeyRef"], rules)


def _env_from(key: str, value: Any, rules: OverlayRules) -> _Found:
    if not isinstance(value, list):
        yield key, "expected a list: [{secretRef: {name: wandb}}]"
        return
    for index, item in enumerate(value):
        where = f"{key}[{index}]"
        sources = set(item) - {"prefix"} if isinstance(item, Mapping) else set()
        if len(sources) != 1 or not sources <= {"secretRef", "configMapRef"}:
            yield where, "expected secretRef or configMapRef with a name"
        elif "secretRef" in item:
            yield from _secret(f"{where}.secretRef", item["secretRef"], rules)


def _secret(where: str, reference: Any, rules: OverlayRules) -> _Found:
    name = reference.get("name") if isinstance(reference, Mapping) else None
    if not isinstance(name, str) or not name:
        yield where, "names no Secret"
    elif name not in rules.secrets and "*" not in rules.secrets:
        allowed = ", ".join(rules.secrets) or "none"
        yield where, f"Secret {name!r} is not allowed for project {rules.project}; allowed: {allowed}"


def _metadata(key: str, value: Any, rules: OverlayRules) -> _Found:  # noqa: ARG001 every check has one form
    if not isinstance(value, Mapping):
        yield key, f"expected names and texts, found {value!r:.60}"
        return
    for name, text in value.items():
        if _RESERVED.fullmatch(str(name)):
            yield f"{key}.{name}", "belongs to Forebay, Kueue or Kubernetes"
        elif not isinstance(text, str):
            yield f"{key}.{name}", f"the value must be a text; put {text!r:.40} into quotes"


_CHECKS: dict[str, Callable[[str, Any, OverlayRules], _Found]] = {
    "serviceAccountName": _service_account,
    "securityContext": _pod_security,
    "containerSecurityContext": _container_security,
    "env": _env,
    "envFrom": _env_from,
    "labels": _metadata,
    "annotations": _metadata,
}
