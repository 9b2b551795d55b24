"""The forms that fields of `pod:` may have: what is not written here may not stand there, at any depth.

A form is a check of one value, a mapping of known fields to their forms, or a list of a
form. Values of another type are told by their type, never repeated: one may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

Found = Iterator[tuple[str, str]]
Check = Callable[[Any], str | None]
"""What is expected; None when the value is that."""
Form = Union["Check", "Each", Mapping[Any, "Form"]]


@dataclass(frozen=True, slots=True)
class Each:
    """A list whose items have one form."""

    form: Form
    least: int = 0


def list_of(form: Form, *, least: int = 0) -> Each:
    return Each(form, least)


def form_problems(where: str, value: Any, form: Form) -> Found:
    """Everything that does not have its form."""
    if isinstance(form, Each):
        if not isinstance(value, list) or len(value) < form.least:
            what = "a list of mappings" if isinstance(form.form, Mapping) else "a list"
            yield where, f"expected {what}, found {_kind(value)}"
            return
        for index, item in enumerate(value):
            yield from form_problems(f"{where}[{index}]", item, form.form)
    elif isinstance(form, Mapping):
        yield from _fields(where, value, form)
    elif (expected := form(value)) is not None:
        yield where, f"expected {expected}, found {_kind(value)}"


def _fields(where: str, value: Any, form: Mapping[Any, Form]) -> Found:
    if not isinstance(value, Mapping):
        yield where, f"expected a mapping, found {_kind(value)}"
        return
    free = next(((name, inner) for name, inner in form.items() if isinstance(name, re.Pattern)), None)
    for name, inner in value.items():
        if free is not None:
            if not isinstance(name, str) or not free[0].fullmatch(name):
                yield (
                    where,
                    "holds a name that is no name of a label: letters, digits, '-', '_' and '.', after a domain and '/'",
                )
            else:
                yield from form_problems(f"{where}.{name}", inner, free[1])
        elif name not in form:
            yield f"{where}.{name}", f"no such field here; known are {', '.join(sorted(form))}"
        else:
            yield from form_problems(f"{where}.{name}", inner, form[name])


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    if isinstance(value, str):
        return "an empty text" if not value else "another text"
    return names.get(type(value), "a number")


def text(value: Any) -> str | None:
    """One line, not empty."""
    fits = isinstance(value, str) and value and value.isprintable()
    return None if fits else "a text of one line"


def boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def number(least: int, most: int, what: str = "a number") -> Check:
    def check(value: Any) -> str | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if fits else f"{what}, {least} to {most}"

    return check


def one_of(*words: str) -> Check:
    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"

    return check


def matching(pattern: str, what: str) -> Check:
    compiled = re.compile(pattern, re.ASCII)

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and compiled.fullmatch(value) else what

    return check


LABEL = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
LABEL_VALUE = matching(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?",
    "a text that is the value of a label: up to 63 letters, digits, '-', '_' and '.' (numbers in quotes)",
)
_KEY = matching(LABEL.pattern, "the name of a label")
_ID = number(0, 2**31 - 1)
_SECONDS = number(0, 2**31 - 1, "seconds")

TOLERATION: Form = {
    "key": _KEY,
    "operator": one_of("Exists", "Equal"),
    "value": LABEL_VALUE,
    "effect": one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerationSeconds": _SECONDS,
}
_LABEL_SELECTOR: Form = {
    "matchLabels": {LABEL: LABEL_VALUE},
    "matchExpressions": list_of(
        {"key": _KEY, "operator": one_of("In", "NotIn", "Exists", "DoesNotExist"), "values": list_of(LABEL_VALUE)}
    ),
}
_REQUIREMENT: Form = {
    "key": matching(rf"{LABEL.pattern}|metadata\.name", "the name of a label"),
    "operator": one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "values": list_of(LABEL_VALUE),
}
_NODE_TERM: Form = {"matchExpressions": list_of(_REQUIREMENT), "matchFields": list_of(_REQUIREMENT)}
_POD_TERM: Form = {"labelSelector": _LABEL_SELECTOR, "topologyKey": _KEY, "matchLabelKeys": list_of(_KEY)}
"""Of the job's own namespace: no `namespaces`, no `namespaceSelector`."""
_WEIGHT = number(1, 100)
_PREFERRED: dict[str, Form] = {
    "preferredDuringSchedulingIgnoredDuringExecution": list_of({"weight": _WEIGHT, "podAffinityTerm": _POD_TERM})
}
AFFINITY: Form = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list_of(_NODE_TERM)},
        "preferredDuringSchedulingIgnoredDuringExecution": list_of({"weight": _WEIGHT, "preference": _NODE_TERM}),
    },
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list_of(_POD_TERM), **_PREFERRED},
    # A required one keeps the pods of others away from where this one runs.
    "podAntiAffinity": _PREFERRED,
}
SPREAD_CONSTRAINT: Form = {
    "maxSkew": number(1, 2**31 - 1),
    "minDomains": number(1, 2**31 - 1),
    "topologyKey": _KEY,
    "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway"),
    "labelSelector": _LABEL_SELECTOR,
    "matchLabelKeys": list_of(_KEY),
    "nodeAffinityPolicy": one_of("Honor", "Ignore"),
    "nodeTaintsPolicy": one_of("Honor", "Ignore"),
}
HOST_ALIAS: Form = {"ip": text, "hostnames": list_of(text)}
DNS_CONFIG: Form = {
    "nameservers": list_of(text),
    "searches": list_of(text),
    "options": list_of({"name": text, "value": text}),
}
_PROFILE: Form = {"type": one_of("RuntimeDefault", "Unconfined", "Localhost"), "localhostProfile": text}
_SECURITY: dict[str, Form] = {
    "runAsUser": _ID,
    "runAsGroup": _ID,
    "runAsNonRoot": boolean,
    "seccompProfile": _PROFILE,
    "appArmorProfile": _PROFILE,
    "seLinuxOptions": {"user": text, "role": text, "type": text, "level": text},
}
POD_SECURITY: Form = {
    **_SECURITY,
    "fsGroup": _ID,
    "fsGroupChangePolicy": one_of("OnRootMismatch", "Always"),
    "supplementalGroups": list_of(_ID),
    "supplementalGroupsPolicy": one_of("Merge", "Strict"),
    "sysctls": list_of({"name": text, "value": text}),
}
_CAPABILITY = matching(r"[A-Z_]{1,64}", "the name of a capability in capital letters")
CONTAINER_SECURITY: Form = {
    **_SECURITY,
    "readOnlyRootFilesystem": boolean,
    "privileged": boolean,
    "allowPrivilegeEscalation": boolean,
    "capabilities": {"add": list_of(_CAPABILITY), "drop": list_of(_CAPABILITY)},
    "procMount": one_of("Default", "Unmasked"),
}
