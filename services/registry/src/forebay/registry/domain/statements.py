"""What each event says about which node: the one table between the log and lineage.

An entry returns statements (node, values, parents). `evolve` adds them to the
nodes; nothing else in the registry interprets an event. Values are JSON values
without None, so that a stored fact equals the fact it was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.contracts.body import EventBody, FileRef, Value
from forebay.contracts.v1 import cache, datasets, episodes, jobs, models
from forebay.registry.domain.nodes import (
    CHECKPOINT,
    CONTRADICTION,
    EPISODE,
    EVALUATION,
    UPLOAD,
    Link,
    attempt_id,
    dataset_id,
    job_id,
    model_id,
    release_id,
)

Statement = tuple[str, dict[str, Any], tuple[Link, ...]]

UPLOADED_IN = "uploaded-in"
HOLDS = "holds-episodes-of"
DERIVED_FROM = "derived-from"
READS = "reads"
STARTS_FROM = "starts-from"
ATTEMPT_OF = "attempt-of"
RESUMED_FROM = "resumed-from"
WRITTEN_BY = "written-by"
MADE_FROM = "made-from"
BASED_ON = "based-on"
EVALUATES = "evaluates"
RELEASES = "releases"
JUSTIFIED_BY = "justified-by"


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _plain(value: Value | None) -> Any:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _ref(ref: FileRef) -> dict[str, Any]:
    return {"uri": ref.uri, "sha256": ref.sha256, "bytes": ref.bytes}


# ------------------------------------------------------------ uploads, episodes


def _upload_started(body: episodes.UploadStarted) -> list[Statement]:
    values = _known(
        dataset=body.dataset,
        source_ref=body.source_ref,
        source_format=body.source_format,
        source_revision=body.source_revision,
        expected_episodes=body.expected_episodes,
        expected_bytes=body.expected_bytes,
    )
    return [(f"{UPLOAD}:{body.upload}", values, ())]


def _upload_finished(body: episodes.UploadFinished) -> list[Statement]:
    values = {
        "dataset": body.dataset,
        "episodes": body.episodes,
        "files": body.files,
        "bytes": body.bytes,
        "manifest_sha256": body.manifest.sha256,
    }
    return [(f"{UPLOAD}:{body.upload}", values, ())]


def _episode_uploaded(body: episodes.EpisodeUploaded) -> list[Statement]:
    rows = body.rows
    values: dict[str, Any] = {
        "dataset": body.dataset,
        "upload": body.upload,
        "source_index": body.source_index,
        "length": body.length,
        "tasks": list(body.tasks),
        "rows": [rows.file, rows.start, rows.stop],
        "cameras": [[video.camera, video.file, video.start, video.stop] for video in body.videos],
    }
    if body.robot is not None:
        values["robot"] = body.robot
    return [(f"{EPISODE}:{body.episode}", values, ((UPLOADED_IN, f"{UPLOAD}:{body.upload}"),))]


def _judged(
    body: episodes.EpisodeAccepted | episodes.EpisodeHeld | episodes.EpisodeRejected, values: dict[str, Any]
) -> list[Statement]:
    values |= {
        "dataset": body.dataset,
        "upload": body.upload,
        "source_index": body.source_index,
        "length": body.length,
    }
    return [(f"{EPISODE}:{body.episode}", values, ((UPLOADED_IN, f"{UPLOAD}:{body.upload}"),))]


def _episode_accepted(body: episodes.EpisodeAccepted) -> list[Statement]:
    values: dict[str, Any] = {"rules_version": body.rules_version}
    if body.warnings:
        values["warnings"] = sorted({finding.rule for finding in body.warnings})
    if body.sha256 is not None:
        values["rows_sha256"] = body.sha256
    return _judged(body, values)


def _episode_refused(body: episodes.EpisodeHeld | episodes.EpisodeRejected) -> list[Statement]:
    findings = [
        _known(rule=found.rule, frame=found.frame, feature=found.feature, message=found.message[:300])
        for found in body.findings[:20]
    ]
    return _judged(body, {"rules_version": body.rules_version, "findings": findings})


def _episode_withdrawn(body: episodes.EpisodeWithdrawn) -> list[Statement]:
    values = {"dataset": body.dataset, "withdrawn_reason": body.reason, "withdrawn_by": body.by}
    return [(f"{EPISODE}:{body.episode}", values, ())]


# --------------------------------------------------------------------- datasets


def _version_committed(body: datasets.DatasetVersionCommitted) -> list[Statement]:
    values = _known(
        root=body.root,
        access_plan=body.access_plan,
        format=body.format,
        tables=dict(body.tables),
        episodes=_ref(body.episodes),
        episode_count=body.episode_count,
        frame_count=body.frame_count,
        bytes=body.bytes,
        manifest_sha256=body.manifest_sha256,
        checksums_sha256=body.checksums.sha256,
        uploads=list(body.uploads),
        parent=body.parent,
        parent_reason=body.parent_reason,
        filter=body.filter,
        source_ref=body.source_ref,
        source_revision=body.source_revision,
        source_name=body.source_name,
        rules_version=body.rules_version,
    )
    parents: list[Link] = [(HOLDS, f"{UPLOAD}:{upload}") for upload in body.uploads]
    if body.parent is not None:
        parents.append((DERIVED_FROM, dataset_id(body.dataset, body.parent)))
    return [(dataset_id(body.dataset, body.number), values, tuple(parents))]


def _tagged(body: datasets.DatasetTagged | datasets.DatasetUntagged) -> list[Statement]:
    values = _known(tag=body.tag, by=body.by, reason=body.reason)
    return [(dataset_id(body.dataset, body.number), values, ())]


# ------------------------------------------------------------------------- jobs


def _job_submitted(body: jobs.JobSubmitted) -> list[Statement]:
    spec = body.spec
    values = _known(
        name=spec.name,
        run=body.run,
        command=list(spec.command),
        declared_datasets=[one.name for one in spec.datasets],
        declared_models=[one.name for one in spec.models],
        code_revision=spec.code_revision,
        parameters=dict(spec.parameters),
        resources=_plain(spec.resources),
        spec_sha256=body.spec_sha256,
        submitted_by=body.submitted_by,
    )
    return [(job_id(body.job), values, ())]


def _lease_granted(body: datasets.LeaseGranted) -> list[Statement]:
    inputs = [
        _known(
            kind=one.kind,
            logical=one.logical,
            pinned=f"{one.kind}:{one.name}@v{one.number}",
            manifest_sha256=one.manifest_sha256,
            columns=list(one.columns),
            episodes=None if one.episodes is None else list(one.episodes),
        )
        for one in body.inputs
    ]
    parents = tuple(
        (READS, dataset_id(one.name, one.number))
        if one.kind == "dataset"
        else (STARTS_FROM, model_id(one.name, one.number))
        for one in body.inputs
    )
    return [(job_id(body.job), {"inputs": inputs}, parents)]


def _cache_planned(body: cache.CachePlanned) -> list[Statement]:
    values = {"plan": body.plan, "dataset": f"{body.name}@v{body.number}", "total_bytes": body.total_bytes}
    return [(job_id(body.job), {"plans": values}, ())]


def _job_succeeded(body: jobs.JobSucceeded) -> list[Statement]:
    return [(job_id(body.job), {"attempts": body.attempts, "succeeded_attempt": body.attempt}, ())]


def _job_failed(body: jobs.JobFailed) -> list[Statement]:
    values = {"attempts": body.attempts, "failure": body.reason.value, "message": body.message}
    return [(job_id(body.job), values, ())]


def _job_cancelled(body: jobs.JobCancelled) -> list[Statement]:
    return [(job_id(body.job), _known(cancelled_by=body.by, cancelled_reason=body.reason), ())]


# --------------------------------------------------------------------- attempts


def _of_attempt(job: str, attempt: int, values: dict[str, Any], *more: Link) -> list[Statement]:
    return [(attempt_id(job, attempt), values, ((ATTEMPT_OF, job_id(job)), *more))]


def _admitted(body: jobs.WorkloadAdmitted) -> list[Statement]:
    values = {"resources": _plain(body.resources), "devices": list(body.devices), "queue": body.queue}
    return _of_attempt(body.job, body.attempt, values)


def _evicted(body: jobs.WorkloadEvicted) -> list[Statement]:
    return _of_attempt(body.job, body.attempt, {"evicted": {"reason": body.reason.value, "message": body.message}})


def _pod_scheduled(body: jobs.PodScheduled) -> list[Statement]:
    return _of_attempt(body.job, body.attempt, {"placed": {"pod": body.pod, "node": body.node}})


def _preflight_passed(body: jobs.PreflightPassed) -> list[Statement]:
    return _of_attempt(body.job, body.attempt, {"preflight": "passed"})


def _preflight_failed(body: jobs.PreflightFailed) -> list[Statement]:
    failed = [{"name": one.name, "reason": one.reason.value} for one in body.failed]
    return _of_attempt(body.job, body.attempt, {"preflight": "failed", "preflight_failed": failed})


def _attempt_started(body: jobs.AttemptStarted) -> list[Statement]:
    values = _known(host=body.host, process=body.process, recovers=body.recovers)
    return _of_attempt(body.job, body.attempt, values)


def _attempt_ended(body: jobs.AttemptEnded) -> list[Statement]:
    values = _known(
        exit_code=body.exit_code,
        signal=body.signal,
        end_reason=body.reason.value,
        end_message=body.message,
        ran=body.ran,
    )
    return _of_attempt(body.job, body.attempt, values)


def _resume_decided(body: models.ResumeDecided) -> list[Statement]:
    values = _known(
        resume_mode=body.mode,
        resume_step=body.step,
        resume_checkpoint=body.checkpoint,
        resume_reasons=list(body.reasons),
        resume_skipped=[[one.checkpoint, one.step, one.reason] for one in body.skipped],
    )
    origin = () if body.checkpoint is None else ((RESUMED_FROM, f"{CHECKPOINT}:{body.checkpoint}"),)
    return _of_attempt(body.job, body.attempt, values, *origin)


# ---------------------------------------------------------- checkpoints, models


def _checkpoint_written(body: models.CheckpointWritten) -> list[Statement]:
    values: dict[str, Any] = {
        "job": body.job,
        "attempt": body.attempt,
        "step": body.step,
        "uri": body.uri,
        "digest": body.digest,
        "files": [[file.path, file.sha256, file.bytes] for file in body.files],
        "compatibility": body.compatibility.model_dump(mode="json", exclude_none=True),
    }
    if body.metrics:
        values["metrics"] = dict(body.metrics)
    return [(f"{CHECKPOINT}:{body.checkpoint}", values, ((WRITTEN_BY, attempt_id(body.job, body.attempt)),))]


def _checkpoint_verified(body: models.CheckpointVerified) -> list[Statement]:
    values: dict[str, Any] = {
        "job": body.job,
        "attempt": body.attempt,
        "step": body.step,
        "status": body.status,
        "findings": list(body.findings),
    }
    return [(f"{CHECKPOINT}:{body.checkpoint}", values, ((WRITTEN_BY, attempt_id(body.job, body.attempt)),))]


def _model_registered(body: models.ModelVersionRegistered) -> list[Statement]:
    checkpoint = f"{CHECKPOINT}:{body.checkpoint}"
    values = {
        "model": body.model,
        "number": body.number,
        "job": body.job,
        "attempt": body.attempt,
        "checkpoint": body.checkpoint,
        "step": body.step,
        "uri": body.uri,
        "artefact_sha256": body.artefact_sha256,
        "datasets": list(body.datasets),
        "base_models": list(body.base_models),
        "registered_by": body.by,
    }
    parents = ((MADE_FROM, checkpoint), *((BASED_ON, base) for base in body.base_models if base.startswith("model:")))
    copied = {
        "job": body.job,
        "attempt": body.attempt,
        "step": body.step,
        "uri": body.uri,
        "digest": body.artefact_sha256,
    }
    return [
        (model_id(body.model, body.number), values, parents),
        # The version's own copy keeps its origin readable when the checkpoint's events are lost.
        (checkpoint, copied, ((WRITTEN_BY, attempt_id(body.job, body.attempt)),)),
    ]


def _evaluated(body: models.EvaluationRecorded) -> list[Statement]:
    values = {
        "model": body.model,
        "number": body.number,
        "artefact_sha256": body.artefact_sha256,
        "metrics": dict(body.metrics),
        "source": body.source,
        "by": body.by,
    }
    return [(f"{EVALUATION}:{body.evaluation}", values, ((EVALUATES, model_id(body.model, body.number)),))]


def _released(body: models.ModelReleased) -> list[Statement]:
    values = _known(
        model=body.model,
        channel=body.channel,
        number=body.number,
        action="release",
        artefact_sha256=body.artefact_sha256,
        previous=body.previous,
        evaluation=body.evaluation,
        forced_reason=body.forced_reason,
        by=body.by,
    )
    parents: list[Link] = [(RELEASES, model_id(body.model, body.number))]
    if body.evaluation is not None:
        parents.append((JUSTIFIED_BY, f"{EVALUATION}:{body.evaluation}"))
    return [(release_id(body.model, body.channel, body.move or 0), values, tuple(parents))]


def _rolled_back(body: models.ModelRolledBack) -> list[Statement]:
    values = {
        "model": body.model,
        "channel": body.channel,
        "number": body.to_number,
        "action": "rollback",
        "previous": body.from_number,
        "reason": body.reason,
        "by": body.by,
    }
    node = release_id(body.model, body.channel, body.move or 0)
    return [(node, values, ((RELEASES, model_id(body.model, body.to_number)),))]


def _contradiction(body: models.LineageContradictionFound) -> list[Statement]:
    values = {
        "code": body.code,
        "subject": body.subject,
        "values": list(body.values),
        "events": list(body.events),
        "message": body.message,
    }
    return [(f"{CONTRADICTION}:{body.contradiction}", values, ())]


STATEMENTS: dict[type[EventBody], Callable[[Any], list[Statement]]] = {
    episodes.UploadStarted: _upload_started,
    episodes.EpisodeUploaded: _episode_uploaded,
    episodes.UploadFinished: _upload_finished,
    episodes.EpisodeAccepted: _episode_accepted,
    episodes.EpisodeHeld: _episode_refused,
    episodes.EpisodeRejected: _episode_refused,
    episodes.EpisodeWithdrawn: _episode_withdrawn,
    datasets.DatasetVersionCommitted: _version_committed,
    datasets.DatasetTagged: _tagged,
    datasets.DatasetUntagged: _tagged,
    jobs.JobSubmitted: _job_submitted,
    datasets.LeaseGranted: _lease_granted,
    cache.CachePlanned: _cache_planned,
    jobs.WorkloadAdmitted: _admitted,
    jobs.WorkloadEvicted: _evicted,
    jobs.PodScheduled: _pod_scheduled,
    jobs.PreflightPassed: _preflight_passed,
    jobs.PreflightFailed: _preflight_failed,
    jobs.AttemptStarted: _attempt_started,
    models.ResumeDecided: _resume_decided,
    models.CheckpointWritten: _checkpoint_written,
    models.CheckpointVerified: _checkpoint_verified,
    jobs.AttemptEnded: _attempt_ended,
    jobs.JobSucceeded: _job_succeeded,
    jobs.JobFailed: _job_failed,
    jobs.JobCancelled: _job_cancelled,
    models.ModelVersionRegistered: _model_registered,
    models.EvaluationRecorded: _evaluated,
    models.ModelReleased: _released,
    models.ModelRolledBack: _rolled_back,
    models.LineageContradictionFound: _contradiction,
}
"""In the order of the story; where several events name one field, the earlier row is shown."""

REPEATABLE = frozenset(
    {"DatasetTagged", "DatasetUntagged", "WorkloadEvicted", "PodScheduled", "CachePlanned", "EpisodeWithdrawn"}
)
"""Events that may happen to one node many times: their values are a history, not one field."""

NOT_LINEAGE: dict[str, str] = {
    "RuleWaived": "a rule's waiver is ingest's; the episodes it let in are named by the version",
    "LeaseRefused": "the job has no inputs yet",
    "LeaseReleased": "the inputs stay what they were",
    "CacheReady": "where bytes lie does not change what was read",
    "CachePartial": "where bytes lie does not change what was read",
    "CacheFailed": "where bytes lie does not change what was read",
    "CacheLost": "where bytes lie does not change what was read",
    "CacheEvicted": "where bytes lie does not change what was read",
    "JobGated": "why a job waits is the bridge's answer",
    "JobGateOpened": "why a job waits is the bridge's answer",
    "WorkloadPending": "why a job waits is the bridge's answer",
    "PodUnschedulable": "why a job waits is the bridge's answer",
    "ContainerWaiting": "why a job waits is the bridge's answer",
    "VolumeMountFailed": "why a job waits is the bridge's answer",
    "PreflightReported": "its outcome is PreflightPassed or PreflightFailed",
    "NodeLost": "it names no attempt",
    "RuntimeFactRecorded": "raw facts stay with the bridge",
    "VerdictChanged": "verdicts are derived by the bridge",
    "DeadlinePassed": "an alarm clock of one service",
}
"""Every other event of the catalogue, and why lineage does not fold it."""
