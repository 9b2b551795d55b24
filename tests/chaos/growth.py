"""What processes hold, sampled over time, and whether it grows.

Each part's process group is measured: the process itself, and helpers that it keeps
(a server that decoders are forked from). Short-lived helpers and training attempts, which have
sessions of their own, are not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from forebay.contracts.parts import SERVICES
from forebay.local.home import Record

_HELPER_AGE_S = 30.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may grow in the second half of a run."""

    memory_mib_per_10_min: float = 1.0
    descriptors: float = 2.0
    """Median of the last quarter against that of the quarter before."""
    threads: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What one part holds now."""

    part: str
    memory: int
    """Bytes of the process's own, resident or swapped out. Pages of programs and libraries come and go as the system wants."""
    helpers: int
    """The same of the helpers that it keeps."""
    descriptors: int
    threads: int

    def __str__(self) -> str:
        helpers = f"+{self.helpers / _MIB:.0f}" if self.helpers else ""
        return f"{self.part} {self.memory / _MIB:.1f}{helpers} MiB {self.descriptors} fd {self.threads} thr"


@dataclass(frozen=True, slots=True)
class Sample:
    """All parts at one moment."""

    at_s: float
    figures: dict[str, Figure]


def sample(record: Record, at_s: float) -> Sample:
    """Look at every part that runs. The bus holds an index of the log, which grows with it on purpose: it is not judged."""
    figures = {}
    for child in record.children:
        process = child.identity.process()
        if process is not None:
            figures[child.name] = _figure(child.name, process)
    return Sample(at_s, figures)


def _figure(name: str, process: psutil.Process) -> Figure:
    with process.oneshot():
        memory, descriptors, threads = _own_memory(process), process.num_fds(), process.num_threads()
    kept = [_kept_memory(helper) for helper in process.children(recursive=True)]
    return Figure(part=name, memory=memory, helpers=sum(kept), descriptors=descriptors, threads=threads)


def _own_memory(process: psutil.Process) -> int:
    found = process.memory_full_info()
    return int(found.rss - found.shared + found.swap)


def _kept_memory(helper: psutil.Process) -> int:
    """What a helper that lives on holds; 0 for one that comes and goes."""
    import os  # noqa: PLC0415

    try:
        lives_on = time.time() - helper.create_time() > _HELPER_AGE_S and os.getsid(helper.pid) != helper.pid
        return _own_memory(helper) if lives_on else 0
    except (psutil.Error, ProcessLookupError):
        return 0


class Growth:
    """How the figures of the services change in the second half of a run."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._half = samples[len(samples) // 2 :]

    def to_json(self) -> dict[str, Any]:
        return {part: asdict(self._of(part)) for part in self._parts()}

    def problems(self, limits: Limits) -> list[str]:
        """One sentence for each figure that grows."""
        return [problem for part in self._parts() for problem in self._of(part).problems(part, limits)]

    def _parts(self) -> list[str]:
        return [str(part) for part in SERVICES]

    def _of(self, part: str) -> PartGrowth:
        times = [one.at_s for one in self._half if part in one.figures]
        figures = [one.figures[part] for one in self._half if part in one.figures]
        memory = [figure.memory / _MIB for figure in figures]
        return PartGrowth(
            samples=len(figures),
            memory_mib=round(statistics.median(memory[len(memory) // 2 :]), 1),
            memory_mib_per_10_min=round(_slope(times, memory) * 600, 2),
            helpers_mib_per_10_min=round(_slope(times, [figure.helpers / _MIB for figure in figures]) * 600, 2),
            descriptors=_step([figure.descriptors for figure in figures]),
            threads=_step([figure.threads for figure in figures]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartGrowth:
    """One service in the second half."""

    samples: int
    memory_mib: float
    memory_mib_per_10_min: float
    helpers_mib_per_10_min: float
    descriptors: float
    threads: float

    def problems(self, part: str, limits: Limits) -> list[str]:
        found = []
        for what, growth in (("memory", self.memory_mib_per_10_min), ("helpers' memory", self.helpers_mib_per_10_min)):
            if growth > limits.memory_mib_per_10_min:
                found.append(
                    f"{part}: {what} grew by {growth:.2f} MiB in 10 minutes, {limits.memory_mib_per_10_min:g} are allowed"
                )
        if self.descriptors > limits.descriptors:
            found.append(f"{part}: {self.descriptors:g} more file descriptors at the end")
        if self.threads > limits.threads:
            found.append(f"{part}: {self.threads:g} more threads at the end")
        return found


def _slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Change per second, by least squares."""
    return statistics.linear_regression(times, values).slope


def _step(values: Sequence[float]) -> float:
    """Median of the later half minus that of the earlier one."""
    middle = len(values) // 2
    return statistics.median(values[middle:]) - statistics.median(values[:middle])
