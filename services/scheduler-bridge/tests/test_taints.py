"""Taints by name where the scheduler only counts them, and which nodes go on record for that."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.scheduler_bridge.domain.cluster.nodes import TaintedNodes, as_a_whole
from forebay.scheduler_bridge.domain.kubernetes.taints import Taint, taints_of, tolerates
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause

from .kubernetes_objects import Json, judged, node, pod, unscheduled

UNNAMED = "node(s) had untolerated taint(s)"


def tainted(name: str, *taints: str) -> Json:
    """`lab=other:NoSchedule` as `kubectl taint` takes it."""
    made = []
    for text in taints:
        key, _, effect = text.rpartition(":")
        name_, _, value = key.partition("=")
        made.append({"key": name_, "effect": effect, **({"value": value} if value else {})})
    return {**node(name), "spec": {"taints": made}}


def repelled(count: int, *more: str, tolerations: tuple[Json, ...] = ()) -> Json:
    """A pod for which the scheduler counts taints on so many nodes."""
    reasons = ", ".join([f"{count} {UNNAMED}", *more])
    nodes = count + sum(int(text.split()[0]) for text in more)
    item = pod(
        **unscheduled(
            f"0/{nodes} nodes are available: {reasons}. preemption: 0/{nodes} nodes are available:"
            f" {nodes} Preemption is not helpful for scheduling."
        )
    )
    return {**item, "spec": {**item["spec"], "tolerations": list(tolerations)}}


def test_the_taint_and_its_node_are_named() -> None:
    """From 1.34 on the message has neither; the node does."""
    found = judged(repelled(1), tainted("gpu-1", "lab=other:NoSchedule"))
    assert found.cause is Cause.AFFINITY_TAINT
    assert found.sentence == "1 of 1 nodes carry the taint lab=other:NoSchedule, which the pod does not tolerate: gpu-1"
    assert found.next_action == "tolerate lab=other:NoSchedule if the job belongs on these nodes, or wait for others"
    assert found.need == "lab=other:NoSchedule"


def test_without_nodes_it_is_said_that_the_message_does_not_name_it() -> None:
    """A guess would be worse."""
    assert "does not name it" in judged(repelled(2)).sentence


@pytest.mark.parametrize(
    ("taint", "cause"),
    [
        ("node.kubernetes.io/unreachable:NoSchedule", Cause.NODE_LOST),
        ("node.kubernetes.io/not-ready:NoExecute", Cause.NODE_LOST),
        ("node.kubernetes.io/disk-pressure:NoSchedule", Cause.EVICTED_DISK),
        ("node.kubernetes.io/memory-pressure:NoSchedule", Cause.EVICTED_NODE),
        ("dedicated=vision:NoSchedule", Cause.AFFINITY_TAINT),
    ],
)
def test_a_taint_may_be_the_state_of_a_node(taint: str, cause: Cause) -> None:
    """A node that does not answer is no owner's wish."""
    found = judged(repelled(1), tainted("gpu-1", taint))
    assert (found.cause, "gpu-1" in found.sentence) == (cause, True)


def test_what_the_pod_tolerates_is_not_named() -> None:
    """Nor what keeps nobody away: PreferNoSchedule."""
    tolerations = (
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "team", "value": "arm", "effect": "NoSchedule"},
    )
    nodes = [
        tainted("gpu-1", "nvidia.com/gpu=present:NoSchedule", "rare:PreferNoSchedule", "team=leg:NoSchedule"),
        tainted("gpu-2", "team=arm:NoSchedule"),
    ]
    found = judged(repelled(1, "1 Insufficient cpu", tolerations=tolerations), nodes[0])
    assert "nvidia" not in found.sentence
    alone = judged(repelled(1, tolerations=tolerations), *nodes)
    assert alone.need == "team=leg:NoSchedule"
    assert alone.sentence.endswith(": gpu-1")


def test_the_taints_of_most_nodes_decide() -> None:
    """Three nodes are another team's, one does not answer: tolerating is what would help."""
    lost = tainted("z", "node.kubernetes.io/unreachable:NoSchedule")
    others = [tainted(name, "team=leg:NoSchedule") for name in "abc"]
    found = judged(repelled(4), lost, *others)
    assert (found.cause, found.need) == (Cause.AFFINITY_TAINT, "team=leg:NoSchedule")
    assert "3 of 4 nodes" in found.sentence
    assert (
        ": a, b, c; the other nodes: 1 node(s) had untolerated taint node.kubernetes.io/unreachable" in found.sentence
    )
    few = judged(repelled(400), lost, others[0])
    assert (few.need, "399 of 400" in few.sentence) == ("team=leg:NoSchedule", True)


def test_old_wordings_keep_their_own_names() -> None:
    """What the scheduler says itself is not replaced."""
    text = "0/1 nodes are available: 1 node(s) had untolerated taint {gpu-team: vision}."
    found = judged(pod(**unscheduled(text)), tainted("gpu-1", "lab=other:NoSchedule"))
    assert found.need == "gpu-team"


def test_a_cordoned_node_is_counted_by_the_scheduler_for_itself() -> None:
    """Its taint comes from the cordon."""
    cordoned = tainted("c", "node.kubernetes.io/unschedulable:NoSchedule")
    cordoned["spec"]["unschedulable"] = True
    found = judged(repelled(1, "1 node(s) were unschedulable"), cordoned, tainted("gpu-1", "lab=other:NoSchedule"))
    assert "lab=other" in found.sentence


@pytest.mark.parametrize(
    ("toleration", "right"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "lab", "operator": "Exists"}, True),
        ({"key": "lab", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "lab", "operator": "Equal", "value": "other", "effect": "NoSchedule"}, True),
        ({"key": "lab", "value": "other"}, True),
        ({"key": "lab", "value": "ours"}, False),
        ({"key": "lab"}, False),
        ({"key": "team", "operator": "Exists"}, False),
    ],
)
def test_tolerations_are_judged_as_the_scheduler_does(toleration: dict[str, Any], *, right: bool) -> None:
    """An empty effect is every effect; an empty key with Exists is every key."""
    assert tolerates({"spec": {"tolerations": [toleration]}}, Taint("lab", "other", "NoSchedule")) is right


def test_a_thousand_nodes_with_one_taint_are_two_examples() -> None:
    """Facts of a job do not grow with the cluster, and a taint that is new tells that there is more to say."""
    nodes = TaintedNodes()
    news = [nodes.put(tainted(f"n{number:03}", "team=leg:NoSchedule")) for number in range(1000)]
    assert (news[0], any(news[1:])) == (True, False)
    assert nodes.put(tainted("own", "lab=other:NoSchedule")) is True
    assert list(nodes.repelling(repelled(1001))) == ["own", "n000", "n001"]
    nodes.drop("n000")
    assert nodes.put(tainted("n001")) is False
    assert list(nodes.repelling(repelled(1000))) == ["own", "n002", "n003"]


def test_only_a_small_cluster_that_does_not_grow_is_known_as_a_whole() -> None:
    """Elsewhere a larger node may be added, and "never" would be wrong."""
    own = {name: node(name) for name in "abc"}
    assert len(as_a_whole(own)) == 3
    assert as_a_whole({**own, "d": {**node("d"), "spec": {"providerID": "aws:///eu-1a/i-1"}}}) == []
    assert len(as_a_whole({**own, "d": {**node("d"), "spec": {"providerID": "k3s://d"}}})) == 4
    assert as_a_whole({str(number): node(str(number)) for number in range(11)}) == []


def test_a_node_without_spec_has_no_taints() -> None:
    """Whatever is read may be anything."""
    assert list(taints_of({"kind": "Node", "spec": None})) == []
