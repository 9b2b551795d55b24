"""What events about checkpoints, models and releases say about which node."""

from __future__ import annotations

from typing import Any

from forebay.contracts.v1 import models
from forebay.registry.domain.nodes import (
    CHECKPOINT,
    CONTRADICTION,
    EVALUATION,
    Link,
    attempt_id,
    gate_id,
    job_id,
    model_id,
    release_id,
)
from forebay.registry.domain.relations import (
    ATTEMPT_OF,
    BASED_ON,
    EVALUATES,
    JUSTIFIED_BY,
    MADE_FROM,
    READS,
    RELEASES,
    WRITTEN_BY,
    Statement,
    known,
    plain,
)


def checkpoint_written(body: models.CheckpointWritten) -> list[Statement]:
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


def checkpoint_imported(body: models.CheckpointImported) -> list[Statement]:
    """Attempt 0 is what a job was before Forebay saw it."""
    values = known(
        job=body.job,
        attempt=0,
        step=body.step,
        uri=body.uri,
        digest=body.digest,
        files=[[file.path, file.sha256, file.bytes] for file in body.files],
        compatibility=body.compatibility.model_dump(mode="json", exclude_none=True),
        imported=body.use,
        imported_from=body.source,
        imported_reason=body.reason,
        imported_by=body.by,
        unknown=list(body.unknown) or None,
    )
    before = attempt_id(body.job, 0)
    said: list[Statement] = [
        (f"{CHECKPOINT}:{body.checkpoint}", values, ((WRITTEN_BY, before),)),
        (before, {"imported": True}, ((ATTEMPT_OF, job_id(body.job)),)),
    ]
    if body.run is not None:
        datasets = tuple((READS, one) for one in body.compatibility.datasets)
        said.append((job_id(body.job), {"name": body.run, "imported": True}, datasets))
    return said


def checkpoint_verified(body: models.CheckpointVerified) -> list[Statement]:
    values: dict[str, Any] = {
        "job": body.job,
        "attempt": body.attempt,
        "step": body.step,
        "status": body.status,
        "findings": list(body.findings),
    }
    return [(f"{CHECKPOINT}:{body.checkpoint}", values, ((WRITTEN_BY, attempt_id(body.job, body.attempt)),))]


def model_registered(body: models.ModelVersionRegistered) -> list[Statement]:
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


def files_kept(body: models.ModelFilesKept) -> list[Statement]:
    values = {
        "kept_in": body.store,
        "kept_bytes": body.bytes,
        "kept_files": [[file.path, file.sha256, file.bytes] for file in body.files],
    }
    return [(model_id(body.model, body.number), values, ())]


def files_checked(body: models.ModelFilesChecked) -> list[Statement]:
    found = {"check": body.check, "status": body.status, "findings": list(body.findings)}
    return [(model_id(body.model, body.number), {"files_checked": found}, ())]


def checkpoint_deleted(body: models.CheckpointDeleted) -> list[Statement]:
    values = {
        "job": body.job,
        "attempt": body.attempt,
        "step": body.step,
        "uri": body.uri,
        "deleted_by": body.by,
        "deleted_reason": body.reason,
    }
    return [(f"{CHECKPOINT}:{body.checkpoint}", values, ((WRITTEN_BY, attempt_id(body.job, body.attempt)),))]


def job_files_deleted(body: models.JobFilesDeleted) -> list[Statement]:
    values = {"files_deleted_by": body.by, "files_deleted_reason": body.reason}
    return [(job_id(body.job), values, ())]


def evaluated(body: models.EvaluationRecorded) -> list[Statement]:
    values = {
        "model": body.model,
        "number": body.number,
        "artefact_sha256": body.artefact_sha256,
        "metrics": dict(body.metrics),
        "source": body.source,
        "by": body.by,
    }
    if body.evidence is not None:
        values["evidence"] = plain(body.evidence)
    return [(f"{EVALUATION}:{body.evaluation}", values, ((EVALUATES, model_id(body.model, body.number)),))]


def released(body: models.ModelReleased) -> list[Statement]:
    values = known(
        model=body.model,
        channel=body.channel,
        number=body.number,
        action="release",
        artefact_sha256=body.artefact_sha256,
        previous=body.previous,
        evaluation=body.evaluation,
        forced_reason=body.forced_reason,
        gate=[one.model_dump(mode="json", exclude_none=True) for one in body.gate or ()] or None,
        policy_sha256=body.policy_sha256,
        by=body.by,
    )
    parents: list[Link] = [(RELEASES, model_id(body.model, body.number))]
    if body.evaluation is not None:
        parents.append((JUSTIFIED_BY, f"{EVALUATION}:{body.evaluation}"))
    return [(release_id(body.model, body.channel, body.move or 0), values, tuple(parents))]


def policy_set(body: models.ReleasePolicySet) -> list[Statement]:
    values = {
        "number": body.number,
        "rules": [plain(rule) for rule in body.rules],
        **known(evidence=body.evidence),
        "reason": body.reason,
        "by": body.by,
    }
    return [(gate_id(body.model, body.channel), values, ())]


def rolled_back(body: models.ModelRolledBack) -> list[Statement]:
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


def contradiction(body: models.LineageContradictionFound) -> list[Statement]:
    values = {
        "code": body.code,
        "subject": body.subject,
        "values": list(body.values),
        "events": list(body.events),
        "message": body.message,
    }
    return [(f"{CONTRADICTION}:{body.contradiction}", values, ())]
