"""Work "attempt": carries one admitted attempt from its start to its end. Called by the runtime.

Safe to run again after a kill at any line: the backend starts nothing twice, every
event is named by the attempt it is about, and the agent outlives the bridge.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from forebay.contracts.identifiers import content_digest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import jobs
from forebay.contracts.v1.models import Compatibility
from forebay.runtime.disk_room import RETRY_S, is_disk_full, says_disk_full
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem
from forebay.scheduler_bridge.domain.documents import Attempt, Job, Plan, place
from forebay.scheduler_bridge.domain.fold_attempts import attempt_of
from forebay.scheduler_bridge.domain.masking import mask
from forebay.scheduler_bridge.domain.output_lines import last_lines, with_cause
from forebay.scheduler_bridge.domain.specification import parameter_variable, placed_words
from forebay.scheduler_bridge.errors import StartError
from forebay.scheduler_bridge.ports import AttemptBackend, AttemptPlan, ExitReport, Observation

SOURCE = "local-backend"
Shortage = Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often and how long, in seconds."""

    look_every: float = 0.2
    grace: float = 10.0
    """Between asking an attempt to end and ending it."""
    linger: float = 5.0
    """How long children of an ended command may still be tidying up."""


def _enough() -> str:
    return ""


class AttemptWorker:
    """Carries attempts on one backend."""

    def __init__(self, backend: AttemptBackend, pace: Pace | None = None, shortage: Shortage = _enough) -> None:
        """`shortage`: why nothing new may be started on this disk now, with numbers; "" when it may."""
        self._backend = backend
        self._pace = pace or Pace()
        self._shortage = shortage

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        job_key = place(item.project, str(item.payload["job"]))
        number = int(item.payload["attempt"])
        job = await context.get(Job, job_key)
        attempt = attempt_of(job, number) if job is not None else None
        if job is None or attempt is None:
            raise RetryLater(0.2, f"attempt {number} of {job_key} is not folded yet")
        if attempt.ending is not None:
            return ()
        plan = await self._plan(job, attempt, context)
        return await _Carried(
            backend=self._backend, pace=self._pace, job=job, plan=plan, context=context, shortage=self._shortage
        ).run()

    async def _plan(self, job: Job, attempt: Attempt, context: WorkContext) -> AttemptPlan:
        spec = job.request
        parameters = {parameter_variable(name): _text(value) for name, value in spec.parameters.items()}
        places = {}
        for plan_id in job.plans:
            plan = await context.get(Plan, place(job.project, plan_id))
            if plan is not None and plan.place:
                places[f"{plan.name}@v{plan.number}"] = plan.place
        roots = {
            item.name: places.get(f"{item.name}@v{item.number}") or str(item.body["root"])
            for item in job.lease.inputs
            if item.kind == "dataset"
        }
        words = placed_words(spec, lambda name: local_folder(roots[name]) if name in roots else f"{{data:{name}}}")
        compatibility = Compatibility(
            datasets=tuple(
                f"dataset:{item.name}@v{item.number}" for item in job.lease.inputs if item.kind == "dataset"
            ),
            code_revision=spec.code_revision,
            parameters_sha256=content_digest(dict(spec.parameters)),
        )
        return AttemptPlan(
            project=job.project,
            job=job.id,
            attempt=attempt.number,
            command=words,
            environment={**spec.environment, **parameters},
            devices=attempt.devices,
            inputs={
                "inputs": [item.body for item in job.lease.inputs],
                "places": places,
                "compatibility": compatibility.model_dump(mode="json", exclude_none=True),
                "resources": attempt.resources or {},
                "allow_cold_start": spec.restart.allow_cold_start,
                **({"forbid_cold_start": True} if spec.restart.forbid_cold_start else {}),
                "command": list(words),
            },
            working_directory=spec.working_directory,
        )


def local_folder(root: str) -> str:
    """The folder of a `file://` URI or plain path."""
    parts = urlsplit(root)
    return unquote(parts.path) if parts.scheme == "file" else root


def _text(value: object) -> str:
    """Booleans as `true` and `false`, numbers as Python prints them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Carried:
    """One run of the worker for one attempt."""

    def __init__(
        self,
        *,
        backend: AttemptBackend,
        pace: Pace,
        job: Job,
        plan: AttemptPlan,
        context: WorkContext,
        shortage: Shortage,
    ) -> None:
        self._backend = backend
        self._pace = pace
        self._job = job
        self._plan = plan
        self._context = context
        self._shortage = shortage
        self._announced = False

    async def run(self) -> tuple[Emit, ...]:
        if await self._cancelled():
            seen = await self._look()
            if not seen.alive and seen.stage == "absent":
                return (self._gone(Reason.CANCELLED, "cancelled before it was started", ran=False),)
        else:
            await self._room_to_start()
            try:
                launched = await asyncio.to_thread(self._backend.launch, self._plan)
            except StartError as error:
                if is_disk_full(error):
                    raise RetryLater(RETRY_S, f"{Reason.DISK_FULL}: {error.cause}") from error
                return (self._gone(Reason.START_FAILED, mask(error.cause), ran=False),)
            await self._context.emit(
                self._fact("AgentLaunched", "the agent was started")
                if launched
                else self._fact("AgentAdopted", "the attempt was under way already and is watched again")
            )
        return await self._watch()

    async def _room_to_start(self) -> None:
        """What is not under way yet waits, so that the room that is left stays for what runs."""
        missing = await asyncio.to_thread(self._shortage)
        if not missing:
            return
        seen = await self._look()
        if seen.stage == "absent" and not seen.alive:
            await self._context.emit(self._fact(Reason.DISK_FULL, f"it waits for room: {missing}"))
            raise RetryLater(RETRY_S, f"{Reason.DISK_FULL}: {missing}")

    async def _watch(self) -> tuple[Emit, ...]:
        """Look until it is over: by the agent's report, by its silence, or because somebody cancelled."""
        while True:
            seen = await self._look()
            await self._announce(seen)
            if seen.exit is not None:
                return await self._ended(seen, seen.exit)
            if not seen.agent_alive:
                return await self._lost(seen)
            if await self._cancelled():
                return await self._cancel()
            await asyncio.sleep(self._pace.look_every)

    async def _look(self) -> Observation:
        return await asyncio.to_thread(self._backend.observe, self._plan)

    async def _cancelled(self) -> bool:
        job = await self._context.get(Job, self._job.key)
        return job is not None and job.state == "CANCELLED"

    async def _announce(self, seen: Observation) -> None:
        """The training command was started: said once, also when its end is seen first."""
        ran = seen.stage == "running" or (seen.exit is not None and seen.exit.ran)
        if self._announced or not ran:
            return
        process = seen.command or seen.agent or "unknown"
        number = self._plan.attempt
        body = jobs.AttemptStarted(
            job=self._plan.job,
            attempt=number,
            host=self._backend.host,
            process=process,
            recovers=number - 1 if number > 1 else None,
        )
        started = Emit(project=self._plan.project, body=body, dedupe=(self._plan.job, number))
        await self._context.emit(started, self._fact("CommandStarted", f"process {process}"))
        self._announced = True

    async def _ended(self, seen: Observation, report: ExitReport) -> tuple[Emit, ...]:
        await self._clear_out(linger=self._pace.linger)
        cancelled = await self._cancelled()
        reason = Reason.CANCELLED if cancelled else _reason(report.reason)
        message = mask(report.message) or f"exit code {report.exit_code}"
        if seen.stopped and reason in {Reason.PROCESS_KILLED, Reason.PROCESS_FAILED, Reason.STOPPED}:
            reason, message = Reason.STOPPED, seen.stopped
        data: dict[str, Any] = {"agent": seen.agent, "command": seen.command, "signal": report.signal}
        if report.exit_code != 0 or not report.ran:
            tail = mask(await asyncio.to_thread(self._backend.log_tail, self._plan))
            data["log_tail"] = tail
            if not cancelled and says_disk_full(tail):
                reason = Reason.DISK_FULL
            message = message if reason in {Reason.STOPPED, Reason.CANCELLED} else with_cause(message, tail)
        fact = self._fact("ProcessExited", message, exit_code=report.exit_code, data=data)
        gone = self._gone(
            reason,
            message,
            ran=report.ran,
            exit_code=report.exit_code,
            signal=report.signal,
            output=last_lines(str(data.get("log_tail", ""))),
        )
        return (fact, gone)

    async def _lost(self, seen: Observation) -> tuple[Emit, ...]:
        """The agent is gone without a report. Whatever it left running is ended first: one job never runs twice."""
        killed = await self._clear_out(linger=0.0)
        after = await self._look()
        await self._announce(after)
        if after.exit is not None:
            return await self._ended(after, after.exit)
        stopped = seen.stopped or after.stopped
        message = stopped or "the agent is gone without a report"
        if killed:
            message += f"; {len(killed)} process(es) of it were still alive and were ended"
        data = {"agent": seen.agent, "command": seen.command, "ended": list(killed)}
        tail = mask(await asyncio.to_thread(self._backend.log_tail, self._plan))
        data["log_tail"] = tail
        reason = Reason.CANCELLED if await self._cancelled() else Reason.STOPPED if stopped else Reason.AGENT_LOST
        fact = self._fact(reason, message, data=data)
        ran = seen.command is not None or seen.stage == "running"
        return (fact, self._gone(reason, message, ran=ran, output=last_lines(tail)))

    async def _cancel(self) -> tuple[Emit, ...]:
        await self._context.emit(self._fact("StopRequested", "the job was cancelled; its processes are asked to end"))
        await asyncio.to_thread(self._backend.stop, self._plan, force=False)
        await self._gone_within(self._pace.grace)
        await self._clear_out(linger=0.0)
        seen = await self._look()
        await self._announce(seen)
        if seen.exit is not None:
            return await self._ended(seen, seen.exit)
        ran = seen.command is not None
        return (self._gone(Reason.CANCELLED, "ended because the job was cancelled", ran=ran),)

    async def _clear_out(self, *, linger: float) -> tuple[int, ...]:
        """Wait a little, then end whatever is left; returns only when nothing of the attempt is alive."""
        if await self._gone_within(linger):
            return ()
        killed: set[int] = set()
        if linger:
            killed.update(await asyncio.to_thread(self._backend.stop, self._plan, force=False))
            if await self._gone_within(min(linger, self._pace.grace)):
                return tuple(sorted(killed))
        while True:
            killed.update(await asyncio.to_thread(self._backend.stop, self._plan, force=True))
            if await self._gone_within(self._pace.look_every):
                return tuple(sorted(killed))

    async def _gone_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (await self._look()).alive:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(min(self._pace.look_every, max(0.01, until - time.monotonic())))
        return True

    def _gone(
        self,
        reason: Reason,
        message: str,
        *,
        ran: bool,
        exit_code: int | None = None,
        signal: int | None = None,
        output: tuple[str, ...] = (),
    ) -> Emit:
        body = jobs.AttemptEnded(
            job=self._plan.job,
            attempt=self._plan.attempt,
            exit_code=exit_code,
            signal=signal,
            reason=reason,
            message=message,
            ran=ran,
            output=output or None,
        )
        return Emit(project=self._plan.project, body=body, dedupe=(self._plan.job, self._plan.attempt))

    def _fact(
        self, reason: str, message: str, *, exit_code: int | None = None, data: dict[str, Any] | None = None
    ) -> Emit:
        number = self._plan.attempt
        body = jobs.RuntimeFactRecorded(
            job=self._plan.job,
            attempt=number,
            source=SOURCE,
            object=f"{self._plan.job}/attempt-{number}",
            reason=reason,
            message=message,
            exit_code=exit_code,
            data={name: value for name, value in (data or {}).items() if value is not None},
        )
        return Emit(project=self._plan.project, body=body, dedupe=(self._plan.job, number, reason))


def _reason(text: str) -> Reason:
    """The agent's reason when this version knows it."""
    return Reason(text) if text in {reason.value for reason in Reason} else Reason.UNKNOWN
