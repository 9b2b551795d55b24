"""The collector: uploads one LeRobot folder and says so, surviving kills and outages.

Called by `forebay upload`. Files go to the landing folder, events to the disk
outbox; the log hears of an episode only after its files are there whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.contracts.identifiers import stable_id
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.episodes import EpisodeUploaded, UploadFinished, UploadStarted
from forebay.sdk.landing import Hashed, Landing, UploadRecord, hash_files, manifest_bytes, upload_id
from forebay.sdk.lerobot_folder import LeftOut, LeRobotFolder, SourceEpisode, scan
from forebay.sdk.outbox import Outbox, outbox_of

_EPISODES_PER_SEGMENT = 500


class Progress(Protocol):
    """Told what happens, for people who watch."""

    def stage(self, name: str, total_bytes: int) -> None: ...

    def advance(self, done_bytes: int) -> None: ...


class Silent:
    """Nobody watches."""

    def stage(self, name: str, total_bytes: int) -> None: ...

    def advance(self, done_bytes: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """What an upload did; its events are in the outbox, on their way to the log."""

    upload: str
    dataset: str
    episodes: int
    files: int
    bytes: int
    repeated: bool
    """True when the same content had been uploaded and delivered before."""
    left_out: tuple[LeftOut, ...] = ()
    """Files that are not uploaded: links out of the folder, pipes, devices."""


class Collector:
    """Uploads folders into one project."""

    def __init__(self, *, home: Path, project: str, require_room: Callable[[int], None] | None = None) -> None:
        """`require_room` is asked about the bytes that will be copied, and raises when they do not fit."""
        self.project = project
        self.source = Source(Part.COLLECTOR, project)
        self.outbox: Outbox = outbox_of(home, self.source)
        self._landing = home / "pool" / "landing" / project
        self._require_room = require_room

    def upload(
        self,
        folder: Path,
        dataset: str,
        *,
        source_ref: str | None = None,
        source_revision: str | None = None,
        collection_request: str | None = None,
        replaces: bool = False,
        progress: Progress | None = None,
        again: bool = False,
    ) -> Uploaded:
        """Copy the folder and write its events into the outbox.

        With `replaces` the next version holds exactly this folder. Raises `NotADatasetError` before anything is copied or said. `again` repeats
        the events of an upload that was delivered before; they are the same events.
        """
        progress = progress or Silent()
        found = scan(folder)
        progress.stage("reading", found.bytes)
        hashed = hash_files(found.files, progress.advance)
        manifest = manifest_bytes(hashed, found.left_out)
        upload = upload_id(self.project, dataset, manifest, replaces=replaces)
        landing = Landing(self._landing / upload)
        before = landing.record()
        result = Uploaded(
            upload=upload,
            dataset=dataset,
            episodes=len(found.episodes),
            files=len(found.files),
            bytes=found.bytes,
            repeated=before is not None and before.delivered,
            left_out=found.left_out,
        )
        if result.repeated and not again:
            return result
        if self._require_room is not None:
            self._require_room(landing.missing_bytes(hashed))
        record = before or UploadRecord(
            upload=upload,
            source_ref=source_ref or str(folder),
            source_revision=source_revision or found.revision,
            collection_request=collection_request,
            replaces=replaces,
        )
        landing.write_record(record.model_copy(update={"delivered": False}))
        self._say([self._started(record, dataset, found, landing)])
        progress.stage("copying", found.bytes)
        for episodes in _copy(landing, found, hashed, progress):
            self._say([self._episode(upload, dataset, found, episode) for episode in episodes])
        reference = landing.write_manifest(manifest)
        finished = UploadFinished(
            upload=upload,
            dataset=dataset,
            episodes=len(found.episodes),
            files=len(found.files),
            bytes=found.bytes,
            manifest=reference,
        )
        self._say([self._event(finished, upload)])
        return result

    def delivered(self, upload: str) -> None:
        """Remember that the log has every event of this upload."""
        landing = Landing(self._landing / upload)
        record = landing.record()
        if record is not None and not record.delivered:
            landing.write_record(record.model_copy(update={"delivered": True}))

    def _say(self, events: Sequence[Event[EventBody]]) -> None:
        for start in range(0, len(events), _EPISODES_PER_SEGMENT):
            self.outbox.append(events[start : start + _EPISODES_PER_SEGMENT])

    def _event(self, body: EventBody, *identity: object) -> Event[EventBody]:
        event_id = stable_id(body.event, self.project, *identity)
        return Event(id=event_id, source=self.source, project=self.project, body=body, correlation=str(identity[0]))

    def _started(self, record: UploadRecord, dataset: str, found: LeRobotFolder, landing: Landing) -> Event[EventBody]:
        body = UploadStarted(
            upload=record.upload,
            dataset=dataset,
            source_ref=record.source_ref,
            source_format=found.format,
            landing_uri=landing.folder.resolve().as_uri(),
            expected_episodes=len(found.episodes),
            expected_files=len(found.files),
            expected_bytes=found.bytes,
            source_revision=record.source_revision,
            collection_request=record.collection_request,
            replaces=record.replaces or None,
        )
        return self._event(body, record.upload)

    def _episode(self, upload: str, dataset: str, found: LeRobotFolder, episode: SourceEpisode) -> Event[EventBody]:
        body = EpisodeUploaded(
            episode="ep-" + stable_id(self.project, dataset, upload, episode.index)[:24],
            upload=upload,
            dataset=dataset,
            source_index=episode.index,
            length=episode.length,
            tasks=episode.tasks,
            rows=episode.rows,
            videos=episode.videos,
            robot=found.robot,
        )
        return self._event(body, upload, episode.index)


def _copy(
    landing: Landing, found: LeRobotFolder, hashed: Sequence[Hashed], progress: Progress
) -> Iterator[list[SourceEpisode]]:
    """Copy file by file; yields episodes as soon as the last of their files has arrived.

    A file that the episode table names but that does not exist keeps no episode back:
    it is uploaded as it is, and ingest says what is missing.
    """
    there = {file.source.path for file in hashed}
    missing = {episode.index: len(episode.files & there) for episode in found.episodes}
    users: dict[str, list[SourceEpisode]] = {}
    for episode in found.episodes:
        for path in episode.files & there:
            users.setdefault(path, []).append(episode)
    if fileless := [episode for episode in found.episodes if not missing[episode.index]]:
        yield fileless
    for file in hashed:
        landing.copy(file, progress.advance)
        ready = []
        for episode in users.get(file.source.path, ()):
            missing[episode.index] -= 1
            if not missing[episode.index]:
                ready.append(episode)
        if ready:
            yield ready
    landing.sweep()
