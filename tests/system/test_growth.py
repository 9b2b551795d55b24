"""How a soak is judged: what grows is told, what goes up and down is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.growth import Figure, Growth, Limits, Sample
from tests.repeat import read_report

MIB = 1 << 20
PARTS = ("ingest", "cache", "scheduler-bridge", "registry")


def steady(_: float) -> float:
    return 0.0


def samples(
    memory: Callable[[float], float] = steady,
    helpers: Callable[[float], float] = steady,
    descriptors: Callable[[float], float] = steady,
    threads: Callable[[float], float] = steady,
) -> list[Sample]:
    """An hour of four services, one of which changes by so much after so many minutes."""
    found = []
    for at in range(0, 3600, 10):
        figures = {part: Figure(part=part, memory=200 * MIB, helpers=0, descriptors=20, threads=30) for part in PARTS}
        figures["cache"] = Figure(
            part="cache",
            memory=200 * MIB + int(memory(at / 60) * MIB),
            helpers=int(helpers(at / 60) * MIB),
            descriptors=20 + int(descriptors(at / 60)),
            threads=30 + int(threads(at / 60)),
        )
        found.append(Sample(float(at), figures))
    return found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"memory": lambda minutes: minutes * 0.2}, "cache: memory grew by 2.00 MiB in 10 minutes, 1 are allowed"),
        ({"helpers": lambda minutes: minutes * 0.3}, "cache: helpers' memory grew by 3.00 MiB"),
        ({"descriptors": lambda minutes: minutes / 4}, "more file descriptors at the end"),
        ({"threads": lambda minutes: minutes / 8}, "more threads at the end"),
    ],
    ids=["memory", "helpers", "descriptors", "threads"],
)
def test_growth_is_told(given: dict[str, Callable[[float], float]], said: str) -> None:
    """The part, the figure and the limit, for that part only."""
    (problem,) = Growth(samples(**given)).problems(Limits())
    assert said in problem


@pytest.mark.parametrize(
    "memory",
    [lambda minutes: min(minutes, 20) * 5, lambda minutes: minutes % 3, lambda minutes: minutes * 0.05],
    ids=["only at first", "up and down", "below the limit"],
)
def test_what_does_not_grow_is_not_told(memory: Callable[[float], float]) -> None:
    """Filling caches at the start, a collector's rhythm, and next to nothing."""
    assert Growth(samples(memory)).problems(Limits()) == []


def test_failures_are_read_from_the_report(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Failed and broken tests by name; passed and skipped ones only count."""
    report = tmp_path_factory.mktemp("report") / "run.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="good"/>'
        '<testcase classname="a" name="bad"><failure message="no"/></testcase>'
        '<testcase classname="b" name="broken"><error message="no"/></testcase>'
        '<testcase classname="b" name="left"><skipped/></testcase></testsuite></testsuites>'
    )
    assert read_report(report) == (4, ("a::bad", "b::broken"))
    assert read_report(report.with_name("none.xml")) == (0, ())
