"""Writes the tables and the `meta/` of one version into a folder, and reads them back.

Tables of the version before are shared as far as they stay as they are: all of its
videos, and all of its rows when every episode keeps its number. Then only what is
new is written and compared bit by bit; what is shared was compared when it was
written, and is the same file. Rows and videos are worked on side by side; both
stream through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import lance
import numpy as np
import pyarrow as pa

from forebay.ingest.adapters import lerobot_meta
from forebay.ingest.adapters.frame_batches import (
    FrameBuilder,
    Meaning,
    Rows,
    compare_rows,
    frame_columns,
    frame_schema,
    task_numbers,
)
from forebay.ingest.adapters.kept_statistics import kept_statistics
from forebay.ingest.adapters.linked_tables import forget_history, share_table
from forebay.ingest.adapters.origins import Origin, ordered_batches
from forebay.ingest.adapters.table_streams import add_rows
from forebay.ingest.adapters.version_meaning import compare_meanings, read_back_tasks, version_fields, write_carried
from forebay.ingest.adapters.version_videos import Progress, VersionVideos
from forebay.ingest.domain.breach import listed
from forebay.ingest.domain.recording import RENUMBERED
from forebay.ingest.domain.statistics import Statistics
from forebay.ingest.domain.version_plan import PlannedEpisode, Source, VersionPlan
from forebay.ingest.errors import ConversionError, IngestError, ReadBackError
from forebay.runtime.regular_files import read_regular

T = TypeVar("T")
_LARGEST_COPY = 64 << 20
"""Bytes of a file of meta/ that is also kept in meta.lance."""


class _StoppedError(IngestError):
    """The other half of the work failed."""


class VersionTables:
    """The tables of one version in a folder of its own."""

    def __init__(self, plan: VersionPlan, origins: Mapping[str, Origin], draft: Path, progress: Progress) -> None:
        self._plan = plan
        self._origins = origins
        self._draft = draft
        self._progress = progress
        self._meta = draft / "meta"
        self._videos = VersionVideos(plan, origins, draft, progress)
        self._failed = threading.Event()
        self._unsummed: tuple[str, ...] = ()
        """Features without statistics of the whole, because some episode has none."""
        self._undeclared: dict[str, None] = {}
        self._fields_left_out: tuple[str, ...] = ()
        self._schema = frame_schema(plan.info, self._stored())

    def _stored(self) -> Iterator[pa.Schema]:
        """How the columns are stored where they come from; a table that grows keeps its own types."""
        for source in self._plan.sources.values():
            origin = self._origins[source.origin]
            for file in dict.fromkeys(e.accepted.declared.data_file for e in self._plan.of(source.origin)):
                schema = origin.schema(file)
                declared = {feature.key for feature in source.info.features}
                self._undeclared |= dict.fromkeys(
                    n for n in schema.names if n not in declared and not n.startswith("__")
                )
                yield schema
                if source.version:
                    break
            if self._plan.appends:
                return

    @property
    def left_out(self) -> list[str]:
        """What of the origins the version does not hold, beside what the plan says."""
        found = []
        if self._undeclared:
            found.append(f"columns that info.json does not declare are left out: {listed([*self._undeclared])}")
        odd = [name for name in self._fields_left_out if name]
        if odd:
            found.append(f"fields of the episode table that describe no feature are left out: {listed(odd)}")
        if self._unsummed:
            found.append(f"stats.json has no statistics of {listed([*self._unsummed])}: not every episode has its own")
        return found

    # writing

    def write(self, check_point: Callable[[str], None]) -> None:
        self._meta.mkdir(parents=True)
        lerobot_meta.write_info(self._meta, self._plan)
        lerobot_meta.write_tasks(self._meta, self._plan)
        write_carried(self._plan, self._origins, self._draft)

        def frames() -> None:
            self._write_frames()
            check_point("frames")

        self._side_by_side(frames, lambda: self._videos.write(self._go_on))
        check_point("videos")
        self._write_meta_table()
        check_point("written")

    def _side_by_side(self, rows: Callable[[], None], videos: Callable[[], T]) -> T:
        """Rows here and videos in a thread, which hardly need the same of the machine. One that fails stops the other."""

        def watched() -> T:
            try:
                return videos()
            except BaseException:
                self._failed.set()
                raise

        with ThreadPoolExecutor(1) as beside:
            answer = beside.submit(watched)
            try:
                rows()
            except _StoppedError:
                pass  # it was the videos that failed: told below
            except BaseException:
                self._failed.set()
                raise
            return answer.result()

    def _go_on(self) -> None:
        if self._failed.is_set():
            raise _StoppedError

    def _write_frames(self) -> None:
        base = self._plan.base if self._plan.appends else None
        fields, self._fields_left_out = version_fields(self._plan, self._origins)
        with lerobot_meta.EpisodeTableWriter(self._meta, self._plan.info, fields) as episodes:
            if base is not None:
                share_table(self._origins[base.origin].folder / "frames.lance", self._path("frames"))
                self._take_over(base, episodes)
            table = add_rows(self._path("frames"), self._schema, self._frame_batches(episodes, self._new_sources()))
            self._unsummed = episodes.finish()
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

    def _frame_batches(
        self, table: lerobot_meta.EpisodeTableWriter, sources: Iterable[Source]
    ) -> Iterator[pa.RecordBatch]:
        columns = frame_columns(self._plan.info)
        for source in sources:
            origin = self._origins[source.origin]
            kept = kept_statistics(origin.folder, source.info) if source.version else None
            described = [pair for pair in columns if kept is None or pair[0] in RENUMBERED]
            cameras = {} if kept is not None else lerobot_meta.camera_statistics(origin.folder, source.info)
            builder = FrameBuilder(source.info, self._schema, task_numbers(source, self._plan.numbers[source.origin]))
            for episode, pieces in origin.rows(source.info, self._plan.of(source.origin)):
                self._go_on()
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

    def _write_meta_table(self) -> None:
        files = sorted(path for path in self._meta.rglob("*") if path.is_file())
        fields: list[pa.Field[Any]] = [pa.field("path", pa.string()), pa.field("data", pa.large_binary())]
        schema = pa.schema(fields)

        def batches() -> Iterator[pa.RecordBatch]:
            for path in files:
                if path.stat().st_size > _LARGEST_COPY:
                    continue  # of tables LeRobot has none as large; what is carried along lies in meta/ itself
                columns: list[Any] = [
                    pa.array([path.relative_to(self._meta).as_posix()]),
                    pa.array([read_regular(path)], pa.large_binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        add_rows(self._path("meta"), schema, batches())

    # reading back

    def read_back(self) -> dict[Path, str]:
        """Compare everything that was written with where it came from; raises `ReadBackError`.

        Returns the digests of files that became known on the way.
        """

        def rows() -> None:
            self._compare_numbers()
            self._compare_frames()

        known = self._side_by_side(rows, lambda: self._videos.compare(self._go_on))
        self._compare_meta()
        return known

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
        tasks = read_back_tasks(self._draft)
        for source in sources:
            numbers = task_numbers(source, self._plan.numbers[source.origin])
            meaning = Meaning(info=source.info, texts=dict(source.tasks), tasks=tasks, mapped=numbers.mapped)
            for episode, pieces in self._origins[source.origin].rows(source.info, self._plan.of(source.origin)):
                self._go_on()
                done = 0
                for piece in pieces:
                    rows = stored.take(piece.num_rows)
                    compare_rows(piece, rows, episode=episode, done=done, meaning=meaning)
                    done += piece.num_rows
                if done != episode.length:
                    msg = f"episode {episode.accepted.id}: {done} rows were read back, expected {episode.length}"
                    raise ReadBackError(msg)
                self._progress("compared", episode.start + done, self._plan.frames)
        if not stored.ended:
            msg = "the frames table has rows that nobody wrote"
            raise ReadBackError(msg)

    def _compare_meta(self) -> None:
        for row in self._open("meta").to_table().to_pylist():
            if read_regular(self._meta / row["path"]) != row["data"]:
                msg = f"meta/{row['path']} was read back with other bytes than were written"
                raise ReadBackError(msg)
        place = 0
        for stored, episode in zip(lerobot_meta.episode_ranges(self._meta), self._plan.episodes, strict=True):
            if stored != (place, place + episode.length):
                msg = f"meta/episodes puts episode {episode.index} at rows {stored}, its rows start at {place}"
                raise ReadBackError(msg)
            place += episode.length
        compare_meanings(self._plan, self._origins, self._draft)


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
