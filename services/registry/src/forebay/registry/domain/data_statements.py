"""What events about uploads, episodes and dataset versions say about which node."""

from __future__ import annotations

from typing import Any

from forebay.contracts.body import FileRef
from forebay.contracts.v1 import datasets, episodes
from forebay.registry.domain.nodes import EPISODE, UPLOAD, Link, dataset_id
from forebay.registry.domain.relations import DERIVED_FROM, HOLDS, UPLOADED_IN, Statement, known


def _ref(ref: FileRef) -> dict[str, Any]:
    return {"uri": ref.uri, "sha256": ref.sha256, "bytes": ref.bytes}


def upload_started(body: episodes.UploadStarted) -> list[Statement]:
    values = known(
        dataset=body.dataset,
        source_ref=body.source_ref,
        source_format=body.source_format,
        source_revision=body.source_revision,
        expected_episodes=body.expected_episodes,
        expected_bytes=body.expected_bytes,
    )
    return [(f"{UPLOAD}:{body.upload}", values, ())]


def registration_requested(body: datasets.DatasetRegistrationRequested) -> list[Statement]:
    """Data that stays where it lies came in by its registration, as other data by its upload."""
    values = known(
        dataset=body.dataset, source_ref=body.uri, source_revision=body.revision, endpoint=body.endpoint, by=body.by
    )
    return [(f"{UPLOAD}:{body.registration}", values, ())]


def upload_finished(body: episodes.UploadFinished) -> list[Statement]:
    values = {
        "dataset": body.dataset,
        "episodes": body.episodes,
        "files": body.files,
        "bytes": body.bytes,
        "manifest_sha256": body.manifest.sha256,
    }
    return [(f"{UPLOAD}:{body.upload}", values, ())]


def episode_uploaded(body: episodes.EpisodeUploaded) -> list[Statement]:
    values: dict[str, Any] = {
        "dataset": body.dataset,
        "upload": body.upload,
        "source_index": body.source_index,
        "length": body.length,
        **_content(body),
    }
    return [(f"{EPISODE}:{body.episode}", values, ((UPLOADED_IN, f"{UPLOAD}:{body.upload}"),))]


def _content(said: episodes.EpisodeUploaded | episodes.EpisodeContent) -> dict[str, Any]:
    """What an episode is made of."""
    return {
        "tasks": list(said.tasks),
        "rows": [said.rows.file, said.rows.start, said.rows.stop],
        "cameras": [[video.camera, video.file, video.start, video.stop] for video in said.videos],
        **known(robot=said.robot),
    }


def _judged(
    body: episodes.EpisodeAccepted | episodes.EpisodeHeld | episodes.EpisodeRejected, values: dict[str, Any]
) -> list[Statement]:
    values |= {
        "dataset": body.dataset,
        "upload": body.upload,
        "source_index": body.source_index,
        "length": body.length,
    }
    if body.as_read is not None:
        values |= _content(body.as_read)
    return [(f"{EPISODE}:{body.episode}", values, ((UPLOADED_IN, f"{UPLOAD}:{body.upload}"),))]


def episode_accepted(body: episodes.EpisodeAccepted) -> list[Statement]:
    values: dict[str, Any] = {"rules_version": body.rules_version}
    if body.warnings:
        values["warnings"] = sorted({finding.rule for finding in body.warnings})
    if body.sha256 is not None:
        values["rows_sha256"] = body.sha256
    if body.same_as is None:
        return _judged(body, values)
    first: Statement = (f"{EPISODE}:{body.same_as}", {}, ((UPLOADED_IN, f"{UPLOAD}:{body.upload}"),))
    return [*_judged(body, values | {"same_as": body.same_as}), first]


def episode_refused(body: episodes.EpisodeHeld | episodes.EpisodeRejected) -> list[Statement]:
    findings = [
        known(rule=found.rule, frame=found.frame, feature=found.feature, message=found.message[:300])
        for found in body.findings[:20]
    ]
    return _judged(body, {"rules_version": body.rules_version, "findings": findings})


def episode_withdrawn(body: episodes.EpisodeWithdrawn) -> list[Statement]:
    values = {"dataset": body.dataset, "withdrawn_reason": body.reason, "withdrawn_by": body.by}
    return [(f"{EPISODE}:{body.episode}", values, ())]


# --------------------------------------------------------------------- datasets


def version_committed(body: datasets.DatasetVersionCommitted) -> list[Statement]:
    values = known(
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
        derivation=body.derivation,
    )
    parents: list[Link] = [(HOLDS, f"{UPLOAD}:{upload}") for upload in body.uploads]
    if body.parent is not None:
        parents.append((DERIVED_FROM, dataset_id(body.dataset, body.parent)))
    return [(dataset_id(body.dataset, body.number), values, tuple(parents))]


def tagged(body: datasets.DatasetTagged | datasets.DatasetUntagged) -> list[Statement]:
    values = known(tag=body.tag, by=body.by, reason=body.reason)
    return [(dataset_id(body.dataset, body.number), values, ())]


def version_checked(body: datasets.DatasetVersionChecked) -> list[Statement]:
    values = known(whole=body.whole, check_reason=None if body.reason is None else body.reason.value)
    values |= known(check_message=body.message)
    return [(dataset_id(body.dataset, body.number), values, ())]


def version_placed(body: datasets.DatasetVersionPlaced) -> list[Statement]:
    values = known(placed_at=body.root, placed_access_plan=body.access_plan, placed_by=body.by, problem=body.problem)
    return [(dataset_id(body.dataset, body.number), values, ())]


def version_removed(body: datasets.DatasetVersionRemoved) -> list[Statement]:
    return [(dataset_id(body.dataset, body.number), {"removed_by": body.by, "removed_reason": body.reason}, ())]
