"""Fold what is said about data itself: versions, their tags, and on which days they were used."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from msgspec.structs import replace

from forebay.cache.domain.documents import Histogram, Plan, Tags, Usage, Version, place, version_place
from forebay.contracts.envelope import Recorded
from forebay.contracts.v1.cache import DatasetAccessed
from forebay.contracts.v1.datasets import (
    DatasetTagged,
    DatasetUntagged,
    DatasetVersionCommitted,
    DatasetVersionRemoved,
)
from forebay.runtime.state import Fold


def committed(fold: Fold, recorded: Recorded[DatasetVersionCommitted]) -> None:
    body = recorded.body
    fold.put(
        Version(
            project=recorded.project,
            dataset=body.dataset,
            number=body.number,
            root=body.root,
            access_plan=body.access_plan,
            manifest_sha256=body.manifest_sha256,
            episode_count=body.episode_count,
            bytes=body.bytes,
            committed_at=recorded.stored_at,
        )
    )


def removed(fold: Fold, recorded: Recorded[DatasetVersionRemoved]) -> None:
    body = recorded.body
    version = fold.get(Version, version_place(recorded.project, "dataset", body.dataset, body.number))
    if version is not None:
        fold.put(replace(version, removed=True))


def tagged(fold: Fold, recorded: Recorded[DatasetTagged]) -> None:
    body = recorded.body
    known = _tags(fold, recorded.project, body.dataset)
    fold.put(replace(known, tags={**known.tags, body.tag: body.number}))


def untagged(fold: Fold, recorded: Recorded[DatasetUntagged]) -> None:
    body = recorded.body
    known = _tags(fold, recorded.project, body.dataset)
    if known.tags.get(body.tag) == body.number:
        fold.put(replace(known, tags={tag: number for tag, number in known.tags.items() if tag != body.tag}))


def accessed(fold: Fold, recorded: Recorded[DatasetAccessed]) -> None:
    """One use of a version on a day: count it by the version's age, and know its plans as used."""
    body, project = recorded.body, recorded.project
    day = body.day.isoformat()
    key = version_place(project, body.kind, body.name, body.number)
    version = fold.get(Version, key) if body.kind == "dataset" else None
    first = day if version is None else version.committed_at.date().isoformat()
    known = fold.get(Usage, key) or Usage(
        project=project, what=body.kind, name=body.name, number=body.number, first=first
    )
    known = replace(known, first=min(known.first, day), days={**known.days, day: known.days.get(day, 0) + 1})
    fold.put(known)
    age = str((body.day - date.fromisoformat(known.first)).days)
    histogram = fold.get(Histogram, project) or Histogram(project=project)
    fold.put(replace(histogram, ages={**histogram.ages, age: histogram.ages.get(age, 0) + 1}))
    end_of_day = datetime.combine(body.day, time.max, tzinfo=UTC)
    used_at = min(end_of_day, recorded.stored_at)
    for plan in fold.find(Plan, "version", key):
        fold.put(replace(plan, used_at=max(plan.used_at, used_at)))


def _tags(fold: Fold, project: str, dataset: str) -> Tags:
    return fold.get(Tags, place(project, dataset)) or Tags(project=project, dataset=dataset)
