"""Answers about uploads, episodes, datasets and versions; read only, paged by key."""

from __future__ import annotations

from typing import Any

from forebay.ingest.domain.documents import Dataset, Episode, Tag, Upload, Version, place
from forebay.ingest.domain.tagging import find_dataset, of_project
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


def datasets(state: State, request: Request) -> dict[str, Any]:
    """`{after, limit}` -> datasets of the project by name."""
    limit = _limit(request)
    found = of_project(state, request.project, after=str(request.args.get("after", "")), limit=limit)
    return {
        "datasets": [_dataset_line(state, dataset) for dataset in found],
        "next": found[-1].name if len(found) == limit else None,
    }


def dataset(state: State, request: Request) -> dict[str, Any]:
    """`{dataset}` -> its versions, tags and uploads."""
    found = find_dataset(state, request)
    return {
        **_dataset_line(state, found),
        "versions": [_version(version) for version in state.find(Version, "dataset_key", found.key)],
        "uploads": [_upload(upload) for upload in state.find(Upload, "dataset_key", found.key)],
    }


def upload(state: State, request: Request) -> dict[str, Any]:
    """`{upload}` -> how far it is, and what became of its episodes."""
    return _upload(_find_upload(state, request))


def episodes(state: State, request: Request) -> dict[str, Any]:
    """`{upload | dataset, after, limit}` -> episodes with their verdicts."""
    limit, after = _limit(request), str(request.args.get("after", ""))
    if request.args.get("upload"):
        uploads = [_find_upload(state, request)]
    else:
        uploads = state.find(Upload, "dataset_key", find_dataset(state, request).key)
    found = [episode for one in uploads for episode in state.find(Episode, "upload_key", one.key)]
    found.sort(key=lambda episode: episode.id)
    page = [episode for episode in found if episode.id > after][:limit]
    return {
        "episodes": [_episode(episode) for episode in page],
        "total": len(found),
        "next": page[-1].id if len(page) == limit else None,
    }


def _limit(request: Request) -> int:
    limit = request.args.get("limit", DEFAULT_LIMIT)
    return min(max(limit, 1), MAX_LIMIT) if isinstance(limit, int) else DEFAULT_LIMIT


def _find_upload(state: State, request: Request) -> Upload:
    wanted = str(request.args.get("upload", ""))
    found = state.get(Upload, place(request.project, wanted))
    if found is None:
        raise Refused("upload-unknown", f"no upload {wanted!r} in project {request.project}", "forebay dataset list")
    return found


def _dataset_line(state: State, found: Dataset) -> dict[str, Any]:
    versions = state.find(Version, "dataset_key", found.key)
    newest = versions[-1] if versions else None
    return {
        "dataset": found.name,
        "project": found.project,
        "latest": found.latest or None,
        "tags": {tag.name: tag.number for tag in state.find(Tag, "dataset_key", found.key)},
        "episodes": newest.episode_count if newest else 0,
        "frames": newest.frame_count if newest else 0,
        "bytes": newest.bytes if newest else 0,
        "busy": found.active,
        "queued": list(found.waiting),
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "number": version.number,
        "root": version.root,
        "access_plan": version.access_plan,
        "manifest_sha256": version.manifest_sha256,
        "episodes": version.episode_count,
        "frames": version.frame_count,
        "bytes": version.bytes,
        "accepted": version.accepted,
    }


def _upload(found: Upload) -> dict[str, Any]:
    return {
        "upload": found.id,
        "dataset": found.dataset,
        "source": found.source_ref,
        "state": found.state,
        "expected": found.expected_episodes,
        "announced": found.announced,
        "uploaded": found.uploaded,
        "accepted": found.accepted,
        "held": found.held,
        "rejected": found.rejected,
        "version": found.version,
    }


def _episode(found: Episode) -> dict[str, Any]:
    return {
        "episode": found.id,
        "upload": found.upload,
        "dataset": found.dataset,
        "source_index": found.source_index,
        "length": found.length,
        "tasks": list(found.tasks),
        "state": found.state,
        "rules": list(found.rules),
        "message": found.message,
    }
