"""The queue: order, reservation, devices, and the numbers in its answers."""

from __future__ import annotations

from datetime import timedelta

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import Resources
from forebay.scheduler_bridge.domain.amounts import Amount, amount_of, asked_by
from forebay.scheduler_bridge.domain.queue import Applicant, Holder, order, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from .world import GB, START

TOTAL = Amount(millicpus=8000, memory_bytes=32 * GB, gpus=4)


def job(key: str, *, cpu: float = 1, memory: int = 1, gpus: int = 0, priority: int = 0, age: int = 0) -> Applicant:
    amount = Amount(millicpus=round(cpu * 1000), memory_bytes=memory * GB, gpus=gpus)
    return Applicant(key=key, amount=amount, priority=priority, since=START - timedelta(seconds=age))


def holder(applicant: Applicant, devices: tuple[str, ...] = ()) -> Holder:
    return Holder(key=applicant.key, amount=applicant.amount, devices=devices)


def test_priority_then_age_then_key() -> None:
    """The order is the same whatever order they come in."""
    waiting = [job("c", age=1), job("b", age=5), job("a", age=5), job("d", priority=1)]
    assert [item.key for item in order(waiting)] == ["d", "a", "b", "c"]


def test_devices_are_indices_nobody_else_has() -> None:
    """Two jobs of two GPUs beside one that has GPU 1: the first gets 0 and 2, the second waits."""
    answer = serve(TOTAL, [holder(job("x", gpus=1), ("1",))], [job("a", gpus=2, age=2), job("b", gpus=2, age=1)])
    assert [(item.key, item.devices) for item in answer.admitted] == [("a", ("0", "2"))]
    (wait,) = answer.waiting
    assert (wait.reason, wait.position) == (Reason.QUOTA_EXCEEDED, 1)
    assert [(item.resource, item.need, item.free, item.total) for item in wait.lacking] == [("gpu", 2, 1, 4)]
    assert "needs 2 GPUs, 1 of 4 GPUs free, held by x, a" in wait.message


def test_a_big_job_at_the_head_is_not_overtaken() -> None:
    """Small jobs that would take what the head waits for are told that they come after it."""
    answer = serve(TOTAL, [holder(job("x", cpu=4))], [job("big", cpu=8, age=9), job("small", cpu=1)])
    assert not answer.admitted
    assert [(item.key, item.reason) for item in answer.waiting] == [
        ("big", Reason.QUOTA_EXCEEDED),
        ("small", Reason.BEHIND_OTHERS),
    ]
    assert "which big waits for and comes first" in answer.waiting[1].message


def test_what_the_head_does_not_need_is_given_out() -> None:
    """The head waits for GPUs only: a job that needs none starts, as long as the head's processors stay free."""
    held = [holder(job("x", gpus=4), ("0", "1", "2", "3"))]
    answer = serve(TOTAL, held, [job("gpus", cpu=2, gpus=4, age=9), job("cpu", cpu=5, age=8), job("more", cpu=1)])
    assert [item.key for item in answer.admitted] == ["cpu"]
    assert [item.key for item in answer.waiting] == ["gpus", "more"]


def test_what_never_fits_reserves_nothing() -> None:
    """A job that is larger than the machine (which has shrunk) blocks nobody."""
    answer = serve(TOTAL, [], [job("never", gpus=5, age=9), job("fits")])
    assert [item.key for item in answer.admitted] == ["fits"]
    assert answer.waiting[0].reason == Reason.NEVER_FITS


applicants = st.lists(
    st.builds(
        job,
        key=st.uuids().map(str),
        cpu=st.sampled_from([0.001, 0.5, 1, 3, 8]),
        memory=st.sampled_from([1, 8, 32]),
        gpus=st.integers(0, 4),
        priority=st.integers(-1, 1),
        age=st.integers(0, 100),
    ),
    max_size=12,
    unique_by=lambda item: item.key,
)


@given(applicants)
@settings(deadline=None)
def test_never_over_capacity_and_everybody_is_answered(waiting: list[Applicant]) -> None:
    """Admissions fit together, devices are distinct, and each applicant is admitted or told why not."""
    answer = serve(TOTAL, [], waiting)
    by_key = {item.key: item for item in waiting}
    total = sum((by_key[item.key].amount for item in answer.admitted), Amount())
    assert not total.exceeding(TOTAL)
    devices = [device for item in answer.admitted for device in item.devices]
    assert len(devices) == len(set(devices)) == total.gpus
    keys = [item.key for item in answer.admitted] + [item.key for item in answer.waiting]
    assert sorted(keys) == sorted(by_key)


@given(applicants, st.permutations(range(12)))
@settings(deadline=None)
def test_the_answer_does_not_depend_on_the_order_of_asking(waiting: list[Applicant], order: list[int]) -> None:
    """The same applicants in another order get the same answer, and asking again changes nothing."""
    shuffled = [waiting[index] for index in order if index < len(waiting)]
    assert serve(TOTAL, [], shuffled) == serve(TOTAL, [], waiting) == serve(TOTAL, [], waiting)


@given(applicants, st.data())
@settings(deadline=None, max_examples=60)
def test_the_head_starts_under_an_endless_stream_of_newcomers(waiting: list[Applicant], data: st.DataObject) -> None:
    """However many small jobs keep coming, the oldest starts once those that run now have ended."""
    head = job("head", cpu=8, memory=32, gpus=4, age=1000)
    running = [holder(by_key, devices) for by_key, devices in _started(serve(TOTAL, [], waiting).admitted, waiting)]
    queue = [head]
    for turn in range(40):
        queue.append(job(f"new-{turn}", cpu=0.5, gpus=data.draw(st.integers(0, 1))))
        answer = serve(TOTAL, running, queue)
        started = _started(answer.admitted, queue)
        if any(item.key == "head" for item, _ in started):
            return
        running += [holder(item, devices) for item, devices in started]
        queue = [item for item in queue if item.key not in {one.key for one, _ in started}]
        if running:
            running.pop(data.draw(st.integers(0, len(running) - 1)))
    raise AssertionError("the head starved")


def _started(admitted: object, among: list[Applicant]) -> list[tuple[Applicant, tuple[str, ...]]]:
    by_key = {item.key: item for item in among}
    return [(by_key[item.key], item.devices) for item in admitted]  # type: ignore[attr-defined]


def test_a_stored_spec_asks_for_what_its_model_asks_for() -> None:
    """The queue's short way to a job's amount agrees with the contract, defaults included."""
    for resources in ({}, {"cpu": 2.0001, "gpus": 1}, {"memory_bytes": 7}):
        model = Resources.model_validate(resources)
        assert asked_by({"resources": resources}) == amount_of(model)
    assert asked_by({}) == amount_of(Resources())
