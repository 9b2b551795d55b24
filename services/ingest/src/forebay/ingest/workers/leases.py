"""The works `lease`, `release`, `check` and `remove`: what happens to the files of versions that jobs use.

A job is told to start only after its versions were looked at: they are there, they
are what was committed, every table opens. Idempotent: tags and folders are brought
to where they shall be, whatever an earlier run left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forebay.contracts.v1.datasets import DatasetVersionChecked
from forebay.ingest.adapters.episode_records import EpisodeRecords
from forebay.ingest.adapters.lease_tags import place_tags, take_tags
from forebay.ingest.adapters.version_check import Damage, find_damage, local_path
from forebay.ingest.domain.documents import Lease, Version, place, version_key
from forebay.ingest.errors import StorageUnavailableError
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

_WAIT_S = 5.0


async def lease(item: WorkItem, context: WorkContext) -> Iterable[Emit]:
    """Check every version that the job pinned and tag its tables: all of them, or none."""
    found = await context.get(Lease, place(item.project, item.key))
    if found is None or found.state != "WAITING":
        return ()
    versions = await _versions(found, context)
    try:
        damages = [await context.in_thread(find_damage, version) for version in versions]
        if not any(damages):
            await context.in_thread(_tag_all, versions, item.key)
            now = await context.get(Lease, place(item.project, item.key))
            if now is not None and now.ended is not None:  # it ended meanwhile; nobody else would take the tags
                await context.in_thread(_untag_all, versions, item.key)
    except (StorageUnavailableError, OSError) as error:
        raise RetryLater(_WAIT_S, str(error)) from error
    cause = str(item.payload.get("cause", ""))
    return [
        _answer(version, item.key, damage, cause)
        for version, damage in zip(versions, damages, strict=True)
        if damage is not None or not any(damages)
    ]


def _tag_all(versions: list[Version], job: str) -> None:
    done: list[Path] = []
    try:
        for version in versions:
            root = local_path(version.root)
            if root is not None and version.access_plan == "C":
                place_tags(root, job)
                done.append(root)
    except BaseException:
        for root in done:
            take_tags(root, job)
        raise


def _untag_all(versions: list[Version], job: str) -> None:
    for version in versions:
        root = local_path(version.root)
        if root is not None and version.access_plan == "C":
            take_tags(root, job)


async def release(item: WorkItem, context: WorkContext) -> Iterable[Emit]:
    """Take the job's tags from every version that it pinned."""
    found = await context.get(Lease, place(item.project, item.key))
    if found is not None:
        try:
            await context.in_thread(_untag_all, await _versions(found, context), item.key)
        except OSError as error:
            raise RetryLater(_WAIT_S, str(error)) from error
    return ()


async def check(item: WorkItem, context: WorkContext) -> Iterable[Emit]:
    """Compare one version with what was committed, because a person asked."""
    key = version_key(item.project, str(item.payload["dataset"]), int(item.payload["number"]))
    version = await context.get(Version, key)
    if version is None:
        return ()
    try:
        damage = await context.in_thread(find_damage, version)
    except (StorageUnavailableError, OSError) as error:
        raise RetryLater(_WAIT_S, str(error)) from error
    return [_answer(version, item.key, damage, "")]


@dataclass(frozen=True, slots=True)
class Remover:
    """Deletes the folders of removed versions: never one outside `datasets`, or of data in its own place, `registered`."""

    datasets: Path
    registered: Path
    """Lists of files and links; the data that they lead to is its owner's."""
    records: EpisodeRecords

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        key = version_key(item.project, str(item.payload["dataset"]), int(item.payload["number"]))
        version = await context.get(Version, key)
        if version is None or version.removed is None:
            return ()
        in_place = version.access_plan == "A"
        folder = self.registered if in_place else self.datasets
        own = folder / item.project / version.dataset / f"v{version.number}"
        listed = local_path(version.checksums_uri) if in_place else None
        there = listed.parent if listed is not None else local_path(version.root)
        if there == own:
            try:  # versions that are older than kept lists have theirs only beside their files
                await context.in_thread(self.records.keep, version.episodes_uri)
                await context.in_thread(_remove, own)
            except OSError as error:
                raise RetryLater(_WAIT_S, str(error)) from error
        return ()


def _remove(root: Path) -> None:
    """First out of sight, then away: a folder that is half deleted never looks like a version."""
    if root.is_symlink():
        return
    doomed = root.with_name(f".{root.name}.removed")
    if root.exists():
        shutil.rmtree(doomed, ignore_errors=True)
        root.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


async def _versions(lease_: Lease, context: WorkContext) -> list[Version]:
    found: dict[str, Version] = {}
    for pin in lease_.pins:
        if pin.kind == "dataset" and pin.number is not None:
            version = await context.get(Version, version_key(lease_.project, pin.name, pin.number))
            if version is not None:
                found[version.key] = version
    return list(found.values())


def _answer(version: Version, check_: str, damage: Damage | None, cause: str) -> Emit:
    body = DatasetVersionChecked(
        dataset=version.dataset,
        number=version.number,
        check=check_,
        whole=damage is None,
        reason=None if damage is None else damage.reason,
        message=None if damage is None else damage.message[:1000],
    )
    return Emit(project=version.project, body=body, dedupe=(check_, cause, version.dataset, version.number))
