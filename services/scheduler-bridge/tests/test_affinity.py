"""Which nodes a pod may go to: required node affinity judged as the scheduler judges it, and what follows for "never"."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from forebay.scheduler_bridge.domain.kubernetes.affinity import allowed, unmet
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause
from hypothesis import given
from hypothesis import strategies as st

from .kubernetes_objects import Json, judged, pod, unscheduled

NOWHERE = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
SHORT = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector."


def node(name: str, gpus: str = "8", **labels: str) -> Json:
    there = {"nvidia.com/gpu": gpus}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": there, "capacity": there},
    }


def one(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def demanding(*terms: Json, gpus: str = "1", said: str = NOWHERE, **selector: str) -> Json:
    """A pod with required node affinity, each argument one term."""
    item = pod(gpus=gpus, **unscheduled(said))
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {**item, "spec": {**item["spec"], "nodeSelector": selector, "affinity": {"nodeAffinity": required}}}


def names(item: Json, *nodes: Json) -> list[str]:
    return [found["metadata"]["name"] for found in allowed(item, nodes)]


@pytest.mark.parametrize(
    ("expression", "suits"),
    [
        (one("kind", "In", "h200", "b200"), "a"),
        (one("kind", "NotIn", "h200"), "bc"),
        (one("kind", "Exists"), "ab"),
        (one("kind", "DoesNotExist"), "c"),
        (one("memory", "Gt", "80"), "a"),
        (one("memory", "Lt", "141"), "b"),
        (one("memory", "Gt", "many"), "ab"),
        (one("kind", "Gt", "1"), ""),
        (one("kind", "Resembles", "h200"), "abc"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value['operator']}-{'-'.join(value.get('values', ()))}",
)
def test_every_operator_as_the_scheduler_judges_it(expression: Json, suits: str) -> None:
    """NotIn and DoesNotExist hold where the label is missing, numbers need numbers, and what is unknown rules nothing out."""
    nodes = (node("a", kind="h200", memory="141"), node("b", kind="l40", memory="48"), node("c"))
    assert names(demanding({"matchExpressions": [expression]}), *nodes) == list(suits)


def test_terms_are_alternatives_and_their_parts_are_not() -> None:
    """One term is enough, all of its expressions and fields must hold, the selector as well, and an empty term never does."""
    a, b = node("a", kind="h200", zone="x"), node("b", kind="h200", zone="y")
    in_x, in_y = ({"matchExpressions": [one("kind", "Exists"), one("zone", "In", zone)]} for zone in "xy")
    by_name = {"matchFields": [one("metadata.name", "In", "b")]}
    assert names(demanding(in_x), a, b) == ["a"]
    assert names(demanding(in_x, in_y), a, b) == ["a", "b"]
    assert names(demanding(in_x, in_y, zone="y"), a, b) == ["b"]
    assert names(demanding(by_name), a, b) == ["b"]
    assert names(demanding({**in_x, **by_name}), a, b) == []
    assert names(demanding({}, in_x), a, b) == ["a"]
    assert names(demanding({}), a, b) == []
    assert names(demanding(), a, b) == ["a", "b"]


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        (one("kind", "In", "l40"), "never"),
        (one("kind", "NotIn", "h200"), "never"),
        (one("memory", "Lt", "100"), "never"),
        (one("kind", "In", "h200"), "unknown"),
        (one("kind", "Exists"), "unknown"),
    ],
    ids=["in", "not-in", "lt", "in-large", "exists"],
)
def test_a_large_node_that_affinity_forbids_is_no_hope(expression: Json, fits: str) -> None:
    """Only the nodes that required affinity allows are compared with the request; preferred affinity forbids none."""
    nodes = (node("a", "8", kind="h200", memory="141"), node("b", "2", kind="l40", memory="48"))
    found = judged(demanding({"matchExpressions": [expression]}, gpus="4", said=SHORT), *nodes)
    assert (found.cause, found.fits) == (Cause.GPU_SHORTAGE, fits)
    if fits == "never":
        assert found.have == "2 on the largest node that its selector or affinity allows"
    wish = pod(gpus="4", **unscheduled(SHORT))
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    wish["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert judged(wish, *nodes).fits == "unknown"


def test_only_nodes_that_the_selector_allows_are_compared() -> None:
    """A large node of another kind is no hope for a pod that may not go there."""
    bound = pod(gpus="4", **unscheduled(SHORT))
    nodes = (node("a", "8", kind="b200"), node("b", "2", kind="l40"))
    open_to_all = judged(bound, *nodes)
    assert (open_to_all.fits, open_to_all.have) == ("unknown", "less than 4 free on each node that could take the pod")
    bound["spec"]["nodeSelector"] = {"kind": "l40"}
    small = judged(bound, *nodes)
    assert (small.fits, small.have) == ("never", "2 on the largest node that its selector or affinity allows")
    bound["spec"]["nodeSelector"] = {"kind": "b200"}
    assert judged(bound, *nodes).fits == "unknown"


def test_what_no_node_has_is_named() -> None:
    """The demand that nobody meets is the news; those that some node meets are not."""
    nodes = (node("a", kind="h200", zone="x"), node("b", kind="l40", zone="y"))
    term = {"matchExpressions": [one("zone", "Exists"), one("kind", "In", "b200", "gb200")]}
    found = judged(demanding(term, zone="x"), *nodes)
    assert found.cause is Cause.AFFINITY_TAINT
    assert (found.need, found.where) == ("kind In (b200, gb200)", None)
    assert found.sentence.endswith("no node has kind In (b200, gb200)")
    split = judged(demanding({"matchExpressions": [one("kind", "In", "h200")]}, zone="y"), *nodes)
    assert split.need == "zone=y and kind=h200"
    either = judged(demanding(*({"matchExpressions": [one("kind", "In", kind)]} for kind in ("t4", "p4"))), *nodes)
    assert either.need == "(kind=t4 or kind=p4)"


def test_nothing_is_named_without_proof() -> None:
    """A node that is not among the facts may have it, and one that has it shows that the facts are not of one moment."""
    term = {"matchExpressions": [one("kind", "In", "b200")]}
    assert "no node has" not in judged(demanding(term), node("a", kind="h200")).sentence
    assert "no node has" not in judged(demanding(term), node("a", kind="b200"), node("b")).sentence


_TEXTS = st.sampled_from(["", "a", "1", "In", "Exists", "Gt", "metadata.name"])
_ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["key", "operator", "values", "matchExpressions", "matchFields", "nodeSelectorTerms", "nodeAffinity"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(affinity=_ANY, terms=_ANY)
def test_any_shape_of_affinity_gets_an_answer(affinity: Any, terms: Any) -> None:
    """Objects may be anything; nothing fails, and what is allowed is some of the nodes."""
    nodes = [node("a", kind="h200"), node("b")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    for found, selector in product((affinity, {"nodeAffinity": required}), ({}, {"kind": "h200"}, terms)):
        item = {"spec": {"affinity": found, "nodeSelector": selector}}
        assert all(one in nodes for one in allowed(item, nodes))
        assert isinstance(unmet(item, nodes), str)
