"""Episode table, task table and statistics of a LeRobot v2.1 or v2.0 dataset: one JSON object per line.

The files say less than those of v3.0: every episode has a data file and videos of its
own, whose names follow from its number, and no window or first row is declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.metadata_tables import TWICE, EntryProblems, numbered_tasks
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.info_file import NotStrictJsonError, is_count, shown, strict_json, whole_number
from forebay.ingest.domain.path_template import PathTemplate
from forebay.ingest.domain.recording import Episode, Info, Window
from forebay.ingest.errors import IngestError, UnsafePathError

EPISODES_FILE = "meta/episodes.jsonl"
TASKS_FILE = "meta/tasks.jsonl"
EPISODE_STATS_FILE = "meta/episodes_stats.jsonl"
MAX_LINES = 5_000_000


class EpisodeLines:
    """Reads meta/episodes.jsonl; what cannot be used becomes breaches."""

    def __init__(self, folder: DatasetFolder, info: Info, data: PathTemplate, video: PathTemplate | None) -> None:
        self._folder = folder
        self._info = info
        self._data = data
        self._video = video
        self.episodes: list[Episode] = []
        self.breaches: list[Breach] = []
        self.entries = 0
        self._floats = 0
        self._problems = EntryProblems()
        self.complete = True
        """False: some lines could not be read, so other episodes may exist."""

    def read(self) -> None:
        if EPISODES_FILE not in self._folder.files:
            return
        seen: dict[int, Episode | None] = {}
        try:
            for number, line in _lines(self._folder, EPISODES_FILE):
                self.entries += 1
                self._entry(number, line, seen)
        except IngestError as error:
            self.complete = False
            self.breaches.append(_broken(EPISODES_FILE, str(error)))
        self.breaches += self._problems.breaches()
        self.episodes = [episode for _, episode in sorted(seen.items()) if episode is not None]
        if self._floats:
            text = f"{EPISODES_FILE}: {self._floats} numbers written with a decimal point, read as whole numbers"
            self.breaches.append(
                Breach(
                    rule=rules.EPISODE_ROW,
                    lowered="warning",
                    file=EPISODES_FILE,
                    expected="whole numbers",
                    found="floats",
                    message=text,
                )
            )

    def _entry(self, number: int, line: Any, seen: dict[int, Episode | None]) -> None:
        if isinstance(line, ValueError) or not isinstance(line, dict):
            self.complete = False
            self.breaches.append(_broken(EPISODES_FILE, f"line {number} is no JSON object: {shown(line)}"))
            return
        for key in ("episode_index", "length"):
            settled = whole_number(line.get(key))
            self._floats += isinstance(line.get(key), float) and settled is not line.get(key)
            line = {**line, key: settled}
        index: Any = line.get("episode_index")
        who = f"episode {index}" if is_count(index) else f"line {number}"
        problem = self._problem(line)
        if problem is not None:
            self._refuse(index, who, problem, seen)
            return
        try:
            episode = self._episode(line)
            if index not in seen:
                seen[index] = episode
            elif seen[index] == episode:  # of two equal entries the first one stands
                self._problems.add(EPISODES_FILE, index, who, TWICE)
            else:
                self._refuse(index, who, TWICE, seen)
        except UnsafePathError as error:
            seen[index] = None
            self.breaches.append(
                Breach(
                    rule=rules.UNSAFE_PATH,
                    episodes=(index,),
                    file=EPISODES_FILE,
                    message=f"{who}: {error}",
                    found=str(error),
                )
            )

    def _refuse(self, index: Any, who: str, problem: str, seen: dict[int, Episode | None]) -> None:
        known = is_count(index)
        if known:
            seen[index] = None
        self._problems.add(EPISODES_FILE, index if known else None, who, problem)

    def _problem(self, line: dict[str, Any]) -> str | None:
        for key in ("episode_index", "length"):
            if not is_count(line.get(key)):
                return f"{key} is {shown(line.get(key))}, expected a whole number from 0"
        return None

    def _episode(self, line: dict[str, Any]) -> Episode:
        index, length, tasks = line["episode_index"], line["length"], line.get("tasks")
        chunk = index // self._info.chunks_size
        stop = length / self._info.fps
        if isinstance(tasks, str):
            tasks = [tasks]
        return Episode(
            index=index,
            length=length,
            from_index=None,
            to_index=None,
            data_file=self._data.fill(chunk=chunk, file=index),
            windows=tuple(self._windows(index, chunk, stop)),
            tasks=tuple(tasks) if isinstance(tasks, list) and all(isinstance(t, str) for t in tasks) else None,
        )

    def _windows(self, index: int, chunk: int, stop: float) -> Iterator[Window]:
        """A file per camera; none when video_path cannot be used, which is told once for all episodes."""
        video = self._video
        if video is None:
            return
        for camera in self._info.cameras:
            file = video.fill(chunk=chunk, file=index, camera=camera.key)
            yield Window(camera=camera.key, file=file, start=0.0, stop=stop, whole=True)


def _lines(folder: DatasetFolder, name: str) -> Iterator[tuple[int, Any]]:
    """(line number, its value or the `ValueError` that it gave); raises `IngestError` when the file cannot be read."""
    for number, text in enumerate(folder.read(name).splitlines()[:MAX_LINES], start=1):
        if text.strip():
            try:
                yield number, strict_json(text)
            except ValueError as error:
                yield number, error


def _broken(name: str, text: str) -> Breach:
    return Breach(
        rule=rules.METADATA_UNREADABLE,
        file=name,
        expected="one JSON object per line",
        found=text,
        message=f"{name}: {text}",
    )


def read_tasks(folder: DatasetFolder) -> tuple[dict[int, str] | None, list[Breach]]:
    """Task number -> text; None when there is no usable file."""
    if TASKS_FILE not in folder.files:
        text = "missing in our copy"
        return None, [
            Breach(
                rule=rules.MISSING_FILE,
                file=TASKS_FILE,
                expected="the file",
                found=text,
                message=f"{TASKS_FILE} is {text}",
            )
        ]
    pairs: list[tuple[int, str]] = []
    broken: list[Breach] = []
    try:
        for number, line in _lines(folder, TASKS_FILE):
            if isinstance(line, dict) and is_count(line.get("task_index")) and isinstance(line.get("task"), str):
                pairs.append((line["task_index"], line["task"]))
            elif len(broken) < 20:
                broken.append(_broken(TASKS_FILE, f"line {number} has no task_index with a task: {shown(line)}"))
    except IngestError as error:
        return None, [_broken(TASKS_FILE, str(error))]
    tasks, doubled = numbered_tasks(pairs, TASKS_FILE, by_place=False)
    return tasks, [*broken, *doubled]


def task_notes(folder: DatasetFolder) -> dict[int, dict[str, Any]]:
    """What the task table says of a task beside its text, by its number."""
    found: dict[int, dict[str, Any]] = {}
    for _, line in _lines(folder, TASKS_FILE):
        if isinstance(line, dict) and is_count(line.get("task_index")):
            notes = {key: value for key, value in line.items() if key not in {"task_index", "task"}}
            found.setdefault(line["task_index"], notes)
    return found


def episode_lines(folder: DatasetFolder, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(episode, line) for every line that names one."""
    for _, line in _lines(folder, name):
        if isinstance(line, dict) and is_count(index := whole_number(line.get("episode_index"))):
            yield index, line


def read_statistics(folder: DatasetFolder, info: Info) -> tuple[dict[str, Any] | None, list[Breach]]:
    """What the statistics of all episodes cover: feature -> `{"count": [frames]}`.

    Without them there is a warning; the statistics of a version are computed from
    its rows anyway.
    """
    if EPISODE_STATS_FILE not in folder.files:
        text = "there are no statistics per episode"
        return None, [
            Breach(
                rule=rules.EPISODE_STATS,
                file=EPISODE_STATS_FILE,
                expected=EPISODE_STATS_FILE,
                found="no such file",
                message=f"{text} ({EPISODE_STATS_FILE}); LeRobot {info.version} "
                + ("did not write them" if info.version == "v2.0" else "needs them to load the dataset"),
            )
        ]
    counts: dict[str, int] = {}
    uncounted: set[str] = set()
    try:
        for number, line in _lines(folder, EPISODE_STATS_FILE):
            uncounted.update(_uncounted(line))
            if isinstance(line, ValueError):
                kind = "is not strict JSON" if isinstance(line, NotStrictJsonError) else "cannot be read"
                text = f"{EPISODE_STATS_FILE}: line {number} {kind}: {line}"
                return None, [
                    Breach(
                        rule=rules.STRICT_JSON,
                        file=EPISODE_STATS_FILE,
                        expected="strict JSON",
                        found=str(line),
                        message=text,
                    )
                ]
            for key, count in _counts(line):
                counts[key] = counts.get(key, 0) + count
    except IngestError as error:
        text = f"{EPISODE_STATS_FILE} cannot be read: {error}"
        return None, [
            Breach(rule=rules.STRICT_JSON, file=EPISODE_STATS_FILE, expected="statistics", found=text, message=text)
        ]
    found = {key: {"count": [count]} for key, count in counts.items()}
    if not uncounted:
        return found, []
    names = listed(sorted(uncounted))
    text = f"{EPISODE_STATS_FILE}: the statistics of {names} have no count; LeRobot {info.version} stops when it adds them up"
    return found, [
        Breach(
            rule=rules.EPISODE_STATS,
            file=EPISODE_STATS_FILE,
            expected="a count",
            found=f"none for {names}",
            message=text,
        )
    ]


def _uncounted(line: Any) -> Iterator[str]:
    """Features whose statistics do not say how many frames they are of."""
    stats = line.get("stats") if isinstance(line, dict) else None
    for key, entry in (stats if isinstance(stats, dict) else {}).items():
        if isinstance(entry, dict) and "mean" in entry and "count" not in entry:
            yield key


def _counts(line: Any) -> Iterator[tuple[str, int]]:
    stats = line.get("stats") if isinstance(line, dict) else None
    for key, entry in (stats if isinstance(stats, dict) else {}).items():
        count = entry.get("count") if isinstance(entry, dict) else None
        if isinstance(count, list) and count and is_count(count[0]):
            yield key, int(count[0])


def episode_statistics(folder: DatasetFolder) -> Iterator[tuple[int, dict[str, Any]]]:
    """(episode, its statistics as they stand in the file) for every usable line."""
    if EPISODE_STATS_FILE not in folder.files:
        return
    try:
        for _, line in _lines(folder, EPISODE_STATS_FILE):
            if isinstance(line, dict) and is_count(line.get("episode_index")) and isinstance(line.get("stats"), dict):
                yield line["episode_index"], line["stats"]
    except IngestError:
        return
