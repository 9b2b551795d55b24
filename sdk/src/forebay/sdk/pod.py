"""Our two containers in a training pod: `prepare` before the command, `watch` beside it.

`prepare` checks everything, asks where to continue and leaves the shim; a failed check
ends it with that check's exit code. `watch` announces checkpoints until the pod ends.
Neither holds the command back for the bus: events wait in the pod's outbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.contracts.identifiers import stable_id
from forebay.contracts.parts import Part, Source
from forebay.contracts.permissions import ATTEMPT_OF
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import PreflightReported
from forebay.runtime.errors import NotAdmitted, Refused, Unreachable
from forebay.sdk import pod_checks as judge
from forebay.sdk.announcing import SaveAnnouncer
from forebay.sdk.attempt_files import AttemptFolder
from forebay.sdk.checkpoints import CheckpointWatcher, up_to_last
from forebay.sdk.link import BusLink
from forebay.sdk.outbox import outbox_of
from forebay.sdk.pod_checks import Finding
from forebay.sdk.pod_probes import PodInputs, checkpoint_findings, look
from forebay.sdk.pod_report import masked, termination_message
from forebay.sdk.resume import ResumePoint, ask_resume_point
from forebay.sdk.settings import PodSettings
from forebay.sdk.shim import START, exports

_log = logging.getLogger(__name__)
_POLL_S = 2.0
_ASK_S = 0.2
"""Between two questions; a pod is seen by the bridge within milliseconds of being made."""


class Pod:
    """One pod of one attempt."""

    def __init__(self, settings: PodSettings, inputs: PodInputs, attempt: int) -> None:
        self._settings = settings
        self._attempt = attempt
        self._source = Source(Part.AGENT, settings.project)
        self._link = BusLink(settings.nats_url, settings.key, outbox_of(settings.home, self._source))
        job = settings.as_job(attempt)
        job.attempt_dir.mkdir(parents=True, exist_ok=True)
        watcher = CheckpointWatcher(
            settings.checkpoints, published=up_to_last if settings.trainer == "lerobot" else None
        )
        files = AttemptFolder(job.attempt_dir)
        self._saves = SaveAnnouncer(watcher, files, settings.job, self._say, uri_of=inputs.uri_of)
        self._saves.compatibility = inputs.compatibility
        self._inputs = inputs
        self._job = job

    def _say(self, body: EventBody, *identity: object) -> None:
        event_id = stable_id(body.event, self._settings.project, *identity)
        event: Event[EventBody] = Event(
            id=event_id, source=self._source, project=self._settings.project, body=body, correlation=self._settings.job
        )
        self._link.outbox.append([event])
        self._link.wake()

    async def prepare(self) -> int:
        """Check, ask, report; returns the exit code."""
        started = time.perf_counter()
        async with self._link:
            if self._attempt > 1 and self._settings.index == 0:
                if self._settings.trainer == "lerobot":
                    set_unfinished_aside(self._settings.checkpoints)
                await self._saves.announce(self._attempt - 1, final=True)
            findings = [
                *await asyncio.to_thread(look, self._inputs, self._settings),
                *judge.judge_bus(await self._bus()),
            ]
            point, about_resume = await self._resume()
            findings = list(masked([*findings, *about_resume]))
            code = judge.exit_code_of(findings)
            if code == 0:
                self._leave(point)
            self._report(findings, code, time.perf_counter() - started)
            await self._link.drain(self._settings.report_deadline_s)
        return code

    async def _bus(self) -> str | None:
        try:
            async with asyncio.timeout(self._settings.report_deadline_s):
                await self._link.client()
        except Unreachable as error:
            return error.message
        except TimeoutError:
            return "the bus does not answer"
        return None

    async def _resume(self) -> tuple[ResumePoint, list[Finding]]:
        await self._link.drain(self._settings.bus_deadline_s if self._attempt > 1 else self._settings.report_deadline_s)
        point = await ask_resume_point(self._link, self._job, self._inputs)
        said = "; ".join(point.reasons)
        _log.info("resume point: %s (%s)", point.mode, said)
        if point.mode == "refused":
            code = judge.RESUME_REFUSED if point.answered else judge.RESUME_UNKNOWN
            reason = Reason.RESUME_REFUSED if point.answered else Reason.RESUME_UNKNOWN
            message = said or "no usable checkpoint exists and a cold start was not allowed"
            return point, [judge.failed("resume", reason, message, code)]
        if point.uri is None:
            return point, []
        folder = self._inputs.folder_of(point.uri)
        point = replace(point, uri=folder.as_uri())
        return point, list(checkpoint_findings(folder, lerobot=self._settings.trainer == "lerobot"))

    def _leave(self, point: ResumePoint) -> None:
        """What the shim needs, in the folder that all containers share."""
        variables = point.environment() | {"FOREBAY_ATTEMPT": str(self._attempt)}
        if "FOREBAY_RESUME_FROM" not in variables and self._inputs.output_dir and self._settings.index == 0:
            set_aside(Path(self._inputs.output_dir), self._attempt)
        run = self._settings.run_dir
        _write(run / "resume.env", exports(variables))
        _write(run / "attempt.json", json.dumps({"attempt": self._attempt, "mode": point.mode}))
        _write(run / "start.sh", START, mode=0o755)

    def _report(self, findings: Sequence[Finding], code: int, seconds: float) -> None:
        checks = tuple(item.check for item in findings)
        for check in checks:
            _log.info("preflight %s: %s: %s", check.status, check.name, check.message)
        with contextlib.suppress(OSError):
            message = termination_message(checks, attempt=self._attempt, exit_code=code)
            self._settings.termination_log.write_bytes(message)
        if self._settings.index == 0:
            body = PreflightReported(
                job=self._settings.job, attempt=self._attempt, checks=checks, seconds=round(seconds, 3)
            )
            self._say(body, self._settings.job, self._attempt)

    def _training_is_over(self) -> bool:
        """The shim has said so. A signal that comes before this process can take it is lost: it is its container's init."""
        return (self._settings.run_dir / "exit.json").exists()

    async def watch(self, stop: asyncio.Event) -> int:
        """Announce saves until told to stop or the training has ended, then the last ones."""
        ended = self._settings.run_dir / "exit.json"
        _log.info("watching %s as attempt %d", self._settings.checkpoints, self._attempt)
        async with self._link:
            delivery = asyncio.create_task(self._link.deliver_for_ever())
            while not (stop.is_set() or self._training_is_over()):
                if self._settings.index == 0:
                    # The command may have ended before this process could hear that it should.
                    await self._saves.announce(self._attempt, final=ended.exists())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await stop.wait()
            if self._settings.index == 0:
                await self._saves.announce(self._attempt, final=True)
            delivery.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await delivery
            if left := await self._link.drain(self._settings.bus_deadline_s):
                _log.warning("%d events could not be delivered; the next attempt announces its saves again", left)
        return 0


def set_aside(folder: Path, attempt: int) -> None:
    """LeRobot refuses an output folder that exists; what an attempt without a finished save left is kept beside it."""
    if attempt > 1 and folder.is_dir():
        kept = folder.with_name(f"{folder.name}.before-attempt-{attempt}")
        if not kept.exists():
            folder.rename(kept)
            _log.info("%s of an earlier attempt was kept as %s", folder, kept)


def set_unfinished_aside(checkpoints: Path) -> None:
    """Saves that an earlier attempt began and `last` never named: the next move of `last` must not count them in."""
    for folder in sorted(checkpoints.glob("*")):
        if folder.is_dir() and not folder.is_symlink() and folder.name.isdigit() and not up_to_last(folder):
            folder.rename(_free(folder.with_name(f"{folder.name}.incomplete")))
            _log.info("%s was never finished and is kept as %s.incomplete", folder, folder.name)


def _free(path: Path) -> Path:
    """The path, or the first one like it that is not taken."""
    count = 1
    found = path
    while found.exists():
        count += 1
        found = path.with_name(f"{path.stem}-{count}{path.suffix}")
    return found


def claim_attempt(settings: PodSettings) -> int:
    """The number of this pod's attempt: one more than the pods of its rank before it.

    Counted by marks on the output's volume, which outlives pods, and by the Job
    controller's own count where that is higher; the same pod gets the same number again.
    """
    least = 1 + settings.failures + settings.ignored_failures
    marks = settings.output / ".forebay" / f"pods-{settings.index}"
    try:
        marks.mkdir(parents=True, exist_ok=True)
        known = {int(path.name): path.read_text(encoding="utf-8") for path in marks.iterdir() if path.name.isdigit()}
        for number, uid in known.items():
            if uid == settings.pod_uid:
                return number
        number = max(least, max(known, default=0) + 1)
        with os.fdopen(os.open(marks / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "w") as file:
            file.write(settings.pod_uid)
    except OSError:
        return least  # the checks say what is wrong with the output
    return number


async def number_of(settings: PodSettings) -> int:
    """Which attempt this pod is, as the bridge counts; when it does not say, as the output's volume remembers.

    The bridge has also seen pods that never came as far as their first container. It
    answers a gang's pods when every pod of the attempt before has ended, so those that
    were made again wait for that: they would write beside the old ones.
    """
    claimed = claim_attempt(settings)
    waits = settings.nodes > 1 and claimed > 1 and settings.key is not None
    patient_until = asyncio.get_running_loop().time() + settings.report_deadline_s
    link = BusLink(settings.nats_url, settings.key, outbox_of(settings.home, Source(Part.AGENT, settings.project)))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if waits else settings.bus_deadline_s), link:
            while True:
                try:
                    answer = await _attempt_of(link, settings)
                except NotAdmitted:  # the bridge has not seen this pod yet, or is away
                    waited = asyncio.get_running_loop().time() > patient_until
                    answer = claimed if waited and not waits else None
                except Unreachable:
                    answer = None if waits else claimed
                if answer is not None:
                    return answer or claimed
                await asyncio.sleep(_ASK_S)
    return claimed


async def _attempt_of(link: BusLink, settings: PodSettings) -> int | None:
    """The bridge's answer; None: not yet; 0: it will give none."""
    try:
        answer = await link.ask(str(Part.BRIDGE), ATTEMPT_OF, {"job": settings.job, "pod": settings.pod_uid})
    except Refused as refused:
        return None if refused.code in {"not-known-yet", "catching-up"} else 0
    return int(answer.result["attempt"])


async def prepare(settings: PodSettings) -> int:
    """The init container's work."""
    attempt = await number_of(settings)
    try:
        inputs = PodInputs.model_validate_json(settings.inputs.read_bytes())
        pod = Pod(settings, inputs, attempt)
    except (OSError, ValidationError) as error:
        message = f"what the job was promised cannot be read: {error}"
        finding = judge.failed("inputs", Reason.START_FAILED, message, judge.BAD_INPUTS)
        if isinstance(error, OSError) and error.filename != str(settings.inputs):
            finding = judge.judge_write_error(str(settings.output), error)
        checks = [item.check for item in masked([finding])]
        settings.termination_log.write_bytes(termination_message(checks, attempt=attempt, exit_code=finding.code))
        _log.error("%s", checks[0].message)
        return finding.code
    return await pod.prepare()


async def watch(settings: PodSettings) -> int:
    """The side-car's work."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop.set)
    try:
        attempt = int(json.loads((settings.run_dir / "attempt.json").read_bytes())["attempt"])
        inputs = PodInputs.model_validate_json(settings.inputs.read_bytes())
        pod = Pod(settings, inputs, attempt)
    except (OSError, ValueError, KeyError) as error:
        _log.warning("nothing is watched: %s", error)
        await stop.wait()
        return 0
    return await pod.watch(stop)


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.chmod(mode)
    part.rename(path)
