"""Episode table, task table and statistics of a LeRobot v3.0 dataset, checked entry by entry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.info_file import NotStrictJsonError, is_count, shown, strict_json, whole_number
from forebay.ingest.domain.path_template import PathTemplate
from forebay.ingest.domain.recording import Episode, Feature, Info, Window
from forebay.ingest.errors import IngestError, UnreadableFileError, UnsafePathError

if TYPE_CHECKING:
    import pyarrow as pa

EPISODES_FOLDER = "meta/episodes"
TASKS_FILE = "meta/tasks.parquet"
STATS_FILE = "meta/stats.json"
_COUNTS = (
    "episode_index",
    "length",
    "dataset_from_index",
    "dataset_to_index",
    "data/chunk_index",
    "data/file_index",
)
CAMERA_PLACES = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
"""Where an episode lies in the videos of one camera."""
_MAX_SECONDS = 1e9
TWICE = "it is listed twice"


def episode_files(folder: DatasetFolder) -> list[str]:
    """The files of the episode table, in order."""
    return sorted(
        name
        for name in folder.files
        if name.startswith(EPISODES_FOLDER + "/") and name.endswith(".parquet") and name.count("/") == 3
    )


class EntryProblems:
    """Entries of an episode table that cannot be used; what is wrong with many in one way is told once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], list[int]] = {}

    def add(self, file: str, index: int | None, who: str, problem: str) -> None:
        """`who` names an entry whose episode is not known."""
        self._found.setdefault((file, problem, who if index is None else ""), []).extend(
            [] if index is None else [index]
        )

    def breaches(self) -> list[Breach]:
        """One for each file and problem."""
        found: list[Breach] = []
        for (file, problem, who), indices in self._found.items():
            episodes = tuple(dict.fromkeys(indices))
            named = who or f"episode{'s' if len(episodes) > 1 else ''} {listed(list(episodes))}"
            text = f"{named}: {problem if problem != TWICE or len(episodes) < 2 else 'they are listed twice'}"
            found.append(
                Breach(
                    rule=rules.EPISODE_ROW,
                    episodes=episodes,
                    file=file,
                    expected="a usable entry",
                    found=text,
                    message=f"{file}: {text}",
                )
            )
        return found


class EpisodeTable:
    """Reads meta/episodes; what cannot be used becomes breaches."""

    def __init__(self, folder: DatasetFolder, info: Info, data: PathTemplate, video: PathTemplate | None) -> None:
        self._folder = folder
        self._info = info
        self._data = data
        self._video = video
        self.episodes: list[Episode] = []
        self.breaches: list[Breach] = []
        self.entries = 0
        self._cameras: Sequence[Feature] = info.cameras
        """Those whose columns can be used in the file that is read."""
        self._refused: set[Any] = set()
        self._problems = EntryProblems()
        self.complete = True
        """False: a whole file could not be used, so other episodes may exist."""

    def read(self) -> None:
        seen: dict[int, int] = {}
        for name in episode_files(self._folder):
            try:
                for row in self._rows(name):
                    self.entries += 1
                    self._entry(row, name, seen)
            except UnreadableFileError as error:
                self.complete = False
                self.breaches.append(_unreadable(name, str(error)))
        self.breaches += self._problems.breaches()
        self._look_at_order()
        self._look_at_strays()
        usable = (episode for episode in self.episodes if episode.index not in self._refused)
        self.episodes = sorted(usable, key=lambda episode: episode.index)

    def _look_at_order(self) -> None:
        numbers = [episode.index for episode in self.episodes]
        if numbers != sorted(numbers):
            text = f"{EPISODES_FOLDER}: the episodes are listed in the order {listed(numbers)}"
            self.breaches.append(
                Breach(
                    rule=rules.EPISODE_NUMBERS,
                    by_place=True,
                    file=EPISODES_FOLDER,
                    expected="the order of episode_index",
                    found=listed(numbers),
                    message=f"{text}; LeRobot looks episodes up by their place and would take others",
                )
            )

    def _look_at_strays(self) -> None:
        """Tables beside the episode table: tools that take every file below the folder would read them too."""
        from forebay.ingest.adapters.parquet_tables import ParquetTable  # noqa: PLC0415 only decoders load it

        known = set(episode_files(self._folder))
        below = (n for n in self._folder.files if n.startswith(EPISODES_FOLDER + "/") and n.endswith(".parquet"))
        for name in sorted(set(below) - known):
            try:
                with ParquetTable(self._folder.path(name)) as table:
                    doubled = table.doubled
            except IngestError:
                continue
            if doubled:
                self.breaches.append(replace(_columns(name, doubled, []), lowered="warning"))

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        from forebay.ingest.adapters.parquet_tables import ParquetTable, plain_columns  # noqa: PLC0415 only decoders load it

        with ParquetTable(self._folder.path(name)) as table:
            wanted = [*_COUNTS, *self._camera_columns()]
            missing = [column for column in wanted if column not in table.schema.names]
            unusable = {*table.doubled, *missing}
            self._cameras = [camera for camera in self._info.cameras if unusable.isdisjoint(_places_of(camera))]
            if unusable:
                self.complete = False
                self.breaches.append(_columns(name, table.doubled, missing))
                if not unusable.isdisjoint(_COUNTS):
                    return
                wanted = [*_COUNTS, *self._camera_columns()]
            if "tasks" in table.schema.names and "tasks" not in unusable:
                wanted.append("tasks")
            columns = plain_columns(table.read(wanted))
        self._settle(columns, name)
        for number in range(len(columns["episode_index"])):
            yield {key: values[number] for key, values in columns.items()}

    def _settle(self, columns: dict[str, list[Any]], name: str) -> None:
        """Whole numbers that pandas made floats of, because a value was missing somewhere on the way."""
        told: list[str] = []
        for key in columns.keys() - {"tasks"}:
            if key.endswith("_timestamp") or not any(isinstance(value, float) for value in columns[key]):
                continue
            columns[key] = [whole_number(value) for value in columns[key]]
            told.append(key)
        if told:
            text = (
                f"{name}: {listed(sorted(told))} stored as floats, read as whole numbers; LeRobot finds no file by them"
            )
            self.breaches.append(
                Breach(
                    rule=rules.EPISODE_ROW,
                    lowered="warning",
                    file=name,
                    expected="whole numbers",
                    found="floats",
                    message=text,
                )
            )

    def _camera_columns(self) -> list[str]:
        return [place for camera in self._cameras for place in _places_of(camera)]

    def _entry(self, row: dict[str, Any], name: str, seen: dict[int, int]) -> None:
        index = row["episode_index"]
        numbered = is_count(index)
        who = f"episode {index}" if numbered else f"entry {self.entries - 1}"
        problem = self._problem(row)
        content = hash(repr(row))
        if problem is None and index in seen:
            problem = TWICE
        if problem is not None:
            self._problems.add(name, index if numbered else None, who, problem)
            if numbered and seen.get(index) != content:  # of two equal entries the first one stands
                self._refused.add(index)
            return
        seen[index] = content
        try:
            self.episodes.append(self._episode(row))
        except UnsafePathError as error:
            self.breaches.append(
                Breach(
                    rule=rules.UNSAFE_PATH, episodes=(index,), file=name, message=f"{who}: {error}", found=str(error)
                )
            )

    def _problem(self, row: dict[str, Any]) -> str | None:
        for key in _COUNTS:
            if not is_count(row[key]):
                return f"{key} is {shown(row[key])}, expected a whole number from 0"
        for camera in self._cameras:
            place = f"videos/{camera.key}"
            for key in (f"{place}/chunk_index", f"{place}/file_index"):
                if not is_count(row[key]):
                    return f"{key} is {shown(row[key])}, expected a whole number from 0"
            for key in (f"{place}/from_timestamp", f"{place}/to_timestamp"):
                if not _is_time(row[key]):
                    return f"{key} is {shown(row[key])}, expected seconds from 0"
            if row[f"{place}/to_timestamp"] < row[f"{place}/from_timestamp"]:
                return f"{place} ends before it starts"
        if row["dataset_to_index"] < row["dataset_from_index"]:
            return "dataset_to_index lies before dataset_from_index"
        return None

    def _episode(self, row: dict[str, Any]) -> Episode:
        tasks = row.get("tasks")
        if isinstance(tasks, str):
            tasks = [tasks]
        return Episode(
            index=row["episode_index"],
            length=row["length"],
            from_index=row["dataset_from_index"],
            to_index=row["dataset_to_index"],
            data_file=self._data.fill(chunk=row["data/chunk_index"], file=row["data/file_index"]),
            windows=tuple(self._windows(row)),
            tasks=tuple(t for t in tasks if isinstance(t, str)) if isinstance(tasks, list) else None,
        )

    def _windows(self, row: dict[str, Any]) -> Iterator[Window]:
        """One per camera; none when video_path cannot be used, which is told once for all episodes."""
        video = self._video
        if video is None:
            return
        for camera in self._cameras:
            place = f"videos/{camera.key}"
            chunk, file = row[f"{place}/chunk_index"], row[f"{place}/file_index"]
            yield Window(
                camera=camera.key,
                file=video.fill(chunk=chunk, file=file, camera=camera.key),
                start=float(row[f"{place}/from_timestamp"]),
                stop=float(row[f"{place}/to_timestamp"]),
            )


def _places_of(camera: Feature) -> list[str]:
    """The columns that say where a camera's frames of an episode are."""
    return [f"videos/{camera.key}/{place}" for place in CAMERA_PLACES]


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= _MAX_SECONDS


def _unreadable(name: str, text: str) -> Breach:
    return Breach(
        rule=rules.PARQUET_UNREADABLE,
        file=name,
        expected="a readable parquet file",
        found=text,
        message=f"{name}: {text}",
    )


def _columns(name: str, doubled: list[str], missing: list[str]) -> Breach:
    text = (
        f"columns {listed(doubled)} occur more than once, and it is not known which one is right"
        if doubled
        else f"columns {listed(missing)} are missing"
    )
    return Breach(
        rule=rules.COLUMNS,
        file=name,
        expected="each column once",
        found=listed(doubled or missing),
        message=f"{name}: {text}",
    )


def read_tasks(folder: DatasetFolder) -> tuple[dict[int, str] | None, list[Breach]]:
    """Task number -> text; None when there is no usable table."""
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
    from forebay.ingest.adapters.parquet_tables import ParquetTable, plain_columns  # noqa: PLC0415 only decoders load it

    try:
        with ParquetTable(folder.path(TASKS_FILE)) as table:
            if table.doubled:
                return None, [_columns(TASKS_FILE, table.doubled, [])]
            text_column = _text_column(table.schema)
            if "task_index" not in table.schema.names or text_column is None:
                return None, [_columns(TASKS_FILE, [], ["task_index", "task"])]
            columns = plain_columns(table.read(["task_index", text_column]))
    except IngestError as error:
        return None, [_unreadable(TASKS_FILE, str(error))]
    pairs = zip(columns["task_index"], columns[text_column], strict=True)
    return numbered_tasks(pairs, TASKS_FILE, by_place=True)


def task_notes(folder: DatasetFolder) -> dict[int, dict[str, Any]]:
    """What the task table says of a task beside its text, by its number."""
    from forebay.ingest.adapters.parquet_tables import ParquetTable  # noqa: PLC0415 only decoders load it

    with ParquetTable(folder.path(TASKS_FILE)) as table:
        known = {"task_index", _text_column(table.schema)}
        names = [name for name in table.schema.names if name not in known and not name.startswith("__")]
        rows = table.read(["task_index", *names]).to_pylist() if names else []
    return {row["task_index"]: {name: row[name] for name in names} for row in reversed(rows)}


def numbered_tasks(
    pairs: Iterable[tuple[Any, Any]], file: str, *, by_place: bool
) -> tuple[dict[int, str], list[Breach]]:
    """Task number -> text, of what is usable. `by_place`: readers take the text by its row."""
    tasks: dict[int, str] = {}
    doubled: dict[int, list[str]] = {}
    rows = 0
    for number, text in pairs:
        rows += 1
        if is_count(number) and isinstance(text, str) and tasks.setdefault(number, text) != text:
            doubled.setdefault(number, [tasks[number]]).append(text)
    broken = [
        Breach(
            rule=rules.TASK_UNKNOWN,
            feature="task_index",
            file=file,
            expected="one text for each number",
            found=listed(texts),
            message=f"{file}: task_index {number} stands for {len(texts)} texts, and it is not known which one is right: {listed(texts)}",
        )
        for number, texts in [*doubled.items()][:20]
    ]
    if by_place and not broken and len(tasks) == rows and [*tasks] != [*range(rows)]:
        order = listed([*tasks])
        text = f"{file}: its rows are numbered {order}; LeRobot takes the text by its place, so tasks get the texts of others"
        broken.append(
            Breach(
                rule=rules.TASK_TABLE,
                by_place=True,
                feature="task_index",
                file=file,
                expected=f"0 to {rows - 1} in order",
                found=order,
                message=text,
            )
        )
    return tasks, broken


def _text_column(schema: pa.Schema) -> str | None:
    """The column of texts: named `task`, or the nameless index that pandas writes."""
    from pyarrow import types  # noqa: PLC0415 only decoders load it

    def is_text(kind: pa.DataType) -> bool:
        if types.is_dictionary(kind):
            return is_text(kind.value_type)
        return types.is_string(kind) or types.is_large_string(kind)

    texts = [f.name for f in schema if is_text(f.type)]
    return next((name for name in ("task", "__index_level_0__") if name in texts), texts[0] if texts else None)


def read_statistics(folder: DatasetFolder) -> tuple[dict[str, Any] | None, list[Breach]]:
    """stats.json as far as it is strict JSON."""
    if STATS_FILE not in folder.files:
        text = f"{STATS_FILE} is not there; training has nothing to normalise with, versions get their own"
        return None, [
            Breach(rule=rules.EPISODE_STATS, file=STATS_FILE, expected="the file", found="no such file", message=text)
        ]
    try:
        document = strict_json(folder.read(STATS_FILE))
    except (ValueError, IngestError) as error:
        kind = "is not strict JSON" if isinstance(error, NotStrictJsonError) else "cannot be read"
        text = f"{STATS_FILE} {kind}: {error}"
        return None, [
            Breach(rule=rules.STRICT_JSON, file=STATS_FILE, expected="strict JSON", found=str(error), message=text)
        ]
    return (document if isinstance(document, dict) else None), []


def statistics_frames(statistics: dict[str, Any] | None, info: Info) -> int | None:
    """How many frames the statistics of state and action were made from."""
    counts = []
    for feature in info.features:
        entry = (statistics or {}).get(feature.key)
        count = entry.get("count") if isinstance(entry, dict) else None
        if isinstance(count, list) and count and is_count(count[0]) and not feature.is_video:
            counts.append(int(count[0]))
    return max(counts, default=None)
