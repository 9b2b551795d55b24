"""The attempt worker over real processes: what it says on the bus, and that it may be killed and run again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.parts import Part
from forebay.contracts.v1 import jobs
from forebay.runtime.documents import D
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.state import State
from forebay.runtime.work import T, WorkItem
from forebay.scheduler_bridge.adapters.local_processes import STOP_MARK
from forebay.scheduler_bridge.domain.attempts import FREE_RETRIES, allowed_attempts
from forebay.scheduler_bridge.domain.documents import Attempt, Ending
from forebay.scheduler_bridge.workers.attempt import AttemptWorker, Pace
from msgspec.structs import replace

from tests.eventually import WITHIN_S, eventually
from tests.run_here import RunHere

from .processes import backend, plan, python
from .world import START, World, make_ready, upload

PATIENT = Pace(look_every=0.02, grace=WITHIN_S, linger=WITHIN_S)
"""What ends by itself is given its time, however busy the machine is."""
FORCEFUL = Pace(look_every=0.02, grace=0.2, linger=0.2)
"""For what never ends by itself."""


class Context(RunHere):
    """`WorkContext` over a world: what is emitted goes into its log at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.emitted: list[Emit] = []

    async def emit(self, *emits: Emit) -> None:
        self.emitted += emits
        self.world.accept(emits)
        self.world.settle()

    def progress(self, payload: Any) -> None:
        raise AssertionError(f"the worker reports no progress, but said {payload}")

    async def get(self, kind: type[D], key: str) -> D | None:
        return self.world.state.get(kind, key)

    async def read(self, question: Callable[[State], T]) -> T:
        return question(self.world.state)


class Bench:
    """A world whose work is really done."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.world = World()
        self.context = Context(self.world)
        self.behaviour = "run"
        self.pace = PATIENT

    async def work(self, index: int = 0) -> None:
        """Run one work item as a fresh process of the bridge would."""
        work = self.world.work[index]
        item = WorkItem(kind=work.kind, key=work.key, project=work.project, payload=work.payload, tries=0)
        worker = AttemptWorker(backend(self.home, self.behaviour), self.pace)
        await self.context.emit(*await worker(item, self.context))

    def reasons(self) -> list[str]:
        return [body.reason for body in self.world.said(jobs.RuntimeFactRecorded)]

    def ending(self, index: int = 0) -> jobs.AttemptEnded:
        return self.world.said(jobs.AttemptEnded)[index]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    yield Bench(tmp_path)
    for attempt in range(1, 4):
        while backend(tmp_path).stop(plan("true", attempt=attempt), force=True):
            await asyncio.sleep(0.01)


async def until(what: Callable[[], bool], running: Awaitable[None] | None = None) -> None:
    """Wait for a condition while the worker runs."""

    def holds() -> bool:
        if isinstance(running, asyncio.Task) and running.done():
            running.result()
        return what()

    await eventually(holds, what="what the worker does is seen", every=0.01)


def sleeper() -> list[str]:
    return list(python("import time; time.sleep(600)"))


async def test_success(bench: Bench) -> None:
    """Exit code 0: started, ended, succeeded, with the raw facts on record in order."""
    job = bench.world.submit(command=list(python("print('done')")))
    await bench.work()
    assert len(bench.world.said(jobs.AttemptStarted)) == 1
    assert bench.world.job(job).state == "SUCCEEDED"
    assert bench.reasons() == ["AgentLaunched", "CommandStarted", "ProcessExited"]
    assert "@" in bench.world.said(jobs.AttemptStarted)[0].process


async def test_failures_go_on_until_attempts_run_out(bench: Bench) -> None:
    """Each attempt has a folder and work of its own; the last cause has the last line of the log, masked."""
    code = "import sys; print('tok' + 'en=abcdef123456 rejected'); sys.exit(4)"
    job = bench.world.submit(command=list(python(code)), restart={"max_attempts": 2})
    await bench.work(0)
    await bench.work(1)
    failed = bench.world.said(jobs.JobFailed, job)[0]
    assert failed.reason.value == "AttemptsExhausted"
    assert "last line of its output: token=**** rejected" in failed.message
    facts = bench.world.said(jobs.RuntimeFactRecorded)
    assert not any("abcdef123456" in str(fact.data) + fact.message for fact in facts)
    assert [body.recovers for body in bench.world.said(jobs.AttemptStarted)] == [None, 1]


async def test_refused_by_preflight(bench: Bench) -> None:
    """The command never ran: no AttemptStarted, and the job fails at once with the cause."""
    bench.behaviour = "refuse"
    job = bench.world.submit(command=["train"])
    await bench.work()
    assert not bench.world.said(jobs.AttemptStarted)
    assert bench.world.job(job).state == "FAILED"
    assert "output: no room" in bench.world.said(jobs.JobFailed)[0].message


@pytest.mark.parametrize("behaviour", ["die-before-lock", "die-after-lock"])
async def test_an_agent_that_dies_early(bench: Bench, behaviour: str) -> None:
    """Before its lock: a failed start, with what it printed. After it: lost, and the next attempt is made."""
    bench.behaviour = behaviour
    job = bench.world.submit(command=["train"])
    await bench.work()
    assert bench.ending().ran is False
    if behaviour == "die-before-lock":
        assert "No module named 'forebay.cli'" in bench.world.said(jobs.JobFailed, job)[0].message
    else:
        assert bench.ending().reason.value == "AgentLost"
        assert [body.attempt for body in bench.world.said(jobs.WorkloadAdmitted)] == [1, 2]


async def test_a_missing_working_directory_is_a_failed_start(bench: Bench) -> None:
    """Nothing to retry: the job fails and names the folder."""
    bench.world.submit(command=["train"], working_directory="/nowhere/at/all")
    await bench.work()
    assert "/nowhere/at/all" in bench.world.said(jobs.JobFailed)[0].message


async def test_a_killed_command_is_followed_by_attempt_two(bench: Bench) -> None:
    """SIGKILL of the training process: signal 9 on record, attempt 2 admitted with the same quota."""
    bench.world.submit(command=sleeper())
    running = asyncio.create_task(bench.work())
    await until(lambda: bool(bench.world.said(jobs.AttemptStarted)), running)
    os.kill(int(bench.world.said(jobs.AttemptStarted)[0].process.partition("@")[0]), signal.SIGKILL)
    await running
    assert (bench.ending().signal, bench.ending().reason.value) == (9, "ProcessKilled")
    assert [body.attempt for body in bench.world.said(jobs.WorkloadAdmitted)] == [1, 2]


async def test_the_worker_is_killed_and_run_again(bench: Bench) -> None:
    """Cut off while the job runs, then run by the next process: adopted, one start, one set of events."""
    go = bench.home / "go"
    code = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    job = bench.world.submit(command=list(python(code)))
    for _ in range(3):
        running = asyncio.create_task(bench.work())
        await until(lambda: bool(bench.world.said(jobs.AttemptStarted)), running)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    go.touch()
    await bench.work()
    await bench.work()
    folder = backend(bench.home).folder(plan("true", job=job))
    assert len((folder / "starts").read_text().splitlines()) == 1
    for kind in (jobs.AttemptStarted, jobs.AttemptEnded, jobs.JobSucceeded):
        found: list[EventBody] = list(bench.world.said(kind))
        assert len(found) == 1
    assert bench.reasons() == ["AgentLaunched", "CommandStarted", "AgentAdopted", "ProcessExited"]


async def test_a_lost_agent_takes_its_command_along(bench: Bench) -> None:
    """The agent is killed, the command lives: it is ended before AgentLost is said, so one job never runs twice."""
    bench.world.submit(command=sleeper())
    running = asyncio.create_task(bench.work())
    await until(lambda: bool(bench.world.said(jobs.AttemptStarted)), running)
    local, one = backend(bench.home), plan("true")
    seen = local.observe(one)
    os.kill(int(str(seen.agent).partition("@")[0]), signal.SIGKILL)
    await running
    assert bench.ending().reason.value == "AgentLost"
    assert bench.ending().ran is True
    assert "were ended" in bench.ending().message
    assert not local.observe(one).alive


async def test_cancel_ends_the_process_and_frees_the_quota(bench: Bench) -> None:
    """Cancelled while running: asked to end, and AttemptEnded says Cancelled; the state never leaves CANCELLED."""
    job = bench.world.submit(command=sleeper())
    running = asyncio.create_task(bench.work())
    await until(lambda: bool(bench.world.said(jobs.AttemptStarted)), running)
    bench.world.command("cancel", job=job)
    await running
    assert (bench.ending().reason.value, bench.ending().signal) == ("Cancelled", 15)
    assert bench.world.job(job).state == "CANCELLED"
    assert bench.world.job(job).standing is None
    assert "StopRequested" in bench.reasons()


async def test_a_command_that_ignores_the_request_is_ended_by_force(bench: Bench) -> None:
    """SIGTERM is ignored by the command: after the grace nothing is left alive."""
    bench.pace = FORCEFUL
    began = bench.home / "began"
    code = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(began)!r}, 'w'); time.sleep(600)"
    job = bench.world.submit(command=list(python(code)))
    running = asyncio.create_task(bench.work())
    await until(began.exists, running)
    bench.world.command("cancel", job=job)
    await running
    assert bench.ending().reason.value == "Cancelled"
    assert not backend(bench.home).observe(plan("true")).alive


async def test_cancelled_before_it_was_started(bench: Bench) -> None:
    """Nothing is started for a job that was cancelled while its work waited."""
    job = bench.world.submit(command=sleeper())
    bench.world.command("cancel", job=job)
    await bench.work()
    assert bench.ending().ran is False
    assert not backend(bench.home).folder(plan("true")).exists()
    assert bench.world.job(job).standing is None


async def test_children_that_outlive_the_command_are_ended(bench: Bench) -> None:
    """A child left in the background by a command that succeeded does not stay on the machine."""
    bench.pace = FORCEFUL
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
    job = bench.world.submit(command=list(python(code)))
    await bench.work()
    assert bench.world.job(job).state == "SUCCEEDED"
    assert not backend(bench.home).observe(plan("true")).alive


async def test_inputs_and_parameters_reach_the_attempt(bench: Bench) -> None:
    """inputs.json has the pinned versions, what makes a checkpoint compatible, and where the cache has the data."""
    world = bench.world
    world.say(upload(), Part.COLLECTOR)
    job = world.submit(
        command=list(python("import os; print(os.environ['FOREBAY_PARAM_LEARNING_RATE'])")),
        datasets=[{"name": "pick-place"}],
        parameters={"learning-rate": 0.1},
        code_revision="abc",
    )
    make_ready(world, job)
    await bench.work()
    folder = backend(bench.home).folder(plan("true"))
    found = json.loads((folder / "inputs.json").read_text())
    assert found["inputs"][0]["number"] == 1
    assert found["places"] == {"pick-place@v1": "/pool/pick-place/v1"}
    assert found["compatibility"]["datasets"] == ["dataset:pick-place@v1"]
    assert found["compatibility"]["code_revision"] == "abc"
    assert "0.1" in (folder / "log.txt").read_text()


async def test_work_before_its_job_waits(bench: Bench) -> None:
    """Work whose job is not in the store yet is tried again, not lost."""
    worker = AttemptWorker(backend(bench.home), PATIENT)
    item = WorkItem(kind="attempt", key="k", project="arm-lab", payload={"job": "x-1", "attempt": 1}, tries=0)
    with pytest.raises(RetryLater):
        await worker(item, bench.context)


FULL_ONCE = """
import os, pathlib, sys
marker = pathlib.Path(os.environ["FOREBAY_OUTPUT"], "was-full")
if not marker.exists():
    marker.touch()
    print("OSError: [Errno 28] No space left on device")
    sys.exit(1)
"""


async def test_a_full_disk_costs_no_attempt(bench: Bench) -> None:
    """A job with one attempt gets another one when a full disk ended the first, and the reason is on record."""
    job = bench.world.submit(command=list(python(FULL_ONCE)), restart={"max_attempts": 1})
    await bench.work(0)
    assert bench.ending().reason.value == "DiskFull"
    assert "No space left on device" in bench.ending().message
    await bench.work(1)
    assert bench.world.job(job).state == "SUCCEEDED"


async def test_nothing_is_started_on_a_disk_without_room(bench: Bench) -> None:
    """It waits with the numbers and counts for nothing; what is under way already is watched all the same."""
    job = bench.world.submit(command=list(python("print('done')")))
    work = bench.world.work[0]
    item = WorkItem(kind=work.kind, key=work.key, project=work.project, payload=work.payload, tries=0)
    full = AttemptWorker(backend(bench.home), PATIENT, lambda: "the disk of the home has 1.0 MB of 1.0 GB free")
    with pytest.raises(RetryLater, match=r"DiskFull: the disk of the home has 1\.0 MB"):
        await full(item, bench.context)
    assert bench.reasons() == ["DiskFull"]
    assert not backend(bench.home).folder(plan("true")).exists()
    backend(bench.home).launch(plan(*python("print('done')"), job=job))
    await bench.context.emit(*await full(item, bench.context))
    assert bench.world.job(job).state == "SUCCEEDED"


def test_a_command_that_fills_the_disk_itself_is_not_run_for_ever(bench: Bench) -> None:
    """Attempts ended by a full disk are free only so often."""
    job = bench.world.job(bench.world.submit(command=["train"], restart={"max_attempts": 2}))
    ending = Ending(reason="DiskFull", message="full", ran=True, at=START, event="e", exit_code=1, signal=None)
    ends = tuple(Attempt(number=number, ending=ending) for number in range(1, 21))
    assert allowed_attempts(replace(job, attempts=ends[:1])) == 3
    assert allowed_attempts(replace(job, attempts=ends)) == 2 + FREE_RETRIES


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGKILL])
async def test_an_attempt_that_was_stopped_on_purpose_costs_nothing(bench: Bench, told: signal.Signals) -> None:
    """`forebay down` leaves a mark and ends the processes: whatever they can still report, another attempt follows."""
    job = bench.world.submit(command=sleeper(), restart={"max_attempts": 1})
    running = asyncio.create_task(bench.work())
    await until(lambda: bool(bench.world.said(jobs.AttemptStarted)), running)
    local, one = backend(bench.home), plan("true")
    (local.folder(one) / STOP_MARK).write_text('{"by": "forebay down"}')
    seen = local.observe(one)
    for process in (seen.command, seen.agent):
        os.kill(int(str(process).partition("@")[0]), told)
    await running
    assert bench.ending().reason.value == "Stopped"
    assert bench.ending().message == "the attempt was stopped by forebay down"
    assert bench.world.job(job).terminal is None
    assert [body.attempt for body in bench.world.said(jobs.WorkloadAdmitted)] == [1, 2]
