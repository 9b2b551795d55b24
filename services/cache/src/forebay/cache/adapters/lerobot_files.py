"""LeRobot's own files (v3.0, v2.1, v2.0) -> the byte ranges that some columns and episodes take: access plan A.

`meta/` whole; of a Parquet file everything that is no column chunk (footer, page index,
bloom filters) and the chunks of the wanted columns in the row groups that hold the
episodes; of an mp4 the index and the key-frame windows of the episodes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from forebay.cache.adapters.lance_manifest import inside
from forebay.cache.adapters.mp4_windows import Window, plan_windows
from forebay.cache.adapters.origin import Origin
from forebay.cache.adapters.origin_file import open_parquet, read_parquet
from forebay.cache.domain.plan import ByteRange, PlannedFile, merge_ranges, planned_file
from forebay.cache.errors import ColumnUnknownError, DataChangedError, FormatUnsupportedError, PlanError

INFO = "meta/info.json"
FRAME_KEYS = ("index", "episode_index", "frame_index", "timestamp", "task_index")
_READERS = 8
_V3, _V2 = frozenset({"v3.0"}), frozenset({"v2.0", "v2.1"})
_SMALL_JSON = 64 << 20

Episodes = tuple[int, int]
Of = TypeVar("Of")
To = TypeVar("To")


@dataclass(frozen=True, slots=True)
class _Piece:
    """One mp4 and what is wanted of it; no windows: all of it."""

    path: str
    windows: tuple[Window, ...]


class LerobotFiles:
    """One dataset folder. Reads `meta/`, footers and index boxes."""

    def __init__(self, origin: Origin, root: str) -> None:
        self._origin = origin
        self._root = root
        self._info = self._read_info()
        self._version = str(self._info.get("codebase_version"))
        if self._version not in _V3 | _V2:
            msg = f"{root}/{INFO} says version {self._version!r}; v3.0, v2.1 and v2.0 can be planned"
            raise FormatUnsupportedError(msg)

    def ranges(self, columns: Sequence[str], episodes: Episodes | None) -> tuple[list[PlannedFile], list[str]]:
        """Files with ranges, and why some of them are whole."""
        wanted, cameras = self._sort_columns(columns)
        files = [planned_file(path, size) for path, size in self._origin.tree(f"{self._root}/meta")]
        loose = [name for name in self._origin.names(self._root) if not name.endswith("/")]
        files += [self._whole(f"{self._root}/{name}") for name in loose]
        chosen = self._data_files(episodes)
        files += self._each(lambda path: self._parquet(path, wanted, episodes), chosen)
        files += self._each(lambda path: self._parquet(path, frozenset(), episodes), self._other_files(chosen))
        notes: list[str] = []
        for file, note in self._each(self._video, [one for key in cameras for one in self._videos(key, episodes)]):
            files.append(file)
            notes += [note] if note else []
        return files, notes

    # what there is

    def _read_info(self) -> dict[str, Any]:
        path = f"{self._root}/{INFO}"
        size = self._origin.size(path)
        if size > _SMALL_JSON:
            msg = f"{path} has {size:,} bytes, too many for what it is"
            raise DataChangedError(msg)
        try:
            info = json.loads(self._origin.read(path, 0, size))
        except ValueError as error:
            msg = f"{path} is no JSON: {error}"
            raise DataChangedError(msg) from error
        if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
            msg = f"{path} lists no features"
            raise DataChangedError(msg)
        return info

    @cached_property
    def _cameras(self) -> tuple[str, ...]:
        features: dict[str, Any] = self._info["features"]
        return tuple(name for name, one in features.items() if isinstance(one, dict) and one.get("dtype") == "video")

    def _sort_columns(self, columns: Sequence[str]) -> tuple[frozenset[str] | None, list[str]]:
        """Frame columns (None: all) and cameras; dots and underscores are the same."""
        if not columns:
            return None, list(self._cameras)
        known = {name.replace(".", "_"): name for name in (*self._info["features"], *FRAME_KEYS)}
        found: list[str] = []
        for column in columns:
            name = known.get(column.replace(".", "_"))
            if name is None:
                raise ColumnUnknownError(column, known.values(), "/".join(self._root.split("/")[-2:]))
            found.append(name)
        frames = frozenset(name for name in found if name not in self._cameras)
        return frames | frozenset(FRAME_KEYS), [name for name in self._cameras if name in found]

    @cached_property
    def _episodes(self) -> dict[str, list[Any]]:
        """The columns of meta/episodes that say where episodes lie (v3)."""
        places = [f"videos/{key}/{part}" for key in self._cameras for part in _VIDEO_PARTS]
        names = ["episode_index", "length", "data/chunk_index", "data/file_index", *places]
        found: dict[str, list[Any]] = {name: [] for name in names}
        for path, _ in self._origin.tree(f"{self._root}/meta/episodes"):
            if path.endswith(".parquet"):
                columns = read_parquet(self._origin, path, names)
                missing = [name for name in names if name not in columns]
                if missing:
                    msg = f"{path} has no column {missing[0]!r}, so nobody can tell where its episodes lie"
                    raise DataChangedError(msg)
                for name in names:
                    if not all(isinstance(value, int | float) and math.isfinite(value) for value in columns[name]):
                        msg = f"{path} has something else than a number in {name!r}"
                        raise DataChangedError(msg)
                    found[name] += columns[name]
        return found

    def _chosen(self, episodes: Episodes | None) -> list[int]:
        """Rows of `_episodes` that are wanted."""
        return [row for row, index in enumerate(self._episodes["episode_index"]) if _is_in(index, episodes)]

    def _data_files(self, episodes: Episodes | None) -> list[str]:
        if self._version in _V2:
            return [self._path("data_path", place) for place in self._v2_episodes(episodes)]
        columns = [self._episodes["data/chunk_index"], self._episodes["data/file_index"]]
        places = sorted({(columns[0][row], columns[1][row]) for row in self._chosen(episodes)})
        self._refuse_nothing(places, episodes)
        return [self._path("data_path", {"chunk_index": chunk, "file_index": file}) for chunk, file in places]

    def _other_files(self, chosen: Sequence[str]) -> list[str]:
        """Readers of v3 open every data file that is there, and look into its footer for the episodes."""
        if self._version in _V2:
            return []
        there = [path for path, _ in self._origin.tree(f"{self._root}/data") if path.endswith(".parquet")]
        return sorted(set(there) - set(chosen))

    def _v2_episodes(self, episodes: Episodes | None) -> list[dict[str, int]]:
        total, chunk = self._number("total_episodes", 0), max(1, self._number("chunks_size", 1000))
        chosen = [index for index in range(total) if _is_in(index, episodes)]
        self._refuse_nothing(chosen, episodes)
        return [{"episode_chunk": index // chunk, "episode_index": index} for index in chosen]

    def _refuse_nothing(self, found: Sequence[Any], episodes: Episodes | None) -> None:
        if not found:
            what = (
                "it has no episode" if episodes is None else f"episodes {episodes[0]}:{episodes[1]} select none of its"
            )
            total = self._info.get("total_episodes")
            msg = f"{self._root}: {what}{f' {total} episodes' if episodes else ''}"
            raise PlanError(msg)

    def _videos(self, key: str, episodes: Episodes | None) -> Iterator[_Piece]:
        if self._version in _V2:
            for numbers in self._v2_episodes(episodes):
                yield _Piece(self._path("video_path", numbers, key), ())
            return
        chunk, file, start, stop = (self._episodes[f"videos/{key}/{part}"] for part in _VIDEO_PARTS)
        windows: dict[tuple[int, int], list[Window]] = {}
        chosen = set(self._chosen(episodes))
        for row in sorted(chosen):
            # Some writers let an episode end with its last frame, others where the next one begins.
            end = max(stop[row], start[row] + 2 * self._tolerance_s * self._episodes["length"][row])
            windows.setdefault((chunk[row], file[row]), []).append((start[row], end))
        shared = {(chunk[row], file[row]) for row in self._chosen(None) if row not in chosen}
        for place in sorted(windows):
            path = self._path("video_path", {"chunk_index": place[0], "file_index": place[1]}, key)
            yield _Piece(path, tuple(windows[place]) if place in shared else ())

    # ranges

    def _parquet(self, path: str, wanted: frozenset[str] | None, episodes: Episodes | None) -> PlannedFile:
        size = self._origin.size(path)
        file = open_parquet(self._origin, path)
        metadata, names = file.metadata, set(file.schema_arrow.names)
        tops = [_top(metadata.schema.column(column).path, names) for column in range(metadata.num_columns)]
        chunks: list[ByteRange] = []
        needed: list[ByteRange] = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            picked = episodes is None or _may_hold(group, tops, episodes)
            for column, top in enumerate(tops):
                place = _chunk(group.column(column))
                if place.start < 0 or place.end > size or place.end < place.start:
                    msg = f"{path}: a column lies beyond its {size:,} bytes; it may be cut off"
                    raise DataChangedError(msg)
                chunks.append(place)
                if picked and (wanted is None or top in wanted):
                    needed.append(place)
        return planned_file(path, size, [*needed, *_gaps(chunks, size)])

    def _video(self, piece: _Piece) -> tuple[PlannedFile, str | None]:
        if not piece.windows:
            return self._whole(piece.path), None
        return plan_windows(self._origin, piece.path, piece.windows, self._tolerance_s)

    @property
    def _tolerance_s(self) -> float:
        """Half a frame: a picture belongs to the time nearest to it."""
        fps = self._info.get("fps")
        return 0.5 / fps if isinstance(fps, int | float) and fps > 0 else 0.05

    def _whole(self, path: str) -> PlannedFile:
        return planned_file(path, self._origin.size(path))

    @staticmethod
    def _each(function: Callable[[Of], To], wanted: Sequence[Of]) -> Iterator[To]:
        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(function, wanted)

    # paths

    def _path(self, template: str, numbers: Mapping[str, int], key: str = "") -> str:
        """A path by the dataset's own template, which may name nothing but these numbers and the camera."""
        pattern = self._info.get(template)
        if not isinstance(pattern, str):
            msg = f"{self._root}/{INFO} has no {template}"
            raise DataChangedError(msg)

        def fill(match: re.Match[str]) -> str:
            name, width = match[1], int(match[2] or 0)
            if name == "video_key" and key:
                return key
            if name not in numbers:
                msg = f"{self._root}/{INFO}: {template} names {{{name}}}, which {self._version} does not have"
                raise DataChangedError(msg)
            return f"{int(numbers[name]):0{width}d}"

        return inside(self._root, re.sub(r"\{(\w+)(?::0?(\d{1,2})d)?\}", fill, pattern))

    def _number(self, name: str, default: int) -> int:
        value = self._info.get(name, default)
        if not isinstance(value, int) or not 0 <= value <= _MOST_EPISODES:
            msg = f"{self._root}/{INFO}: {name} is {value!r}"
            raise DataChangedError(msg)
        return value


_VIDEO_PARTS = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
_MOST_EPISODES = 10_000_000


def _is_in(index: int, episodes: Episodes | None) -> bool:
    return episodes is None or episodes[0] <= index < episodes[1]


def _top(path: str, names: Iterable[str]) -> str:
    """The column that a leaf of the Parquet schema belongs to; names have dots of their own."""
    return max((name for name in names if path == name or path.startswith(f"{name}.")), key=len, default=path)


def _may_hold(group: Any, tops: Sequence[str], episodes: Episodes) -> bool:
    """Whether a row group holds one of the episodes, by what its footer says; unsure means yes."""
    if "episode_index" not in tops:
        return True
    statistics = group.column(tops.index("episode_index")).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min < episodes[1] and statistics.max >= episodes[0])


def _chunk(column: Any) -> ByteRange:
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    return ByteRange(start, start + column.total_compressed_size)


def _gaps(chunks: Iterable[ByteRange], size: int) -> Iterator[ByteRange]:
    """Everything that is no column chunk."""
    at = 0
    for start, end in merge_ranges(chunks):
        yield ByteRange(at, start)
        at = end
    yield ByteRange(at, size)
