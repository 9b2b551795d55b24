"""Metrics: each wait, each condition of a shut gate and each verdict is counted once, when it happens."""

from __future__ import annotations

from typing import Any

from forebay.contracts.parts import Part
from prometheus_client import REGISTRY

from . import world
from .cluster_objects import Cluster, condition, kube_job, workload


def value(name: str, **labels: Any) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_wait_counts_for_its_layer_when_it_ends() -> None:
    """Ten minutes for data are ten minutes of `data`, however many events tell of them."""
    of_data = {"layer": "data"}
    before = value("forebay_job_wait_seconds_sum", **of_data), value("forebay_job_wait_seconds_count", **of_data)
    here = world.World()
    here.say(world.upload(), Part.COLLECTOR)
    job = here.submit(datasets=[{"name": "pick-place"}])
    here.say(world.granted(job))
    here.say(world.planned(job), Part.CACHE)
    here.tick(600)
    here.say(world.ready(), Part.CACHE)
    seconds = here.ask("why", job=job)["waited_seconds"]["data"]
    after = value("forebay_job_wait_seconds_sum", **of_data), value("forebay_job_wait_seconds_count", **of_data)
    assert seconds >= 600
    assert abs(after[0] - before[0] - seconds) < 0.01
    assert after[1] == before[1] + 1


def test_a_shut_gate_counts_the_conditions_that_did_not_hold() -> None:
    """A job that waits for its warm-up: CacheWarm, and not the conditions that hold."""
    warming = {"condition": "CacheWarm", "reason": "Warming"}
    before = value("forebay_gates_shut_total", **warming)
    here = world.World()
    here.say(world.upload(), Part.COLLECTOR)
    job = here.submit(datasets=[{"name": "pick-place"}])
    here.say(world.granted(job))
    here.say(world.planned(job), Part.CACHE)
    assert value("forebay_gates_shut_total", **warming) == before + 1
    assert value("forebay_gates_shut_total", condition="DatasetLeased", reason="Leased") == 0


def test_a_verdict_is_timed_from_the_fact_that_it_follows() -> None:
    """Only verdicts that a fact of the cluster has caused count."""
    before = value("forebay_verdict_seconds_count")
    here = Cluster()
    job = here.submit("pick", image="busybox", command=["train"])
    assert value("forebay_verdict_seconds_count") == before
    here.see(job, kube_job(job))
    full = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a, 4 more needed"
    here.see(job, workload(job, condition("QuotaReserved", "False", reason="Pending", message=full)))
    verdicts = value("forebay_verdict_seconds_count") - before
    assert verdicts >= 1
