"""Containers that stand in a pod and not in the template of its job: a webhook put them there. Pure.

When such a container is refused or falls, the job's own file is not to blame and changing it mends nothing.
Called by `pods.py` and `situations.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.facts import Facts, Object, Said, items_at, kind_of, part, text_at
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause

_NAMED = re.compile(
    r"\bcontainers? (?P<names>(?:<[\w.\-]+>|\"[\w.\-]+\"|'[\w.\-]+')(?:, (?:\"[\w.\-]+\"|'[\w.\-]+'))*)", re.IGNORECASE
)
_FOR = re.compile(r"\b(?:limits|requests)\.\S+ for: (?P<names>[\w.\-, ]+)")
"""A quota names the containers that leave something unsaid."""
_NAME = re.compile(r"[\w.\-]+")
_LISTS = frozenset({"containers", "initContainers"})
_DEEPEST = 12


def declared(owner: Object) -> frozenset[str]:
    """The names of all containers in the templates of an object, wherever its kind keeps them."""
    return frozenset(_declared(part(owner, "spec"), 0))


def _declared(found: object, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(found, Mapping):
        for key, value in found.items():
            if key in _LISTS:
                yield from (text_at(one, "name") for one in items_at(found, str(key)))
            else:
                yield from _declared(value, depth + 1)
    elif isinstance(found, list):
        for one in found:
            yield from _declared(one, depth + 1)


def of_pod(facts: Facts, pod: Object) -> frozenset[str]:
    """The containers of a pod that its owner does not declare; none when the owner is not known."""
    for reference in items_at(pod, "metadata", "ownerReferences"):
        owner = facts.find(
            text_at(reference, "kind"), text_at(pod, "metadata", "namespace"), text_at(reference, "name")
        )
        names = declared(owner) if owner is not None else frozenset()
        if names:
            mine = {text_at(one, "name") for kind in _LISTS for one in items_at(pod, "spec", kind)}
            return frozenset(mine - names)
    return frozenset()


def refused(facts: Facts, event: Said, seen: Seen) -> Seen:
    """The refusal of a pod with the container that it is about, when the job's template does not have it."""
    if seen.finding.cause not in {Cause.ADMISSION_DENIED, Cause.CONFIG}:
        return seen
    quoted = [match.group("names") for match in (*_NAMED.finditer(event.message), *_FOR.finditer(event.message))]
    named = [name for names in quoted for name in _NAME.findall(names)]
    owner = facts.find(event.kind, event.namespace, event.name)
    own = declared(owner) if owner is not None else frozenset()
    foreign = [name for name in dict.fromkeys(named) if name not in own]
    if not own or not foreign:
        return seen
    names, what = ", ".join(foreign), kind_of(owner or {})
    said = f"{seen.finding.sentence}; container {names} is not in the {what}'s template: a webhook put it into the pod"
    if any(name in own for name in named):
        return seen.but(sentence=said, need=names)
    return seen.but(
        sentence=f"{said}, and the {what}'s own containers are not objected to",
        reason=Reason.ADMISSION_DENIED if seen.finding.cause is Cause.ADMISSION_DENIED else seen.finding.reason,
        next_action=f"have {names} left out of this {what}'s pods (the label or annotation of its injector), or have the injector or the namespace's policy changed",
        need=names,
    )
