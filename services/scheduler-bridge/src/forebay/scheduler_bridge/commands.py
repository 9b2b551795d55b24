"""Commands: `submit`, `retry` and `cancel`. Pure; the answer goes out when their events are on record."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay.contracts.identifiers import LogicalName, parse_logical_name
from forebay.contracts.v1 import jobs
from forebay.contracts.v1.jobs import JobSpec
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.announcements import Decided, has_ended
from forebay.scheduler_bridge.domain.backend import Backend
from forebay.scheduler_bridge.domain.continuing import CHECKPOINT_ID, Legacy, continued, legacy_of
from forebay.scheduler_bridge.domain.documents import Job, KnownName, place
from forebay.scheduler_bridge.domain.fold_readiness import ACCEPTED
from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.specification import parse_spec, spec_digest
from forebay.scheduler_bridge.lookup import job_named, text_argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The newest run of a name, on record or decided."""

    job: str
    run: int
    spec_sha256: str
    client_id: str | None
    lives: bool
    continues: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """What people may ask the bridge to do."""

    backend: Backend

    def submit(self, state: State, pending: Pending, request: Request) -> Outcome:
        """Accept a job, adopt it when it is the same one, or refuse it with everything that is wrong."""
        spec = parse_spec(request.args.get("spec"), project=request.project)
        if not isinstance(spec, JobSpec):
            raise _invalid(spec)
        review = self.backend.review(spec, request.by)
        if review.problems:
            raise _invalid(review.problems)
        if request.args.get("wait_for_dataset") is True:
            spec = spec.model_copy(update={"wait_for_dataset": True})
        digest = spec_digest(spec)
        earlier = _earlier(state, pending, request.project, spec.name)
        if earlier is not None and (adopted := _adopt(earlier, spec, digest, request)) is not None:
            return adopted
        self._refuse_unknown(state, spec)
        spec, said = _start_of(state, request, spec, earlier)
        run = earlier.run + 1 if earlier else 1
        job_id = f"{spec.name}-{run}"
        body = jobs.JobSubmitted(
            job=job_id,
            run=run,
            spec=spec,
            spec_sha256=digest,
            submitted_by=request.by,
            client_id=request.id or None,
        )
        result = {"job": job_id, "run": run, "adopted": False, "starts": said, "warnings": list(review.warnings)}
        return Outcome(result=result, actions=(Emit(project=request.project, body=body, dedupe=(job_id,)),))

    def retry(self, state: State, pending: Pending, request: Request) -> Outcome:
        """Run a failed or cancelled job once more: the same request, from its checkpoints."""
        job = job_named(state, request.project, text_argument(request, "job"))
        if not has_ended(job, Decided(pending)) or (job.terminal is not None and job.terminal.state == "SUCCEEDED"):
            raise _not_to_be_retried(job)
        spec = continued(state, job)
        earlier = _earlier(state, pending, request.project, job.name)
        run = earlier.run + 1 if earlier else job.run + 1
        if earlier is not None and earlier.lives:
            if earlier.continues == spec.restart.start_from:
                return Outcome(result={"job": earlier.job, "run": earlier.run, "adopted": True, "warnings": []})
            raise Refused(
                "conflict",
                f"{earlier.job}, a later run of {job.name}, has not ended yet",
                f"wait for its end, or end it with `forebay cancel {earlier.job}`",
                {"job": earlier.job},
            )
        review = self.backend.review(spec, request.by)
        if review.problems:
            raise _invalid(review.problems)
        job_id = f"{job.name}-{run}"
        body = jobs.JobSubmitted(
            job=job_id,
            run=run,
            spec=spec,
            spec_sha256=job.spec_sha256,  # the same request: its file, submitted again, is this job
            submitted_by=request.by,
            client_id=request.id or None,
        )
        result = {
            "job": job_id,
            "run": run,
            "adopted": False,
            "continues": spec.restart.start_from,
            "starts": _how_it_starts(legacy_of(state, job)),
            "warnings": list(review.warnings),
        }
        return Outcome(result=result, actions=(Emit(project=request.project, body=body, dedupe=(job_id,)),))

    def cancel(self, state: State, pending: Pending, request: Request) -> Outcome:
        """End a job for good. Its process is stopped by the attempt's worker; quota is free when it is gone."""
        job = job_named(state, request.project, text_argument(request, "job"))
        reason = request.args.get("reason")
        if job.state == "CANCELLED":
            return Outcome(result={"job": job.id, "state": "CANCELLED", "already": True})
        if has_ended(job, Decided(pending)):
            state_now = job.terminal.state if job.terminal else "ending"
            raise Refused(
                "already-ended",
                f"{job.id} is {state_now}: what has ended cannot be cancelled",
                f"to run it once more: `forebay retry {job.id}`, or submit its file again",
                {"job": job.id, "state": state_now},
            )
        body = jobs.JobCancelled(job=job.id, by=request.by, reason=str(reason) if reason else None)
        emit = Emit(project=request.project, body=body, dedupe=(job.id,))
        return Outcome(result={"job": job.id, "state": "CANCELLED", "already": False}, actions=(emit,))

    def _refuse_unknown(self, state: State, spec: JobSpec) -> None:
        """A name that nobody has heard of is a typing error, unless the owner says that it will come."""
        if spec.wait_for_dataset:
            return
        for logical in _names(spec):
            known = state.find(KnownName, "group", place(spec.project, logical.kind))
            names = [item.name for item in known]
            if logical.name in names:
                _refuse_unknown_tag(spec, logical, next(item for item in known if item.name == logical.name))
                continue
            close = difflib.get_close_matches(logical.name, names, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else _known_hint(logical.kind, names)
            raise Refused(
                f"unknown-{logical.kind}",
                f"job {spec.name}: no {logical.kind} {logical.name!r} exists in project {spec.project}; {hint}",
                "correct the name, or submit with --wait-for-dataset if it is still to come",
                {"name": str(logical), "close": close},
            )


def _refuse_unknown_tag(spec: JobSpec, logical: LogicalName, known: KnownName) -> None:
    """A tag that was never set on this dataset is a typing error, too; `train-ready` comes by itself."""
    tag = logical.selector
    if logical.kind != "dataset" or logical.version is not None or tag in {ACCEPTED, *known.tags}:
        return
    tags = sorted({ACCEPTED, *known.tags})
    close = difflib.get_close_matches(tag, tags, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(tags[:5])}"
    raise Refused(
        "unknown-tag",
        f"job {spec.name}: dataset {logical.name} has never had the tag {tag!r}; {hint}",
        "correct the tag, or submit with --wait-for-dataset if it is still to be set",
        {"name": str(logical), "close": close},
    )


def _start_of(state: State, request: Request, spec: JobSpec, earlier: Earlier | None) -> tuple[JobSpec, str]:
    """Where training will start, in words; a start at step 0 beside checkpoints of the same name needs `--fresh`."""
    start = spec.restart.start_from
    if start is not None and start.startswith(CHECKPOINT_ID):
        return spec, f"it starts from checkpoint {start}"
    if start is not None:
        job = job_named(state, request.project, start)
        restart = spec.restart.model_copy(update={"start_from": job.id})
        return spec.model_copy(update={"restart": restart}), _how_it_starts(legacy_of(state, job))
    last = state.get(Job, place(request.project, earlier.job)) if earlier is not None else None
    if last is None or last.terminal is None or last.terminal.state == "SUCCEEDED":
        return spec, "it starts at step 0"
    ended, legacy = last.terminal.state.lower(), legacy_of(state, last)
    if not legacy.count:
        return spec, f"it starts at step 0: {last.id} was {ended} and left no checkpoint"
    if request.args.get("fresh") is True:
        return spec, f"it starts at step 0, as asked with --fresh; {last.id} left {legacy}"
    raise Refused(
        "has-checkpoints",
        f"{last.id} {'has failed' if ended == 'failed' else 'was cancelled'} and left {legacy};"
        " submitting its file again would start at step 0",
        f"continue it with `forebay retry {last.id}`; continue it with a changed file by setting"
        f" `restart: {{start_from: {last.id}}}`; or start at step 0 with --fresh",
        {"job": last.id, "checkpoints": legacy.count, "step": legacy.step},
    )


def _how_it_starts(legacy: Legacy) -> str:
    if not legacy.count:
        return f"it starts at step 0: {legacy.job} left no checkpoint"
    return f"it continues {legacy.job}, which left {legacy}"


def _not_to_be_retried(job: Job) -> Refused:
    if job.terminal is None:
        return Refused(
            "still-alive",
            f"{job.id} has not ended: it is {job.state}",
            f"see where it is with `forebay why {job.id}`, or end it with `forebay cancel {job.id}`",
            {"job": job.id, "state": job.state},
        )
    return Refused(
        "already-succeeded",
        f"{job.id} has succeeded: there is nothing to retry",
        "to train once more, submit its file again",
        {"job": job.id, "state": job.state},
    )


def _known_hint(kind: str, names: Iterable[str]) -> str:
    shown = sorted(names)[:5]
    return f"known are {', '.join(shown)}" if shown else f"the project has no {kind} yet"


def _names(spec: JobSpec) -> list[LogicalName]:
    datasets = [parse_logical_name(item.name, kind="dataset") for item in spec.datasets]
    return datasets + [parse_logical_name(item.name, kind="model") for item in spec.models]


def _invalid(problems: tuple[Problem, ...]) -> Refused:
    lines = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
    return Refused(
        "invalid-spec",
        f"the job cannot be accepted: {lines}",
        "correct the named fields and submit again",
        {"problems": [problem.to_json() for problem in problems]},
    )


def _earlier(state: State, pending: Pending, project: str, name: str) -> Earlier | None:
    """The newest run of this name, a submission on its way included."""
    decided = Decided(pending)
    runs = [
        Earlier(
            job=job.id,
            run=job.run,
            spec_sha256=job.spec_sha256,
            client_id=job.client_id,
            lives=not has_ended(job, decided),
            continues=job.request.restart.start_from,
        )
        for job in state.find(Job, "named", place(project, name))
    ]
    runs += [
        Earlier(
            job=body.job,
            run=body.run,
            spec_sha256=body.spec_sha256,
            client_id=body.client_id,
            lives=True,
            continues=body.spec.restart.start_from,
        )
        for body in pending.of(jobs.JobSubmitted, project)
        if body.spec.name == name
    ]
    return max(runs, key=lambda item: item.run, default=None)


def _adopt(earlier: Earlier, spec: JobSpec, digest: str, request: Request) -> Outcome | None:
    """The same job again is the same job; None when this is a new run."""
    same_request = bool(request.id) and request.id == earlier.client_id
    if not earlier.lives and not same_request:
        return None
    if digest == earlier.spec_sha256:
        return Outcome(result={"job": earlier.job, "run": earlier.run, "adopted": True, "warnings": []})
    raise Refused(
        "conflict",
        f"{earlier.job} is still alive and was submitted with other content under the name {spec.name!r}",
        f"give this job another name, or end the first one with `forebay cancel {earlier.job}`",
        {"job": earlier.job},
    )


def command_table(backend: Backend) -> dict[str, Any]:
    """The commands by name, for the service's definition."""
    commands = Commands(backend=backend)
    return {"submit": commands.submit, "retry": commands.retry, "cancel": commands.cancel}
