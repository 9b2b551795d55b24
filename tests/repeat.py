"""Every test again and again, part of the runs with all cores kept busy: a test that fails now and then is found here.

`python -m tests.repeat --runs 10 --busy 3`, or `make test-repeat RUNS=10 BUSY=3`. Words after `--`
go to pytest. Exit 1 when anything failed in any run; the output of such a run is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from forebay.ingest.adapters.decoders import cores

_SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
"""Keeps one core busy, and ends with whoever started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of all tests."""

    number: int
    busy: bool
    seconds: float
    tests: int
    exit_code: int
    failed: tuple[str, ...]
    output: Path

    @property
    def passed(self) -> bool:
        return self.exit_code == 0 and not self.failed

    def __str__(self) -> str:
        cores_are = "busy" if self.busy else "free"
        result = "passed" if self.passed else f"{len(self.failed)} failed (exit code {self.exit_code})"
        return f"{self.number:>4}  {cores_are:<5}  {self.seconds:>7.0f}  {self.tests:>6}  {result}"


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """One process per core that does nothing but compute."""
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(cores())]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def run_once(number: int, folder: Path, arguments: Sequence[str], *, busy: bool) -> Run:
    """Run pytest as `make test` does; which tests failed is read from its own report."""
    report, output = folder / f"run-{number}.xml", folder / f"run-{number}.log"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
    began = time.monotonic()
    with output.open("wb") as log, busy_cores() if busy else contextlib.nullcontext():
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    tests, failed = read_report(report)
    return Run(
        number=number,
        busy=busy,
        seconds=time.monotonic() - began,
        tests=tests,
        exit_code=code,
        failed=failed,
        output=output,
    )


def read_report(report: Path) -> tuple[int, tuple[str, ...]]:
    """How many tests there were, and the names of those that failed; nothing when pytest wrote no report."""
    if not report.exists():
        return 0, ()
    cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 pytest has just written it
    failed = (
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    )
    return len(cases), tuple(dict.fromkeys(failed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=3, help="how many of them, the last ones, on busy cores")
    parser.add_argument("arguments", nargs="*", help="for pytest")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="forebay-repeat-"))
    sys.stdout.write(f"output of failed runs: {folder}\n run  cores  seconds   tests  result\n")
    bad = 0
    for number in range(1, given.runs + 1):
        run = run_once(number, folder, given.arguments, busy=number > given.runs - given.busy)
        sys.stdout.write(f"{run}\n" + "".join(f"      {name}\n" for name in run.failed))
        sys.stdout.flush()
        bad += not run.passed
        if run.passed:
            run.output.unlink()
    sys.stdout.write(f"{given.runs - bad} of {given.runs} runs passed\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
