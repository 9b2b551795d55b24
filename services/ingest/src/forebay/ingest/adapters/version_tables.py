"""Writes the tables and the `meta/` of one version into a folder, and reads them back.

Tables of the version before are shared as far as they stay as they are: all of its
videos, and all of its rows when every episode keeps its number. Then only what is
new is written and compared bit by bit; what is shared was compared when it was
written, and is the same file. Rows stream through; of videos two files at a time are
in memory: the one that is written and the next.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import lance
import numpy as np
import pyarrow as pa

from forebay.ingest.adapters import lerobot_meta
from forebay.ingest.adapters.decoders import cores
from forebay.ingest.adapters.frame_batches import FrameBuilder, Rows, compare_rows, frame_columns, frame_schema
from forebay.ingest.adapters.kept_statistics import kept_statistics
from forebay.ingest.adapters.linked_tables import forget_history, share_table
from forebay.ingest.adapters.mp4_index import Mp4Index, index_mp4
from forebay.ingest.adapters.origins import Origin, blob_digest, ordered_batches
from forebay.ingest.domain.recording import RENUMBERED
from forebay.ingest.domain.statistics import Statistics
from forebay.ingest.domain.version_plan import PlannedEpisode, PlannedVideo, Source, VersionPlan
from forebay.ingest.errors import ConversionError, IngestError, ReadBackError

Progress = Callable[[str, int, int], None]
_STORAGE_VERSION: Literal["2.2"] = "2.2"
"""The first file version with blobs as LeRobot's reader expects them."""
_PLACE = ("video_key", "chunk_index", "file_index")


class VersionTables:
    """The tables of one version in a folder of its own."""

    def __init__(self, plan: VersionPlan, origins: Mapping[str, Origin], draft: Path, progress: Progress) -> None:
        self._plan = plan
        self._origins = origins
        self._draft = draft
        self._progress = progress
        self._meta = draft / "meta"
        first = plan.episodes[0].accepted
        self._schema = frame_schema(plan.info, origins[first.origin].schema(first.declared.data_file))

    # writing

    def write(self, check_point: Callable[[str], None]) -> None:
        self._meta.mkdir(parents=True)
        lerobot_meta.write_info(self._meta, self._plan)
        lerobot_meta.write_tasks(self._meta, self._plan.tasks)
        self._write_frames()
        check_point("frames")
        self._write_videos()
        check_point("videos")
        self._write_meta_table()
        check_point("written")

    def _write_frames(self) -> None:
        base = self._plan.base if self._plan.appends else None
        with lerobot_meta.EpisodeTableWriter(self._meta, self._plan.info) as episodes:
            if base is not None:
                share_table(self._origins[base.origin].folder / "frames.lance", self._path("frames"))
                self._take_over(base, episodes)
            table = self._add("frames", self._schema, self._frame_batches(episodes, self._new_sources()))
            episodes.finish()
        table.create_scalar_index("episode_index", "BTREE", replace=True)
        table.create_scalar_index("task_index", "BITMAP", replace=True)
        forget_history(table)

    def _new_sources(self) -> list[Source]:
        """Whose rows are written; the others' are shared."""
        base = self._plan.base if self._plan.appends else None
        return [source for source in self._plan.sources.values() if source is not base]

    def _take_over(self, source: Source, table: lerobot_meta.EpisodeTableWriter) -> None:
        stats = kept_statistics(self._origins[source.origin].folder, source.info)
        for episode in self._plan.of(source.origin):
            table.add(episode, _seek(stats, episode))

    def _path(self, name: str) -> Path:
        return self._draft / f"{name}.lance"

    def _add(self, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Any:
        """Stream into a table. An error of ours inside the stream comes out as itself, not as Lance's words about it."""
        failures: list[IngestError | OSError] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except (IngestError, OSError) as error:
                failures.append(error)
                raise

        path = self._path(name)
        mode: Literal["append", "create"] = "append" if path.exists() else "create"
        rows = pa.RecordBatchReader.from_batches(schema, watched())
        try:
            return lance.write_dataset(rows, str(path), mode=mode, data_storage_version=_STORAGE_VERSION)
        except (OSError, ValueError, RuntimeError):
            if failures:
                raise failures[0] from None
            raise

    def _frame_batches(
        self, table: lerobot_meta.EpisodeTableWriter, sources: Iterable[Source]
    ) -> Iterator[pa.RecordBatch]:
        columns = frame_columns(self._plan.info)
        numbers = {text: number for number, text in enumerate(self._plan.tasks)}
        for source in sources:
            origin = self._origins[source.origin]
            kept = kept_statistics(origin.folder, source.info) if source.version else None
            described = [pair for pair in columns if kept is None or pair[0] in RENUMBERED]
            cameras = {} if kept is not None else lerobot_meta.camera_statistics(origin.folder, source.info)
            tasks = {number: numbers[text] for number, text in source.tasks.items() if text in numbers}
            builder = FrameBuilder(source.info, self._schema, tasks)
            for episode, pieces in origin.rows(source.info, self._plan.of(source.origin)):
                stats, done = lerobot_meta.EpisodeStatistics(), 0
                for piece in pieces:
                    made = builder.build(piece, episode, done)
                    stats.add(made, described)
                    done += made.num_rows
                    yield made
                if done != episode.length:
                    msg = f"episode {episode.accepted.id} had {episode.length} rows when it was accepted, now {done}"
                    raise ConversionError(msg)
                before = cameras.get(episode.accepted.declared.index, {}) if kept is None else _seek(kept, episode)
                table.add(episode, {**before, **stats.describe()})
                self._progress("rows", episode.start + done, self._plan.frames)

    def _write_videos(self) -> None:
        fields: list[pa.Field[Any]] = [pa.field("video_key", pa.string())]
        fields += [pa.field(name, pa.int64()) for name in ("chunk_index", "file_index", "file_size")]
        fields += [pa.field(name, pa.int64()) for name in ("moov_offset", "moov_size")]
        fields += [pa.field(name, pa.list_(pa.int64())) for name in ("kf_indices", "kf_positions")]
        schema = pa.schema([*fields, lance.blob_field("video_bytes")])
        base = self._plan.base
        if base is not None:
            share_table(self._origins[base.origin].folder / "videos.lance", self._path("videos"))
        table = self._add("videos", schema, self._video_batches(schema, len(self._shared_videos())))
        unused = self._unused_videos()
        if unused:
            table.delete(" OR ".join(unused))
        if self._plan.videos:
            table.create_scalar_index("video_key", "BITMAP", replace=True)
        forget_history(table)

    def _shared_videos(self) -> list[PlannedVideo]:
        base = self._plan.base
        return [video for video in self._plan.videos if base is not None and video.origin == base.origin]

    def _unused_videos(self) -> list[str]:
        base = self._plan.base
        if base is None or base.kept is None:
            return []
        unused = base.kept.places.keys() - {video.path for video in self._shared_videos()}
        return [_where(*base.kept.places[path]) for path in sorted(unused)]

    def _video_batches(self, schema: pa.Schema, shared: int) -> Iterator[pa.RecordBatch]:
        for number, (video, (index, content)) in enumerate(self._loaded(self._plan.videos[shared:]), shared + 1):
            values: list[Any] = [video.camera, video.chunk, video.file, index.size, index.moov_offset, index.moov_size]
            columns = [pa.array([value], type=schema.field(at).type) for at, value in enumerate(values)]
            columns += [
                pa.array([list(part)], pa.list_(pa.int64())) for part in (index.key_frames, index.key_positions)
            ]
            yield pa.RecordBatch.from_arrays([*columns, lance.blob_array([content])], schema=schema)
            self._progress("videos", number, len(self._plan.videos))

    def _loaded(self, videos: Sequence[PlannedVideo]) -> Iterator[tuple[PlannedVideo, tuple[Mp4Index, bytes]]]:
        """Each video with its index and bytes; the next one is loaded while Lance writes this one."""

        def load(video: PlannedVideo) -> tuple[Mp4Index, bytes]:
            path = self._origins[video.origin].video(video.path)
            return index_mp4(path, self._plan.info.fps), path.read_bytes()

        coming: deque[Future[tuple[Mp4Index, bytes]]] = deque()
        with ThreadPoolExecutor(1) as loader:
            for number, video in enumerate(videos):
                if not coming:
                    coming.append(loader.submit(load, video))
                loaded = coming.popleft().result()
                coming.extend(loader.submit(load, following) for following in videos[number + 1 : number + 2])
                yield video, loaded

    def _write_meta_table(self) -> None:
        files = sorted(path for path in self._meta.rglob("*") if path.is_file())
        fields: list[pa.Field[Any]] = [pa.field("path", pa.string()), pa.field("data", pa.large_binary())]
        schema = pa.schema(fields)

        def batches() -> Iterator[pa.RecordBatch]:
            for path in files:
                columns: list[Any] = [
                    pa.array([path.relative_to(self._meta).as_posix()]),
                    pa.array([path.read_bytes()], pa.large_binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        self._add("meta", schema, batches())

    # reading back

    def read_back(self) -> None:
        """Compare everything that was written with where it came from; raises `ReadBackError`."""
        self._compare_numbers()
        self._compare_frames()
        self._compare_videos()
        self._compare_meta()

    def _open(self, name: str) -> Any:
        return lance.dataset(str(self._path(name)))

    def _compare_numbers(self) -> None:
        """Every row of the table, shared ones too, carries its dense numbers."""
        table = self._open("frames")
        if table.count_rows() != self._plan.frames:
            msg = f"the frames table has {table.count_rows()} rows, {self._plan.frames} were written"
            raise ReadBackError(msg)
        ends = np.cumsum([episode.length for episode in self._plan.episodes])
        done = 0
        for batch in ordered_batches(table, columns=["index", "episode_index"]):
            rows = np.arange(done, done + batch.num_rows)
            episodes = np.searchsorted(ends, rows, side="right")
            if not (
                np.array_equal(batch.column("index").to_numpy(), rows)
                and np.array_equal(batch.column("episode_index").to_numpy(), episodes)
            ):
                msg = f"the frames table has other numbers than were written near row {done}"
                raise ReadBackError(msg)
            done += batch.num_rows

    def _compare_frames(self) -> None:
        sources = self._new_sources()
        start = self._plan.of(sources[0].origin)[0].start if sources else self._plan.frames
        stored = Rows(ordered_batches(self._open("frames"), start) if sources else iter(()))
        for source in sources:
            for episode, pieces in self._origins[source.origin].rows(source.info, self._plan.of(source.origin)):
                done = 0
                for piece in pieces:
                    rows = stored.take(piece.num_rows)
                    compare_rows(
                        piece,
                        rows,
                        episode=episode,
                        done=done,
                        info=source.info,
                        texts=dict(source.tasks),
                        tasks=self._plan.tasks,
                    )
                    done += piece.num_rows
                if done != episode.length:
                    msg = f"episode {episode.accepted.id}: {done} rows were read back, expected {episode.length}"
                    raise ReadBackError(msg)
                self._progress("compared", episode.start + done, self._plan.frames)
        if not stored.ended:
            msg = "the frames table has rows that nobody wrote"
            raise ReadBackError(msg)

    def _compare_videos(self) -> None:
        table = self._open("videos")
        stored = [tuple(row[name] for name in _PLACE) for row in table.to_table(columns=list(_PLACE)).to_pylist()]
        if stored != [(video.camera, video.chunk, video.file) for video in self._plan.videos]:
            msg = "the videos table does not list the files that were written"
            raise ReadBackError(msg)
        shared = len(self._shared_videos())
        written = self._plan.videos[shared:]
        with ThreadPoolExecutor(cores()) as readers:
            digests = readers.map(lambda number: blob_digest(table, number), range(shared, len(self._plan.videos)))
            for video, digest in zip(written, digests, strict=True):
                if digest != video.sha256:
                    raise self._other_bytes(video, digest)

    def _other_bytes(self, video: PlannedVideo, stored: str) -> IngestError:
        """Who is to blame: the source, when it is not what was announced, else what was written."""
        path = self._origins[video.origin].video(video.path)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == stored:
                return ConversionError(f"{path} is not the file that was announced; upload it again")
        return ReadBackError(f"{video.path} was read back with other bytes than were uploaded")

    def _compare_meta(self) -> None:
        for row in self._open("meta").to_table().to_pylist():
            if (self._meta / row["path"]).read_bytes() != row["data"]:
                msg = f"meta/{row['path']} was read back with other bytes than were written"
                raise ReadBackError(msg)
        place = 0
        for stored, episode in zip(lerobot_meta.episode_ranges(self._meta), self._plan.episodes, strict=True):
            if stored != (place, place + episode.length):
                msg = f"meta/episodes puts episode {episode.index} at rows {stored}, its rows start at {place}"
                raise ReadBackError(msg)
            place += episode.length


def _where(camera: str, chunk: int, file: int) -> str:
    quoted = camera.replace("'", "''")
    return f"(video_key = '{quoted}' AND chunk_index = {chunk} AND file_index = {file})"


def _seek(stats: Iterator[tuple[int, dict[str, Statistics]]], episode: PlannedEpisode) -> dict[str, Statistics]:
    """Statistics of one episode of an earlier version; episodes are asked for in their order."""
    wanted = episode.accepted.declared.index
    for index, found in stats:
        if index == wanted:
            return found
        if index > wanted:
            break
    msg = f"the version before lists no statistics of its episode {wanted}, so it is damaged"
    raise ConversionError(msg)
