"""Answers about uploads, episodes, datasets and versions; read only, paged by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from forebay.ingest.domain.documents import (
    Check,
    Dataset,
    Derivation,
    Episode,
    Registration,
    Tag,
    Upload,
    Version,
    place,
    version_key,
)
from forebay.ingest.domain.membership import members
from forebay.ingest.domain.registering import registration, to_json
from forebay.ingest.domain.selecting import selected
from forebay.ingest.domain.tagging import find_dataset, of_project
from forebay.ingest.domain.waiving import waivers
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Question, Request
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
    tags = state.find(Tag, "dataset_key", found.key)
    return {
        **_dataset_line(state, found),
        "tagged": [
            {"tag": t.name, "number": t.number, "by": t.by, "reason": t.reason, "at": _time(t.at)} for t in tags
        ],
        "versions": [_version(version) for version in state.find(Version, "dataset_key", found.key)],
        "uploads": [_upload(upload) for upload in state.find(Upload, "dataset_key", found.key)],
        "registrations": [to_json(one) for one in state.find(Registration, "dataset_key", found.key)],
    }


def upload(state: State, request: Request) -> dict[str, Any]:
    """`{upload}` -> how far it is, and what became of its episodes."""
    found = _find_upload(state, request)
    made = (
        None if found.version is None else state.get(Version, version_key(found.project, found.dataset, found.version))
    )
    return {**_upload(found), "withheld": None if made is None else made.withheld}


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


def checked(state: State, request: Request) -> dict[str, Any]:
    """`{check}` -> what a check of a version found; `whole` is null while nobody has looked yet."""
    found = state.get(Check, place(request.project, str(request.args.get("check", ""))))
    if found is None:
        return {"check": request.args.get("check"), "whole": None, "message": None, "at": None}
    return {
        "check": found.id,
        "dataset": found.dataset,
        "number": found.number,
        "whole": found.whole,
        "message": found.message,
        "at": _time(found.at),
    }


def version_members(state: State, request: Request) -> dict[str, Any]:
    """`{dataset, after, limit}` -> the episodes of `name`, `name@v3` or `name@tag` by their numbers, from `after` on."""
    found, version = selected(state, request)
    limit, after = _limit(request), request.args.get("after", -1)
    start = after + 1 if isinstance(after, int) else 0
    there = members(state, version)
    page = list(enumerate(there))[start : start + limit]
    return {
        "dataset": found.name,
        "number": version.number,
        "registered": version.access_plan == "A",
        "episodes": [
            {"index": index, "name": f"{found.name}@v{version.number}/{index}", **_episode(one)} for index, one in page
        ],
        "total": len(there),
        "next": page[-1][0] if page and page[-1][0] + 1 < len(there) else None,
    }


def derivation(state: State, request: Request) -> dict[str, Any]:
    """`{derivation}` -> how far a version that a person asked for is."""
    wanted = str(request.args.get("derivation", ""))
    found = state.get(Derivation, place(request.project, wanted))
    if found is None:
        raise Refused("derivation-unknown", f"no derivation {wanted!r} in {request.project}", "forebay dataset derive")
    return {
        "derivation": found.id,
        "dataset": found.dataset,
        "base": found.base,
        "state": found.state,
        "version": found.version,
        "message": found.message,
    }


def diff(state: State, request: Request) -> dict[str, Any]:
    """`{a, b}`, each `name@v3` or `name@tag` -> episodes that came and went, tasks, and where both lie."""
    before, after = (selected(state, _about(request, side))[1] for side in ("a", "b"))
    left, right = ({episode.listed_id: episode for episode in members(state, one)} for one in (before, after))
    tasks = [sorted({task for episode in side.values() for task in episode.tasks}) for side in (left, right)]
    came, went = ([side[id_] for id_ in side if id_ not in other] for side, other in ((right, left), (left, right)))
    return {
        "a": _version(before),
        "b": _version(after),
        "same_dataset": before.dataset_key == after.dataset_key,
        "kept": len(left.keys() & right.keys()),
        "episodes_in": [_moved(episode) for episode in came[:MAX_LIMIT]],
        "episodes_in_total": len(came),
        "episodes_out": [_moved(episode) for episode in went[:MAX_LIMIT]],
        "episodes_out_total": len(went),
        "tasks_in": sorted(set(tasks[1]) - set(tasks[0])),
        "tasks_out": sorted(set(tasks[0]) - set(tasks[1])),
        "tasks": [_task_counts(side.values()) for side in (left, right)],
    }


def _about(request: Request, side: str) -> Request:
    args = {"dataset": request.args.get(side)}
    return Request(id=request.id, project=request.project, by=request.by, now=request.now, args=args)


def _moved(episode: Episode) -> dict[str, Any]:
    return {
        "episode": episode.listed_id,
        "length": episode.length,
        "tasks": list(episode.tasks),
        "upload": episode.upload,
        "source_index": episode.source_index,
        "withdrawn": episode.withdrawn,
    }


def _task_counts(episodes: Iterable[Episode]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for episode in episodes:
        for task in episode.tasks:
            counts[task] = counts.get(task, 0) + 1
    return dict(sorted(counts.items()))


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


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
        "broken": newest.broken if newest else None,
        "checked_at": _time(newest.checked_at) if newest else None,
        "busy": found.active,
        "queued": list(found.waiting),
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "number": version.number,
        "root": version.root,
        "access_plan": version.access_plan,
        "places": dict(version.places),
        "placing": version.placing,
        "placing_problem": version.placing_problem,
        "manifest_sha256": version.manifest_sha256,
        "episodes": version.episode_count,
        "frames": version.frame_count,
        "bytes": version.bytes,
        "accepted": version.accepted,
        "dataset": version.dataset,
        "parent": version.parent,
        "reason": version.reason,
        "filter": version.filter,
        "withheld": version.withheld,
        "carried": list(version.carried),
        "notes": list(version.notes),
        "withdrawn": list(version.withdrawn),
        "broken": version.broken,
        "checked": version.checked,
        "checked_at": _time(version.checked_at),
        "removed": version.removed,
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
        "episode": found.listed_id,
        "upload": found.upload,
        "dataset": found.dataset,
        "source_index": found.source_index,
        "length": found.length,
        "tasks": list(found.tasks),
        "state": found.state,
        "rules": list(found.rules),
        "message": found.message,
    }


QUESTIONS: Mapping[str, Question] = {
    "datasets": datasets,
    "dataset": dataset,
    "upload": upload,
    "episodes": episodes,
    "members": version_members,
    "waivers": waivers,
    "checked": checked,
    "derivation": derivation,
    "registration": registration,
    "diff": diff,
}
