"""A pod that was told to stop and is still there is a verdict of its own, and not "nobody has looked at it"."""

from __future__ import annotations

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import diagnose
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause

from .kubernetes_objects import AT, NOW, Json, container, job, judged, node, pod

STOPPING: Json = pod(
    node="gpu-1",
    phase="Running",
    meta={"deletionTimestamp": AT},
    **container(state={"running": {"startedAt": AT}}, ready=True),
)


def test_it_says_since_when_it_stops() -> None:
    """On a node that answers it will end by itself."""
    found = judged(job(active=1), STOPPING, node("gpu-1"))
    assert (found.cause, found.reason) == (Cause.OTHER, Reason.POD_DELETED)
    assert "was told to stop at 09:00:00 and has not ended yet" in found.sentence


def test_on_a_node_that_is_gone_it_is_not_confirmed_dead() -> None:
    """It may still write: nobody can say otherwise."""
    found = judged(job(active=1), STOPPING, node("gpu-2"))
    assert (found.cause, found.reason) == (Cause.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD)
    assert "gpu-1 is not among the nodes any more" in found.sentence


def test_a_node_that_was_not_asked_for_is_not_gone() -> None:
    """Without nodes, or with those of one job only, nobody knows."""
    assert judged(job(active=1), STOPPING).cause is Cause.OTHER
    of_one = facts_from_objects([job(active=1), STOPPING, node("gpu-2")], of_one_job=True)
    assert diagnose(of_one, NOW).cause is Cause.OTHER
