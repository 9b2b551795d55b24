"""The one table of events. Permissions, filters, schemas, AsyncAPI and the docs come from it.

To add an event: write its body in `v1/`, add one line here and one sample, run
`make generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay.contracts.body import EventBody
from forebay.contracts.errors import UnknownEventError
from forebay.contracts.identifiers import shard
from forebay.contracts.parts import SERVICES, Part
from forebay.contracts.subjects import Subject, event_subject
from forebay.contracts.v1 import cache, datasets, episodes, jobs, models

KeyOf = Callable[[Any], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSpec:
    """One row of the table."""

    body: type[EventBody]
    owners: tuple[Part, ...]
    """The only parts that may publish it."""
    entity: str
    token: str
    """Last token of the subject."""
    key: str
    """What the subject's key is, for people."""
    key_of: KeyOf
    trigger: str
    """What makes the owner publish it."""
    earlier_keys: Mapping[int, KeyOf] = field(default_factory=dict)
    """Version -> key, of versions that stood under another key: the log keeps them where they are."""

    @property
    def name(self) -> str:
        return self.body.event

    @property
    def type(self) -> str:
        """The CloudEvents type."""
        return event_type(self.body)

    def subject(self, project: str, body: EventBody) -> Subject:
        return event_subject(project, self.entity, self.key_of(body), self.token)


def event_type(body: type[EventBody]) -> str:
    """`dev.forebay.EpisodeUploaded.v1`."""
    return f"dev.forebay.{body.event}.v{body.version}"


def _by(field: str) -> KeyOf:
    return lambda body: str(getattr(body, field))


def _shard_of(field: str) -> KeyOf:
    return lambda body: shard(str(getattr(body, field)))


def _key(text: str) -> KeyOf:
    """`#name`: the shard of a field, where there are millions; else the field itself."""
    return _shard_of(text.removeprefix("#")) if text.startswith("#") else _by(text)


def _row(
    body: type[EventBody],
    owner: Part | tuple[Part, ...],
    where: str,
    key: str,
    trigger: str,
    *,
    earlier: Mapping[int, str] | None = None,
) -> EventSpec:
    entity, token = where.split(".")
    return EventSpec(
        body=body,
        owners=owner if isinstance(owner, tuple) else (owner,),
        entity=entity,
        token=token,
        key=key.replace("#", "shard of "),
        key_of=_key(key),
        trigger=trigger,
        earlier_keys={version: _key(text) for version, text in (earlier or {}).items()},
    )


_I, _C, _B, _R = Part.INGEST, Part.CACHE, Part.BRIDGE, Part.REGISTRY

EVENTS: tuple[EventSpec, ...] = (
    # what collectors say
    _row(episodes.UploadStarted, Part.COLLECTOR, "upload.started", "upload", "`forebay upload` begins"),
    _row(episodes.EpisodeUploaded, Part.COLLECTOR, "episode.uploaded", "#episode", "an episode's files arrived whole"),
    _row(episodes.UploadFinished, Part.COLLECTOR, "upload.finished", "upload", "every file arrived"),
    # ingest
    _row(episodes.EpisodeAccepted, _I, "episode.accepted", "#episode", "validation of UploadFinished"),
    _row(episodes.EpisodeHeld, _I, "episode.held", "#episode", "validation of UploadFinished"),
    _row(episodes.EpisodeRejected, _I, "episode.rejected", "#episode", "validation of UploadFinished"),
    _row(episodes.EpisodeWithdrawn, _I, "episode.withdrawn", "#episode", "a person withdraws an episode"),
    _row(episodes.RuleWaived, _I, "dataset.rule-waived", "dataset", "a person waives a rule"),
    _row(episodes.WaiverRevoked, _I, "dataset.waiver-revoked", "dataset", "a person revokes a waiver"),
    _row(
        datasets.DatasetVersionCommitted,
        _I,
        "dataset.version-committed",
        "dataset",
        "a version was read back and compared",
    ),
    _row(
        datasets.DatasetDerivationRequested,
        _I,
        "dataset.derivation-requested",
        "dataset",
        "`forebay dataset derive`",
    ),
    _row(
        datasets.DatasetDerivationFailed, _I, "dataset.derivation-failed", "dataset", "a derivation cannot be written"
    ),
    _row(
        datasets.DatasetRegistrationRequested,
        _I,
        "dataset.registration-requested",
        "dataset",
        "`forebay dataset register`",
    ),
    _row(
        datasets.DatasetRegistrationFailed,
        _I,
        "dataset.registration-failed",
        "dataset",
        "data in its own place cannot become a version",
    ),
    _row(
        datasets.DatasetVersionChecked, _I, "dataset.version-checked", "dataset", "a tag or a lease needs the version"
    ),
    _row(datasets.DatasetVersionRemoved, _I, "dataset.version-removed", "dataset", "`forebay dataset cleanup`"),
    _row(datasets.DatasetVersionPlaced, _I, "dataset.version-placed", "dataset", "`forebay dataset place`"),
    _row(datasets.DatasetTagged, _I, "tag.tagged", "dataset", "a version was committed, or a person tags"),
    _row(datasets.DatasetUntagged, _I, "tag.untagged", "dataset", "a person takes a tag away"),
    _row(datasets.LeaseGranted, _I, "lease.granted", "job", "JobSubmitted, or DatasetTagged for a waiting job"),
    _row(datasets.LeaseRefused, _I, "lease.refused", "job", "JobSubmitted while an input is not there"),
    _row(datasets.LeaseReleased, _I, "lease.released", "job", "JobSucceeded, JobFailed, JobCancelled"),
    # cache
    _row(cache.CachePlanned, _C, "cache.planned", "plan", "LeaseGranted, WarmRequested"),
    _row(cache.CacheReserved, _C, "cache.reserved", "plan", "CachePlanned, and the plan fits"),
    _row(cache.CacheWarming, _C, "cache.warming", "plan", "a warm-up enters its next stage"),
    _row(cache.CacheReady, _C, "cache.ready", "plan", "every planned byte was verified"),
    _row(cache.CachePartial, _C, "cache.partial", "plan", "a pass ended with bytes missing"),
    _row(cache.CacheFailed, _C, "cache.failed", "plan", "warming cannot succeed"),
    _row(cache.CacheLost, _C, "cache.lost", "plan", "a check found warm bytes missing"),
    _row(cache.CacheEvicted, _C, "cache.evicted", "plan", "room was needed and nobody leased it"),
    _row(cache.CacheExpired, _C, "cache.expired", "plan", "nobody used it for its time to live"),
    _row(cache.CachePoolSeen, _C, "cache.pool-seen", "node", "the cache's disks or limits changed by much"),
    _row(cache.WarmRequested, _C, "cache.warm-requested", "request", "`forebay warm`, or a rule of the policy"),
    _row(cache.WarmCancelled, _C, "cache.warm-cancelled", "request", "`forebay warm` is given up"),
    _row(cache.CachePolicySet, _C, "cache.policy-set", "policy", "`forebay cache policy`"),
    # scheduler-bridge
    _row(jobs.JobSubmitted, _B, "job.submitted", "job", "`forebay submit`, or an annotated Job is seen on the cluster"),
    _row(jobs.JobGated, _B, "job.gated", "job", "a readiness condition changed"),
    _row(jobs.JobGateOpened, _B, "job.gate-opened", "job", "all readiness conditions hold"),
    _row(jobs.WorkloadPending, _B, "job.pending", "job", "the gate is open and quota is not there"),
    _row(jobs.WorkloadAdmitted, _B, "job.admitted", "job", "quota is held"),
    _row(jobs.WorkloadEvicted, _B, "job.evicted", "job", "quota was taken back"),
    _row(jobs.PodUnschedulable, _B, "job.pod-unschedulable", "job", "the scheduler finds no node"),
    _row(jobs.PodScheduled, _B, "job.pod-scheduled", "job", "the scheduler found a node"),
    _row(jobs.ContainerWaiting, _B, "job.container-waiting", "job", "the kubelet cannot start a container yet"),
    _row(jobs.VolumeMountFailed, _B, "job.volume-mount-failed", "job", "a volume cannot be attached or mounted"),
    _row(jobs.PreflightPassed, _B, "job.preflight-passed", "job", "PreflightReported without a failed check"),
    _row(jobs.PreflightFailed, _B, "job.preflight-failed", "job", "PreflightReported with a failed check"),
    _row(jobs.AttemptStarted, _B, "job.attempt-started", "job", "the training process was started"),
    _row(jobs.AttemptEnded, _B, "job.attempt-ended", "job", "the training process is gone"),
    _row(jobs.NodeLost, _B, "node.lost", "node", "a node stopped reporting"),
    _row(jobs.JobSucceeded, _B, "job.succeeded", "job", "AttemptEnded with exit code 0"),
    _row(jobs.JobFailed, _B, "job.failed", "job", "AttemptEnded and no attempt is left"),
    _row(jobs.JobCancelled, _B, "job.cancelled", "job", "`forebay cancel`"),
    _row(jobs.RuntimeFactRecorded, _B, "job.runtime-fact", "job", "the runtime's state changed"),
    _row(jobs.VerdictChanged, _B, "job.verdict-changed", "job", "the dominant cause changed"),
    # the in-pod agent
    _row(jobs.PreflightReported, Part.AGENT, "job.preflight-reported", "job", "the agent checked before the start"),
    _row(
        models.CheckpointWritten,
        Part.AGENT,
        "checkpoint.written",
        "job",
        "a checkpoint's files are complete",
        earlier={1: "#checkpoint"},
    ),
    _row(cache.DatasetAccessed, Part.AGENT, "dataset.accessed", "name", "a job uses a version on a day"),
    # registry
    _row(
        models.CheckpointVerified,
        _R,
        "checkpoint.verified",
        "#checkpoint",
        "CheckpointWritten or CheckpointImported",
    ),
    _row(models.CheckpointImported, _R, "checkpoint.imported", "#checkpoint", "`forebay checkpoint import`"),
    _row(models.ResumeDecided, _R, "job.resume-decided", "job", "an attempt asks where to continue"),
    _row(models.ModelVersionRegistered, _R, "model.version-registered", "model", "`forebay model register`"),
    _row(models.ModelFilesKept, _R, "model.files-kept", "model", "ModelVersionRegistered"),
    _row(models.ModelFilesChecked, _R, "model.files-checked", "model", "a release, or files that cannot be kept"),
    _row(models.CheckpointDeleted, _R, "checkpoint.deleted", "#checkpoint", "`forebay checkpoint delete`"),
    _row(models.JobFilesDeleted, _R, "job.files-deleted", "job", "`forebay delete`"),
    _row(models.EvaluationRecorded, _R, "model.evaluated", "model", "`forebay model evaluate`"),
    _row(models.ModelReleased, _R, "model.released", "model", "`forebay model release`"),
    _row(models.ReleasePolicySet, _R, "model.policy-set", "channel", "`forebay model policy --set`"),
    _row(models.ModelRolledBack, _R, "model.rolled-back", "model", "`forebay model release --rollback`"),
    _row(
        models.LineageContradictionFound,
        _R,
        "lineage.contradiction-found",
        "#contradiction",
        "two facts exclude each other",
    ),
    # every service
    _row(models.DeadlinePassed, SERVICES, "deadline.passed", "part", "a deadline that the service stored has passed"),
)

BY_NAME: dict[str, EventSpec] = {spec.name: spec for spec in EVENTS}
_BY_PLACE: dict[tuple[str, str], EventSpec] = {(spec.entity, spec.token): spec for spec in EVENTS}


def spec_of(body: EventBody | type[EventBody]) -> EventSpec:
    """The row of a body; raises `UnknownEventError` for a body that is not in the table."""
    try:
        return BY_NAME[body.event]
    except (KeyError, AttributeError):
        msg = f"{body!r} is not in the table of events"
        raise UnknownEventError(msg) from None


def spec_at(subject: Subject) -> EventSpec:
    """The row that a subject belongs to; raises `UnknownEventError` when there is none."""
    try:
        return _BY_PLACE[(subject.entity, subject.event)]
    except KeyError:
        msg = f"no event of Forebay is published on {subject}"
        raise UnknownEventError(msg) from None


def events_of(part: Part) -> tuple[EventSpec, ...]:
    """The rows that a part may publish."""
    return tuple(spec for spec in EVENTS if part in spec.owners)
