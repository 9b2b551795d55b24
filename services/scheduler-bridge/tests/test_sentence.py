"""One sentence: whoever asks, whatever carries the job, all places say the same about it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1 import jobs
from forebay.scheduler_bridge.domain.cluster.objects import WHY
from forebay.scheduler_bridge.domain.cluster.sentence import sentence_of
from forebay.scheduler_bridge.domain.history import sentence as in_history

from .cluster_objects import Cluster, condition, ended, kube_job, pod, running, workload
from .world import World, granted, make_ready, planned, upload

Step = Callable[[], object]


_PLACE = re.compile(r" \(position \d+\)")
"""A place in a queue moves without an event; only who asks now is told it."""


def told(world: World, job: str) -> dict[str, str]:
    """The sentence in each place."""
    event = max((body for body in world.said(jobs.VerdictChanged) if body.job == job), key=lambda body: body.generation)
    return {
        "why": _PLACE.sub("", world.ask("why", job=job)["sentence"]),
        "event": event.sentence or "",
        "history": in_history(event),
        "annotation": sentence_of(world.job(job))[WHY],
    }


def local_story() -> tuple[World, str, list[Step]]:
    """Data, room, the process, its end."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    first = world.submit("full", resources={"cpu": 4})
    job = world.submit(datasets=[{"name": "pick-place"}])
    return (
        world,
        job,
        [
            lambda: None,
            lambda: world.say(granted(job)),
            lambda: world.say(planned(job), Part.CACHE),
            lambda: make_ready(world, job),
            lambda: world.command("cancel", job=first),
            lambda: world.command("cancel", job=job),
        ],
    )


def cluster_story() -> tuple[World, str, list[Step]]:
    """The queue, the scheduler, the image, the process, its end."""
    world = Cluster()
    job = world.submit("pick", image="busybox", command=["train"])
    made = world.stamp(1)
    quota = condition(
        "QuotaReserved",
        "False",
        reason="Pending",
        message="couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed",
    )
    full = condition(
        "PodScheduled",
        "False",
        reason="Unschedulable",
        message="0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
    )
    admitted = [condition("QuotaReserved"), condition("Admitted")]
    return (
        world,
        job,
        [
            lambda: None,
            lambda: world.see(job, kube_job(job, suspend=True)),
            lambda: world.see(job, workload(job, quota)),
            lambda: world.see(job, workload(job, *admitted)),
            lambda: world.see(job, kube_job(job, suspend=False)),
            lambda: world.see(job, pod(job, "p1", made, conditions=[full])),
            lambda: world.see(job, pod(job, "p1", made, node="n1", **running(made))),
            lambda: world.see(job, pod(job, "p1", made, node="n1", **ended(3, at=made, phase="Failed"))),
            lambda: world.see(job, kube_job(job, condition("Failed", reason="BackoffLimitExceeded"), suspend=False)),
        ],
    )


@pytest.mark.parametrize("story", [local_story, cluster_story])
def test_the_command_line_the_event_the_history_and_the_annotation_say_the_same(
    story: Callable[[], tuple[World, str, list[Step]]],
) -> None:
    """After every step of a job's life, on this machine and on a cluster."""
    world, job, steps = story()
    heard = []
    for step in steps:
        step()
        found = told(world, job)
        assert len(set(found.values())) == 1, found
        heard.append(found["why"])
    assert len(set(heard)) >= 5, "the story has moved on"


def test_a_queue_on_a_cluster_is_not_room_on_this_machine() -> None:
    """The words for a layer are those of what carries the job."""
    world, job, steps = cluster_story()
    for step in steps[:3]:
        step()
    sentence = told(world, job)["why"]
    assert sentence.startswith(
        f"{job} waits in its queue: quota for nvidia.com/gpu in flavor h100 is used up, 8 more needed"
    )
    assert "this machine" not in sentence


def test_an_event_of_before_has_no_sentence_and_is_still_told() -> None:
    """Logs keep verdicts that were said without one."""
    world, job, steps = cluster_story()
    steps[0]()
    event = world.said(jobs.VerdictChanged)[-1].model_copy(update={"sentence": None})
    assert in_history(event) == event.verdict.message
    assert job
