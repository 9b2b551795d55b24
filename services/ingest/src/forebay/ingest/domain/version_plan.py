"""What a dataset version will hold: dense numbers for episodes, tasks and video files.

LeRobot's reader wants episode ranges that tile `[0, total_frames)`, so every version
counts anew; the stable episode ids are kept beside. Pure: the same accepted
episodes give the same plan and the same content digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forebay.contracts.identifiers import content_digest
from forebay.ingest.domain.breach import listed
from forebay.ingest.domain.carried import CarriedFile, Described, carry
from forebay.ingest.domain.labels import Labels, difference, number_tasks, task_columns
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.errors import ConversionError

LAYOUT = 2
"""Raised when the tables are laid out differently, so that old and new content differ."""
FILES_PER_CHUNK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedEpisode:
    """One accepted episode and where it lies in its origin."""

    id: str
    upload: str
    source_index: int
    """Its number in the upload that brought it."""
    origin: str
    """Where its rows are read from: its upload, or an earlier version."""
    declared: Episode
    """As its origin lists it."""
    tasks: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one upload, or the version before, gives to the version."""

    origin: str
    """The upload, or `v3`."""
    info: Info
    tasks: Mapping[int, str]
    sha256: Mapping[str, str]
    """Digest of every video file."""
    episodes: tuple[AcceptedEpisode, ...]
    """In order of their number there."""
    version: bool = False
    """True when it is an earlier version and no upload."""
    kept: KeptTables | None = None
    """Set when the tables of that version are shared."""
    labels: Labels = field(default_factory=Labels)
    task_notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What its task table says of a task beside the text."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files below its meta/ that a version does not write itself -> SHA-256."""
    beside: tuple[str, ...] = ()
    """Files that no version holds."""

    @property
    def task_columns(self) -> tuple[str, ...]:
        """Features that name tasks by number."""
        return task_columns(self.info, self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTables:
    """What the tables of an earlier version hold, so that a new one may grow from them."""

    episodes: int
    places: Mapping[str, tuple[str, int, int]]
    """Video file -> camera, chunk and file number of every row of its videos table."""
    rows_shared: bool = True
    """False: rows are written anew even when none is left out, so that they lie in one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedVideo:
    """One mp4 file, taken over byte for byte."""

    camera: str
    chunk: int
    file: int
    origin: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEpisode:
    """One episode with its numbers in the version."""

    accepted: AcceptedEpisode
    index: int
    start: int
    """First row in the frames table."""
    videos: tuple[tuple[str, int, int, float, float], ...]
    """(camera, chunk, file, from, to)"""

    @property
    def length(self) -> int:
        return self.accepted.declared.length

    @property
    def texts(self) -> tuple[str, ...]:
        """Its tasks as the episode table lists them, which may be more than its rows use."""
        own = self.accepted.declared.tasks
        return own if own is not None and set(own) >= set(self.accepted.tasks) else self.accepted.tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """Everything that decides the content of a version."""

    info: Info
    sources: Mapping[str, Source]
    """By origin, in the order of the rows."""
    episodes: tuple[PlannedEpisode, ...]
    videos: tuple[PlannedVideo, ...]
    tasks: tuple[str, ...]
    """The text of every task number."""
    numbers: Mapping[str, Mapping[int, int]]
    """Origin -> task number there -> task number here."""
    carried: tuple[CarriedFile, ...]
    notes: tuple[str, ...]
    """What is not as it was in the origins, in words."""
    digest: str

    @property
    def frames(self) -> int:
        return self.episodes[-1].start + self.episodes[-1].length if self.episodes else 0

    @property
    def base(self) -> Source | None:
        """The version whose tables are shared."""
        first = next(iter(self.sources.values()))
        return first if first.kept is not None else None

    @property
    def appends(self) -> bool:
        """True when every row of the base keeps its number, so that rows are only added."""
        base = self.base
        if base is None or base.kept is None or not base.kept.rows_shared:
            return False
        if len(base.episodes) != base.kept.episodes:
            return False
        return all(number == self.numbers[base.origin][number] for number in base.tasks)

    def of(self, origin: str) -> list[PlannedEpisode]:
        """The episodes that are read from one origin."""
        return [episode for episode in self.episodes if episode.accepted.origin == origin]


def features_digest(info: Info) -> str:
    """Equal for datasets whose rows can stand in one table."""
    features = [[f.key, f.dtype, list(f.shape)] for f in sorted(info.features, key=lambda f: f.key)]
    return content_digest({"fps": info.fps, "features": features})


def plan_version(sources: Sequence[Source]) -> VersionPlan:
    """Number everything; raises `ConversionError` when the sources do not go together."""
    used = [source for source in sources if source.episodes]
    if not used:
        msg = "no accepted episode is left, so there is nothing to write"
        raise ConversionError(msg)
    first = used[0].info
    for source in used[1:]:
        if features_digest(source.info) != features_digest(first):
            msg = f"{source.origin} has other features or another frame rate than {used[0].origin}; upload it as another dataset"
            raise ConversionError(msg)
    _compare_labels(used)
    accepted = [episode for source in used for episode in source.episodes]
    tasks, numbers = number_tasks({source.origin: source.tasks for source in used})
    carried, notes = carry([Described(origin=s.origin, info=s.info, labels=s.labels, files=s.files) for s in used])
    videos, places = _number_videos(used)
    episodes: list[PlannedEpisode] = []
    start = 0
    for index, episode in enumerate(accepted):
        windows = tuple(
            (window.camera, *places[(episode.origin, window.file)], window.start, window.stop)
            for window in episode.declared.windows
        )
        episodes.append(PlannedEpisode(accepted=episode, index=index, start=start, videos=windows))
        start += episode.declared.length
    return VersionPlan(
        info=first,
        sources={source.origin: source for source in used},
        episodes=tuple(episodes),
        videos=videos,
        tasks=tasks,
        numbers=numbers,
        carried=carried,
        notes=(*_notes(used, numbers), *notes),
        digest=_digest(first, tasks, episodes, videos, carried),
    )


def _compare_labels(sources: Sequence[Source]) -> None:
    for number, source in enumerate(sources):
        for before in sources[:number]:
            text = difference((before.info, before.labels), (source.info, source.labels))
            if text is not None:
                msg = f"{source.origin} does not go together with {before.origin}: {text}"
                raise ConversionError(msg)


def _notes(sources: Sequence[Source], numbers: Mapping[str, Mapping[int, int]]) -> Iterator[str]:
    for source in sources:
        if source.beside:
            yield f"files beside the dataset are left out: {listed(list(source.beside))}"
        moved = [f"{old} is now {new}" for old, new in numbers[source.origin].items() if old != new]
        if moved:
            yield f"task numbers of {source.origin} in {listed(list(source.task_columns))} are mapped: {listed(moved)}"
    first = sources[0]
    if not first.version and all(old == new for old, new in numbers[first.origin].items()):
        free = sorted(set(range(max(first.tasks, default=-1) + 1)) - first.tasks.keys())
        if free:
            yield f"the task table has no tasks {listed(free)}; the version lists them as '(no task {free[0]})' and so on"


def _number_videos(
    sources: Sequence[Source],
) -> tuple[tuple[PlannedVideo, ...], dict[tuple[str, str], tuple[int, int]]]:
    videos: list[PlannedVideo] = []
    places: dict[tuple[str, str], tuple[int, int]] = {}
    counts: dict[str, int] = {}
    for source in sources:
        kept = source.kept.places if source.kept is not None else {}
        for episode in source.episodes:
            for window in episode.declared.windows:
                key = (source.origin, window.file)
                if key in places:
                    continue
                if window.file in kept:
                    places[key] = kept[window.file][1:]
                else:
                    number = counts.get(window.camera, _first_free(sources, window.camera))
                    counts[window.camera] = number + 1
                    places[key] = divmod(number, FILES_PER_CHUNK)
                digest = source.sha256.get(window.file)
                if digest is None:
                    msg = f"{source.origin}: {window.file} is not in its manifest"
                    raise ConversionError(msg)
                chunk, file = places[key]
                videos.append(
                    PlannedVideo(
                        camera=window.camera,
                        chunk=chunk,
                        file=file,
                        origin=source.origin,
                        path=window.file,
                        sha256=digest,
                    )
                )
    return tuple(videos), places


def _first_free(sources: Sequence[Source], camera: str) -> int:
    """The number after the last file that an earlier version has of this camera."""
    kept = sources[0].kept.places if sources[0].kept is not None else {}
    taken = [chunk * FILES_PER_CHUNK + file for key, chunk, file in kept.values() if key == camera]
    return max(taken, default=-1) + 1


def _digest(
    info: Info,
    tasks: tuple[str, ...],
    episodes: Sequence[PlannedEpisode],
    videos: Sequence[PlannedVideo],
    carried: Sequence[CarriedFile],
) -> str:
    content: dict[str, Any] = {
        "layout": LAYOUT,
        "features": features_digest(info),
        "tasks": list(tasks),
        "episodes": [
            [e.accepted.id, e.length, e.accepted.digest, list(e.texts), [list(v) for v in e.videos]] for e in episodes
        ],
        "videos": [[v.camera, v.chunk, v.file, v.sha256] for v in videos],
        "carried": [[file.path, file.sha256] for file in carried],
    }
    return content_digest(content)
