"""Which nodes a pod may go to by their labels and names: its node selector and its required node affinity. Pure.

As the scheduler judges it: every pair of the selector holds, and one of the affinity's terms; a term holds when all of
its expressions do, and an empty term never does. An operator that nobody knows is taken to hold: a node is left out on proof only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Object,
    items_at,
    labels_of,
    name_of,
    part,
    text_at,
    texts_at,
)

_REQUIRED = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_HOST = "kubernetes.io/hostname"
_WHOLE = re.compile(r"[+-]?\d{1,19}")


class Demand(NamedTuple):
    """One thing that a pod demands of its node."""

    key: str
    operator: str
    values: tuple[str, ...]
    of_field: bool = False
    """The key is a field of the node, not a label."""

    def __str__(self) -> str:
        """As a person would write it."""
        if self.operator == "In" and len(self.values) == 1:
            return f"{self.key}={self.values[0]}"
        listed = f" ({', '.join(self.values)})" if self.values else ""
        return f"{self.key} {self.operator}{listed}"

    def holds(self, node: Object) -> bool:
        """Whether a node meets it."""
        found = {"metadata.name": name_of(node)} if self.of_field else labels_of(node)
        has = found.get(self.key)
        match self.operator:
            case "In":
                return has in self.values
            case "NotIn":
                return has not in self.values
            case "Exists":
                return has is not None
            case "DoesNotExist":
                return has is None
            case "Gt" | "Lt":
                return self._compares(has)
        return True

    def _compares(self, has: str | None) -> bool:
        limits = [int(value) for value in self.values if _WHOLE.fullmatch(value)]
        if has is None or _WHOLE.fullmatch(has) is None:
            return False
        return len(limits) != 1 or (int(has) > limits[0] if self.operator == "Gt" else int(has) < limits[0])


def allowed(pod: Object, nodes: Iterable[Object]) -> list[Object]:
    """Those of the nodes that the pod may go to."""
    selector, terms = list(_selector(pod)), _terms(pod)
    return [
        node
        for node in nodes
        if all(one.holds(node) for one in selector)
        and (not terms or any(term and all(one.holds(node) for one in term) for term in terms))
    ]


def meets(terms: Iterable[Object], node: Object) -> bool:
    """Whether a node meets one of the terms of a node selector, as a volume's node affinity has it."""
    return any(demands and all(one.holds(node) for one in demands) for demands in map(_demands, terms))


def demanded(terms: Iterable[Object]) -> str:
    """What the terms of a node selector demand, as a person would write it."""
    return " or ".join(" and ".join(map(str, _demands(term))) for term in terms)


def hosts_of(pod: Object) -> frozenset[str]:
    """The hosts that a pod's selector or required affinity names; empty when it does not choose by host."""
    by_selector = {one.values[0] for one in _selector(pod) if one.key == _HOST}
    if by_selector:
        return frozenset(by_selector)
    named = [_host_of(term) for term in _terms(pod)]
    return frozenset().union(*named) if named and all(named) else frozenset()


def _host_of(term: list[Demand]) -> frozenset[str]:
    chosen = [set(one.values) for one in term if one.operator == "In" and (one.key == _HOST or one.of_field)]
    return frozenset(set.intersection(*chosen)) if chosen else frozenset()


def unmet(pod: Object, nodes: Iterable[Object]) -> str:
    """What the pod demands and no node has; where each has something of it, all that it demands together."""
    known = list(nodes)
    terms = _terms(pod)
    demands = [*_selector(pod), *(terms[0] if len(terms) == 1 else ())]
    nowhere = [one for one in demands if not any(one.holds(node) for node in known)]
    either = " or ".join(" and ".join(map(str, term)) for term in terms) if len(terms) > 1 and not nowhere else ""
    return " and ".join([*map(str, nowhere or demands), *([f"({either})"] if either else [])])


def _selector(pod: Object) -> Iterator[Demand]:
    for key, value in texts_at(pod, "spec", "nodeSelector").items():
        yield Demand(key, "In", (value,))


def _terms(pod: Object) -> list[list[Demand]]:
    """The terms of the required affinity; an empty one stays, and nothing meets it."""
    return [_demands(term) for term in items_at(part(pod, *_REQUIRED), "nodeSelectorTerms")]


def _demands(term: Object) -> list[Demand]:
    return [
        *(_demand(one) for one in items_at(term, "matchExpressions")),
        *(_demand(one, of_field=True) for one in items_at(term, "matchFields")),
    ]


def _demand(expression: Object, *, of_field: bool = False) -> Demand:
    values = part(expression, "values")
    wanted = tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else ()
    return Demand(text_at(expression, "key"), text_at(expression, "operator"), wanted, of_field)
