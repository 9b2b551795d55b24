"""The one table between the log and lineage: which events say something, and which do not.

Nothing else in the registry interprets an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.contracts.body import EventBody
from forebay.contracts.v1 import cache, datasets, episodes, jobs, models
from forebay.registry.domain import data_statements, job_statements, model_statements
from forebay.registry.domain.relations import Statement

STATEMENTS: dict[type[EventBody], Callable[[Any], list[Statement]]] = {
    episodes.UploadStarted: data_statements.upload_started,
    datasets.DatasetRegistrationRequested: data_statements.registration_requested,
    episodes.UploadFinished: data_statements.upload_finished,
    episodes.EpisodeAccepted: data_statements.episode_accepted,
    episodes.EpisodeHeld: data_statements.episode_refused,
    episodes.EpisodeRejected: data_statements.episode_refused,
    episodes.EpisodeUploaded: data_statements.episode_uploaded,  # what a collector claims; verdicts say what files hold
    episodes.EpisodeWithdrawn: data_statements.episode_withdrawn,
    datasets.DatasetVersionCommitted: data_statements.version_committed,
    datasets.DatasetVersionChecked: data_statements.version_checked,
    datasets.DatasetVersionPlaced: data_statements.version_placed,
    datasets.DatasetVersionRemoved: data_statements.version_removed,
    datasets.DatasetTagged: data_statements.tagged,
    datasets.DatasetUntagged: data_statements.tagged,
    jobs.JobSubmitted: job_statements.job_submitted,
    datasets.LeaseGranted: job_statements.lease_granted,
    cache.CachePlanned: job_statements.cache_planned,
    jobs.WorkloadAdmitted: job_statements.admitted,
    jobs.WorkloadEvicted: job_statements.evicted,
    jobs.PodScheduled: job_statements.pod_scheduled,
    jobs.PreflightPassed: job_statements.preflight_passed,
    jobs.PreflightFailed: job_statements.preflight_failed,
    jobs.AttemptStarted: job_statements.attempt_started,
    models.ResumeDecided: job_statements.resume_decided,
    models.CheckpointWritten: model_statements.checkpoint_written,
    models.CheckpointImported: model_statements.checkpoint_imported,
    models.CheckpointVerified: model_statements.checkpoint_verified,
    jobs.AttemptEnded: job_statements.attempt_ended,
    jobs.JobSucceeded: job_statements.job_succeeded,
    jobs.JobFailed: job_statements.job_failed,
    jobs.JobCancelled: job_statements.job_cancelled,
    models.ModelVersionRegistered: model_statements.model_registered,
    models.ModelFilesKept: model_statements.files_kept,
    models.ModelFilesChecked: model_statements.files_checked,
    models.CheckpointDeleted: model_statements.checkpoint_deleted,
    models.JobFilesDeleted: model_statements.job_files_deleted,
    models.EvaluationRecorded: model_statements.evaluated,
    models.ReleasePolicySet: model_statements.policy_set,
    models.ModelReleased: model_statements.released,
    models.ModelRolledBack: model_statements.rolled_back,
    models.LineageContradictionFound: model_statements.contradiction,
}
"""In the order of the story; where several events name one field, the earlier row is shown."""

REPEATABLE = frozenset(
    {
        "DatasetTagged",
        "DatasetUntagged",
        "DatasetVersionChecked",
        "DatasetVersionPlaced",
        "DatasetVersionRemoved",
        "WorkloadEvicted",
        "PodScheduled",
        "CachePlanned",
        "EpisodeWithdrawn",
        "ReleasePolicySet",
        "ModelFilesChecked",
    }
)
"""Events that may happen to one node many times: their values are a history, not one field."""

NOT_LINEAGE: dict[str, str] = {
    "RuleWaived": "a rule's waiver is ingest's; the episodes it let in are named by the version",
    "WaiverRevoked": "a rule's waiver is ingest's; the episodes it let in are named by the version",
    "DatasetDerivationRequested": "the version that answers it says what it was made of",
    "DatasetDerivationFailed": "no version came of it",
    "DatasetRegistrationFailed": "no version came of it",
    "LeaseRefused": "the job has no inputs yet",
    "LeaseReleased": "the inputs stay what they were",
    "CacheReady": "where bytes lie does not change what was read",
    "CachePartial": "where bytes lie does not change what was read",
    "CacheFailed": "where bytes lie does not change what was read",
    "CacheLost": "where bytes lie does not change what was read",
    "CacheEvicted": "where bytes lie does not change what was read",
    "CacheReserved": "where bytes lie does not change what was read",
    "CacheWarming": "where bytes lie does not change what was read",
    "CacheExpired": "where bytes lie does not change what was read",
    "CachePoolSeen": "where bytes lie does not change what was read",
    "WarmRequested": "where bytes lie does not change what was read",
    "WarmCancelled": "where bytes lie does not change what was read",
    "CachePolicySet": "where bytes lie does not change what was read",
    "DatasetAccessed": "the attempts of the job say what it read",
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
