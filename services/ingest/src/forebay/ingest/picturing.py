"""Takes out of a dataset what its HTML report shows: frames, curves, and how long the videos are.

Bad episodes first, and only a few: a report is looked at by a person. Files are opened
in decoders, like everything from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from forebay.ingest.adapters import plot_data
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.decoders import Decoders, Task
from forebay.ingest.adapters.html_report import Shot, Sight, render
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.errors import IngestError
from forebay.ingest.inspection import Inspection

_EPISODES = 6
_CURVES = 4
_CURVED = ("action", "observation.state")


def html_of(name: str, inspection: Inspection, folder: DatasetFolder) -> str:
    """The report of what was inspected; `folder` is where it lies on this machine."""
    with Decoders() as pool:
        sight = _look(inspection, folder, pool)
    return render(name, inspection.report, inspection.info, inspection.episodes, sight)


def _look(inspection: Inspection, folder: DatasetFolder, pool: Decoders) -> Sight:
    info = inspection.info
    if info is None:
        return Sight(shots=_loose_shots(inspection, folder, pool))
    chosen = _chosen(inspection)
    return Sight(
        shots=_shots(chosen, info, folder, pool),
        curves=_curves(inspection, chosen[:_CURVES], info, folder, pool),
        seconds=inspection.seconds,
    )


def _chosen(inspection: Inspection) -> list[Episode]:
    """The episodes that are shown: one of each kind of trouble first, then the first ones."""
    declared = {episode.index: episode for episode in inspection.episodes}
    wanted: list[int] = []
    for breach in inspection.report.breaches:
        fresh = [index for index in breach.episodes or () if index not in wanted]
        wanted += fresh[:2]
    wanted += list(declared)
    return [declared[index] for index in dict.fromkeys(wanted) if index in declared][:_EPISODES]


def _shots(episodes: Sequence[Episode], info: Info, folder: DatasetFolder, pool: Decoders) -> list[Shot]:
    with ExitStack() as held:
        return _pictures_of(episodes, info, _Fetched(folder, held), pool)


class _Fetched:
    """Videos on this machine, those on S3 fetched once more; what cannot be had is None."""

    def __init__(self, folder: DatasetFolder, held: ExitStack) -> None:
        self._folder = folder
        self._held = held
        self._paths: dict[str, Path | None] = {}

    def path(self, name: str) -> Path | None:
        if name not in self._paths:
            try:
                known = name in self._folder.files
                self._paths[name] = self._held.enter_context(self._folder.near(name)) if known else None
            except (IngestError, OSError):
                self._paths[name] = None
        return self._paths[name]


def _pictures_of(episodes: Sequence[Episode], info: Info, fetched: _Fetched, pool: Decoders) -> list[Shot]:
    tasks: list[Task] = []
    wanted: list[tuple[Episode, str, list[int]]] = []
    for episode in episodes:
        for window in episode.windows:
            path = fetched.path(window.file)
            if path is None or not episode.length:
                continue
            rows = max(min(episode.length, round((window.stop - window.start) * info.fps) or episode.length), 1)
            frames = sorted({0, rows // 2, rows - 1})
            times = [window.start + frame / info.fps for frame in frames]
            tasks.append(Task(function=plot_data.read_pictures, arguments=(path, window.file, times)))
            wanted.append((episode, window.camera, frames))
    return _taken(pool, tasks, [(episode.index, camera, frames) for episode, camera, frames in wanted])


def _taken(pool: Decoders, tasks: list[Task], wanted: list[tuple[int, str, list[int]]]) -> list[Shot]:
    found: list[Shot] = []
    for (index, camera, frames), answer in zip(wanted, pool.run(tasks), strict=True):
        if isinstance(answer, IngestError):
            continue  # the file's own finding says what is wrong with it
        found += [
            Shot(episode=index, camera=camera, frame=frame, jpeg=jpeg)
            for frame, jpeg in zip(frames, answer, strict=True)
            if jpeg
        ]
    return found


def _loose_shots(inspection: Inspection, folder: DatasetFolder, pool: Decoders) -> list[Shot]:
    """First frames of videos that no table describes, as far as a finding speaks of them."""
    tasks: list[Task] = []
    wanted: list[tuple[int, str, list[int]]] = []
    for breach in inspection.report.breaches:
        path = _path(folder, breach.file or "")
        if not breach.file or not breach.file.endswith(".mp4") or not breach.episodes or not breach.feature:
            continue
        shown = (breach.episodes[0], breach.feature, [0])
        if path is not None and shown not in wanted:
            tasks.append(Task(function=plot_data.read_pictures, arguments=(path, breach.file, [0.0])))
            wanted.append(shown)
    return _taken(pool, tasks[:_EPISODES], wanted[:_EPISODES])


def _curves(
    inspection: Inspection, episodes: Sequence[Episode], info: Info, folder: DatasetFolder, pool: Decoders
) -> list[plot_data.Curves]:
    tasks: list[Task] = []
    features = [feature.key for feature in info.row_features if feature.key in _CURVED]
    others = [feature.key for feature in info.row_features if feature.is_signal and feature.key not in features]
    for episode in episodes:
        mine = [b for b in inspection.report.breaches if b.episodes and episode.index in b.episodes]
        told = [b.feature for b in mine if b.feature in others]
        path = _path(folder, episode.data_file)
        if path is not None:
            marked = [b.frame for b in mine if b.frame is not None]
            names = list(dict.fromkeys([*features, *told]))[:4] or others[:2]
            tasks.append(Task(function=plot_data.read_curves, arguments=(path, episode.index, names, marked)))
    found: list[plot_data.Curves] = []
    for answer in pool.run(tasks):
        found += [] if isinstance(answer, IngestError) else answer
    return found


def _path(folder: DatasetFolder, name: str) -> Path | None:
    """Where a file lies, when it is on this machine and inside the folder."""
    try:
        return folder.path(name) if name in folder.files and name not in folder.far else None
    except IngestError:
        return None
