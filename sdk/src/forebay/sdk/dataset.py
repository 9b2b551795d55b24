"""`Dataset`: one pinned version, read by logical names only.

Callers never see a path: the same script runs on a laptop's folder and on a mount
in a cluster, and cannot read bytes that nobody planned and warmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from forebay.sdk.errors import ColumnNotPinnedError, DataUnreadableError
from forebay.sdk.lance_store import FRAMES, LanceFrames, LanceVideos
from forebay.sdk.lerobot_store import LeRobotFrames, LeRobotVideos
from forebay.sdk.metadata import EpisodeMeta, Metadata, read_metadata
from forebay.sdk.stores import FrameStore, VideoStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from forebay.contracts.v1.datasets import PinnedInput
    from forebay.sdk.roots import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode as a reader sees it: its number in this version, its length, its tasks."""

    index: int
    length: int
    tasks: tuple[str, ...]


class Dataset:
    """One version of a dataset, or the part of it that the job pinned."""

    def __init__(
        self,
        *,
        name: str,
        number: int,
        metadata: Metadata,
        frames: FrameStore,
        videos: VideoStore,
        columns: Sequence[str] = (),
        episodes: tuple[int, int] | None = None,
    ) -> None:
        self.name = name
        self.number = number
        self._metadata = metadata
        self._frames = frames
        self._videos = videos
        self._pinned = {_plain(column) for column in columns}
        first, last = episodes or (0, len(metadata.episodes))
        self._episodes = metadata.episodes[first:last]

    def __repr__(self) -> str:
        return f"<Dataset {self.name}@v{self.number}: {len(self._episodes)} episodes, {self.num_frames} frames>"

    @property
    def fps(self) -> float:
        return float(self._metadata.info["fps"])

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that can be read, named as in info.json."""
        return tuple(name for name in self._metadata.columns if not self._pinned or _plain(name) in self._pinned)

    @property
    def cameras(self) -> tuple[str, ...]:
        """Cameras whose video can be read."""
        return tuple(name for name in self._metadata.cameras if not self._pinned or _plain(name) in self._pinned)

    @property
    def episodes(self) -> tuple[Episode, ...]:
        return tuple(Episode(index=e.index, length=e.length, tasks=e.tasks) for e in self._episodes)

    @property
    def num_frames(self) -> int:
        return sum(episode.length for episode in self._episodes)

    def table(self, columns: Iterable[str] | None = None, episodes: Iterable[int] | None = None) -> pa.Table:
        """Read columns of all or some episodes (numbers of this version) as one table, in order."""
        wanted = [self._resolve(name) for name in columns] if columns is not None else list(self.columns)
        parts = [self._frames.read(wanted, start, stop) for start, stop in self._row_ranges(episodes)]
        if not parts:
            msg = f"{self!r} has none of the asked episodes"
            raise DataUnreadableError(msg, "episodes are counted from 0; see Dataset.episodes")
        return pa.concat_tables(parts)

    def numpy(self, column: str, episodes: Iterable[int] | None = None) -> npt.NDArray[np.generic]:
        """Read one column as an array: frames first, then the column's own shape."""
        name = self._resolve(column)
        values: Any = self.table([name], episodes).column(name).combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
        rows, width = len(values), None
        while pa.types.is_fixed_size_list(values.type):
            width = values.type.list_size
            values = values.flatten()
        flat: npt.NDArray[np.generic] = values.to_numpy(zero_copy_only=False)
        return flat if width is None else flat.reshape(rows, -1)

    def video_file(self, camera: str, episode: int) -> tuple[BinaryIO, float, float]:
        """Open the camera's encoded file of an episode, with the episode's first and last second in it."""
        name = self._resolve(camera, self._metadata.cameras, self.cameras, "camera")
        part = self._episode(episode).videos.get(name)
        if part is None:
            msg = f"episode {episode} has no video of camera {name!r}"
            raise DataUnreadableError(msg, "see Dataset.cameras")
        return self._videos.open(name, part.chunk, part.file), part.start, part.stop

    def video_bytes(self, camera: str, episode: int) -> bytes:
        """Read the whole encoded file that holds an episode's video."""
        file, _, _ = self.video_file(camera, episode)
        with file:
            return file.read()

    def _episode(self, index: int) -> EpisodeMeta:
        for episode in self._episodes:
            if episode.index == index:
                return episode
        msg = f"{self!r} has no episode {index}"
        raise DataUnreadableError(msg, "see Dataset.episodes")

    def _row_ranges(self, episodes: Iterable[int] | None) -> list[tuple[int, int]]:
        """Rows to read, neighbouring episodes joined into one range."""
        chosen = self._episodes if episodes is None else [self._episode(index) for index in episodes]
        ranges: list[tuple[int, int]] = []
        for episode in chosen:
            if ranges and ranges[-1][1] == episode.start:
                ranges[-1] = (ranges[-1][0], episode.stop)
            else:
                ranges.append((episode.start, episode.stop))
        return ranges

    def _resolve(
        self,
        name: str,
        known: Sequence[str] | None = None,
        allowed: Sequence[str] | None = None,
        what: str = "column",
    ) -> str:
        """The column's name in info.json for either spelling, when the plan contains it."""
        known = self._metadata.columns if known is None else known
        allowed = self.columns if allowed is None else allowed
        found = next((one for one in known if _plain(one) == _plain(name)), None)
        if found is None:
            msg = f"{self.name}@v{self.number} has no {what} {name!r}; it has {', '.join(known)}"
            raise ColumnNotPinnedError(msg, f"use one of these {what}s")
        if found not in allowed:
            msg = f"{what} {found!r} is not in this job's plan, which has {', '.join(allowed) or f'no {what}'}"
            raise ColumnNotPinnedError(msg, "add it to `columns:` of the job's dataset and submit again")
        return found


def _plain(name: str) -> str:
    """Dots and underscores are the same name: Lance tables cannot have dots."""
    return name.replace(".", "_")


def open_pinned(pinned: PinnedInput, root: Root) -> Dataset:
    """Open the version that a job pinned, with the part of it that the job declared."""
    return open_root(
        root,
        name=pinned.name,
        number=pinned.number,
        columns=pinned.columns,
        episodes=pinned.episodes,
    )


def open_root(
    root: Root,
    *,
    name: str,
    number: int,
    columns: Sequence[str] = (),
    episodes: tuple[int, int] | None = None,
) -> Dataset:
    """Open a version root, whichever way its tables are stored."""
    metadata = read_metadata(root)
    lance = root.has_table(FRAMES)
    frames: FrameStore = LanceFrames(root) if lance else LeRobotFrames(root, metadata)
    videos: VideoStore = LanceVideos(root) if lance else LeRobotVideos(root, metadata)
    return Dataset(
        name=name,
        number=number,
        metadata=metadata,
        frames=frames,
        videos=videos,
        columns=columns,
        episodes=episodes,
    )
