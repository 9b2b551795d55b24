"""Questions: `jobs`, `job`, `why`. Read only; every number is of this moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from forebay.contracts.permissions import ATTEMPT_OF
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Question, Request
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.attempts import is_stop, root_cause
from forebay.scheduler_bridge.domain.backend import Backend
from forebay.scheduler_bridge.domain.business import recovering, standing, waited
from forebay.scheduler_bridge.domain.cluster.documents import Carrier, ClusterObject
from forebay.scheduler_bridge.domain.cluster.objects import HEARTBEAT, label_of
from forebay.scheduler_bridge.domain.documents import Attempt, Entry, Job
from forebay.scheduler_bridge.domain.history import remark
from forebay.scheduler_bridge.domain.kubernetes.facts import condition, moment
from forebay.scheduler_bridge.domain.sentence import sentence
from forebay.scheduler_bridge.domain.verdict import judge
from forebay.scheduler_bridge.lookup import job_named, jobs_of, number_argument, text_argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Answers about jobs, from the state and what their backend makes of it."""

    backend: Backend

    def jobs(self, state: State, request: Request) -> dict[str, Any]:
        """A page of jobs, each with its state and the sentence of its verdict."""
        after = str(request.args.get("after", ""))
        limit = number_argument(request, "limit", default=100, highest=1000)
        page = jobs_of(state, request.project, after=after, limit=limit)
        return {
            "jobs": [_line(job) for job in page],
            "next": page[-1].id if len(page) == limit else None,
        }

    def job(self, state: State, request: Request) -> dict[str, Any]:
        """Everything on record about one job, its history included (paged by `after`)."""
        job = job_named(state, request.project, text_argument(request, "job"))
        limit = number_argument(request, "limit", default=200, highest=1000)
        after = str(request.args.get("after", ""))
        entries = [entry for entry in state.find(Entry, "of", job.key) if entry.key > after]
        page = entries[:limit]
        return {
            **_line(job),
            "submitted_by": job.submitted_by,
            "spec": job.spec,
            "spec_sha256": job.spec_sha256,
            "inputs": [item.body for item in job.lease.inputs],
            "conditions": _plain(job.conditions),
            "attempt_list": [_attempt(item) for item in job.attempts],
            "verdict": job.verdict,
            "end": _plain(job.terminal),
            "history": [_entry(entry, job) for entry in page],
            "next": page[-1].key if len(entries) > limit else None,
        }

    def why(self, state: State, request: Request) -> dict[str, Any]:
        """Why the job is where it is: one sentence, the conditions, the verdict, and where its time went."""
        job = job_named(state, request.project, text_argument(request, "job"))
        situation = self.backend.situation(state, job, request.now)
        verdict = judge(situation, self.backend.rules)
        # The job's own verdict is the last one in the log; what it queues for must agree with the one said here.
        judged = {"layer": verdict.layer, "cause": verdict.cause}
        found = standing(msgspec.structs.replace(job, verdict=judged))
        job = msgspec.structs.replace(job, state=found.state, queued_for=found.queued_for)
        return {
            "job": job.id,
            "state": job.state,
            "queued_for": job.queued_for,
            "recovering": recovering(job),
            "sentence": sentence(
                job, {"layer": verdict.layer, "message": verdict.message, "next_action": verdict.next_action}
            ),
            "conditions": _plain(situation.conditions),
            "verdict": verdict.model_dump(mode="json", exclude_none=True),
            "waited_seconds": {layer: round(seconds, 3) for layer, seconds in waited(job, request.now).items()},
            "attempts": [_attempt(item) for item in job.attempts],
            "holds_quota": any(item.holds for item in job.attempts),
            "output": _output(job),
            "heartbeats": _heartbeats(state, job, request.now),
            "unseen": unseen_of(state, job),
            "submitted_at": _plain(job.submitted_at),
        }

    def attempt_of(self, state: State, request: Request) -> dict[str, Any]:
        """Which attempt a pod is; asked by the agent in it, which cannot know what happened to other pods."""
        job = job_named(state, request.project, text_argument(request, "job"))
        pod = text_argument(request, "pod")
        carrier = state.get(Carrier, job.key)
        number = carrier.pods.get(pod) if carrier is not None else None
        if number is None:
            raise Refused("not-known-yet", f"pod {pod} of {job.id} was not seen yet, or its quota was not", "ask again")
        return {"job": job.id, "pod": pod, "attempt": number}

    def table(self) -> dict[str, Question]:
        """The questions by name, for the service's definition."""
        return {"jobs": self.jobs, "job": self.job, "why": self.why, ATTEMPT_OF: self.attempt_of}


def _output(job: Job) -> dict[str, Any] | None:
    """What the attempt that explains the job's end, or its last retry, printed last."""
    root = root_cause(job)
    if root is None or root.ending is None or not root.ending.output:
        return None
    if job.state == "SUCCEEDED" or is_stop(root.ending):
        return None
    return {"attempt": root.number, "lines": list(root.ending.output)}


def _heartbeats(state: State, job: Job, now: datetime) -> list[dict[str, Any]]:
    """When the nodes of a job that do not answer were last heard."""
    found = []
    for item in state.find(ClusterObject, "of", job.key):
        ready = condition(item.body, "Ready") if item.type == "Node" and not item.gone else None
        at = moment((ready or {}).get(HEARTBEAT))
        if at is not None:
            name = item.body["metadata"]["name"]
            found.append({"node": name, "at": _time(at), "age_s": round((now - at).total_seconds(), 1)})
    return found


def unseen_of(state: State, job: Job) -> list[dict[str, str]]:
    """What of the job went while nobody watched its cluster, with the time in which that was."""
    gone = [item for item in state.find(ClusterObject, "of", job.key) if item.unseen]
    return [{"object": label_of(item.body), "message": item.unseen} for item in gone]


def _plain(value: object) -> Any:
    """JSON values; times as text."""
    return msgspec.to_builtins(value, builtin_types=(), str_keys=True)


def _line(job: Job) -> dict[str, Any]:
    return {
        "job": job.id,
        "name": job.name,
        "run": job.run,
        "state": job.state,
        "queued_for": job.queued_for,
        "recovering": recovering(job),
        "message": (job.verdict or {}).get("message", ""),
        "priority": job.spec.get("priority", 0),
        "attempts": len(job.attempts),
        "submitted_at": _time(job.submitted_at),
        "ended_at": _time(job.terminal.at) if job.terminal else None,
    }


def _time(value: datetime) -> str:
    return value.isoformat()


def _attempt(attempt: Attempt) -> dict[str, Any]:
    """One attempt with its two recoveries kept apart: the process came back, and training resumed."""
    start, resume, ending = attempt.start, attempt.resume, attempt.ending
    return {
        "attempt": attempt.number,
        "state": attempt.state,
        "devices": list(attempt.devices),
        "admitted_at": _plain(attempt.admitted_at),
        "preflight": _plain(attempt.preflight),
        "process": None
        if start is None
        else {"host": start.host, "process": start.process, "at": _time(start.at), "recovers": start.recovers},
        "training": None
        if resume is None
        else {
            "mode": resume.mode,
            "step": resume.step,
            "checkpoint": resume.checkpoint,
            "reasons": list(resume.reasons),
            "skipped": [dict(item) for item in resume.skipped],
        },
        "ending": _plain(ending),
    }


def _entry(entry: Entry, job: Job) -> dict[str, Any]:
    line = {
        "at": _time(entry.at),
        "event": entry.event,
        "machine": entry.machine,
        "attempt": entry.attempt,
        "source": entry.source,
        "object": entry.object,
        "reason": entry.reason,
        "message": entry.message,
        "exit_code": entry.exit_code,
        "data": entry.data or None,
        "remark": remark(entry, job),
        "id": entry.id,
    }
    return {name: value for name, value in line.items() if value is not None}
