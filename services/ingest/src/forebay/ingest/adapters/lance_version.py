"""A dataset version as a root of its own, in the layout that LeRobot's Lance reader opens.

    <root>/meta/           info.json (storage_format "lance"), episodes, tasks, stats
    <root>/frames.lance    row N is frame N; names without dots, vectors of fixed width
    <root>/videos.lance    one row per mp4, its bytes verbatim in a blob
    <root>/meta.lance      meta/ once more, for readers of remote roots
    <root>/episodes.json   the stable episode ids behind the dense indices
    <root>/forebay-manifest.json   size and digest of every other file

Each version is written as tables of its own. Growing tables with shallow clones as
roots store less, but a clone carries absolute paths and lives only as long as a
lease tag on the table it was cloned from; that comes with deriving and appending
versions, which need it.

Everything is written to a hidden folder beside the final place, read back and
compared with the upload bit by bit, and only then renamed. So a root that has its
name is complete and verified, and a crash leaves at most a hidden folder, which the
next run removes. Rows stream through; of videos one file at a time is in memory.
Pixels of episodes that were left out stay inside shared mp4 files; the time windows
in meta/episodes select.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import lance
import pyarrow as pa

from forebay.contracts.body import FileRef
from forebay.contracts.identifiers import canonical_json
from forebay.contracts.v1.datasets import MANIFEST_FILE
from forebay.ingest.adapters import lerobot_meta
from forebay.ingest.adapters.episode_rows import EpisodeRows
from forebay.ingest.adapters.frame_batches import FrameBuilder, Rows, compare_rows, frame_columns, frame_schema
from forebay.ingest.adapters.mp4_index import index_mp4
from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.domain.version_plan import PlannedEpisode, PlannedVideo, VersionPlan
from forebay.ingest.errors import ConversionError, IngestError, ReadBackError

EPISODES_FILE = "episodes.json"
FORMAT = "lerobot-v3.0-lance"
_STORAGE_VERSION: Literal["2.2"] = "2.2"
"""The first file version with blobs as LeRobot's reader expects them."""
_CHUNK = 1 << 20
_READ_ROWS = 4096
_READ_BUFFER = 64 << 20
"""Lance reads ahead up to 2 GB when it is not told otherwise."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedVersion:
    """A version root that exists, complete and verified."""

    root: Path
    tables: dict[str, int]
    episodes: FileRef
    manifest: FileRef
    bytes: int
    format: str = FORMAT
    adopted: bool
    """True when an earlier run had written it already."""


def commit_version(
    plan: VersionPlan,
    landings: Mapping[str, Path],
    root: Path,
    progress: Progress,
    check_point: Callable[[str], None] = lambda _: None,
) -> CommittedVersion:
    """Write, read back, and give the root its name. Safe to run again after a crash at any point.

    `landings` has the folder of each upload. `check_point` is called between steps,
    so that tests can stop there.
    """
    if root.exists():
        return _adopt(plan, root)
    root.parent.mkdir(parents=True, exist_ok=True)
    for leftover in root.parent.glob(f".{root.name}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft = root.parent / f".{root.name}.{uuid.uuid4().hex[:8]}"
    writer = _Writer(plan, landings, draft, progress)
    try:
        writer.write(check_point)
        writer.read_back()
        check_point("compared")
        writer.seal()
        check_point("sealed")
        _rename(draft, root)
    except FileExistsError:
        return _adopt(plan, root)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _describe(root, adopted=False)


def _rename(draft: Path, root: Path) -> None:
    try:
        draft.rename(root)
    except OSError as error:
        if root.exists():
            raise FileExistsError(root) from error
        raise
    _sync(root.parent)


def _adopt(plan: VersionPlan, root: Path) -> CommittedVersion:
    """Take over a root that an earlier run finished; its content must be the planned one and undamaged."""
    try:
        content = json.loads((root / EPISODES_FILE).read_bytes())["content"]
        manifest = json.loads((root / MANIFEST_FILE).read_bytes())["files"]
        broken = [entry["path"] for entry in manifest if _digest(root / entry["path"])[0] != entry["sha256"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{root} exists but is no finished version ({error}); move it away, then retry"
        raise ConversionError(msg) from error
    if content != plan.digest:
        msg = f"{root} exists with other content than these episodes give; move it away, then retry"
        raise ConversionError(msg)
    if broken:
        msg = f"{root} exists but {broken[0]} is damaged; move the folder away, then retry"
        raise ConversionError(msg)
    return _describe(root, adopted=True)


def _describe(root: Path, *, adopted: bool) -> CommittedVersion:
    entries = json.loads((root / MANIFEST_FILE).read_bytes())["files"]
    return CommittedVersion(
        root=root,
        tables={path.stem: int(lance.dataset(str(path)).version) for path in sorted(root.glob("*.lance"))},
        episodes=_reference(root / EPISODES_FILE),
        manifest=_reference(root / MANIFEST_FILE),
        bytes=sum(int(entry["bytes"]) for entry in entries),
        adopted=adopted,
    )


def _reference(path: Path) -> FileRef:
    digest, size = _digest(path)
    return FileRef(uri=path.as_uri(), sha256=digest, bytes=size)


def _digest(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def _sync(path: Path) -> None:
    """Make a file or folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Writer:
    def __init__(self, plan: VersionPlan, landings: Mapping[str, Path], draft: Path, progress: Progress) -> None:
        self._plan = plan
        self._landings = landings
        self._draft = draft
        self._progress = progress
        self._meta = draft / "meta"
        self._schema = self._frame_schema()

    def _frame_schema(self) -> pa.Schema:
        first = self._plan.episodes[0].accepted
        with ParquetTable(self._landings[first.upload] / first.declared.data_file) as table:
            return frame_schema(self._plan.info, table.schema)

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
        with lerobot_meta.EpisodeTableWriter(self._meta, self._plan.info) as episodes:
            table = self._create("frames", self._schema, self._frame_batches(episodes))
            episodes.finish()
        table.create_scalar_index("episode_index", "BTREE")
        table.create_scalar_index("task_index", "BITMAP")

    def _create(self, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Any:
        """Stream a table. An error of ours inside the stream comes out as itself, not as Lance's words about it."""
        failures: list[IngestError | OSError] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except (IngestError, OSError) as error:
                failures.append(error)
                raise

        rows = pa.RecordBatchReader.from_batches(schema, watched())
        path = str(self._draft / f"{name}.lance")
        try:
            return lance.write_dataset(rows, path, data_storage_version=_STORAGE_VERSION)
        except (OSError, ValueError, RuntimeError):
            if failures:
                raise failures[0] from None
            raise

    def _frame_batches(self, table: lerobot_meta.EpisodeTableWriter) -> Iterator[pa.RecordBatch]:
        columns = frame_columns(self._plan.info)
        for upload, episodes in self._by_upload():
            source = self._plan.sources[upload]
            cameras = lerobot_meta.camera_statistics(self._landings[upload], source.info)
            numbers = {text: number for number, text in enumerate(self._plan.tasks)}
            tasks = {number: numbers[text] for number, text in source.tasks.items() if text in numbers}
            builder = FrameBuilder(source.info, self._schema, tasks)
            for episode, pieces in self._uploaded(upload, episodes):
                stats, done = lerobot_meta.EpisodeStatistics(), 0
                for piece in pieces:
                    made = builder.build(piece, episode, done)
                    stats.add(made, columns)
                    done += made.num_rows
                    yield made
                if done != episode.length:
                    msg = f"episode {episode.accepted.id} had {episode.length} rows when it was accepted, now {done}"
                    raise ConversionError(msg)
                table.add(episode, {**cameras.get(episode.accepted.declared.index, {}), **stats.describe()})
                self._progress("rows", episode.start + done, self._plan.frames)

    def _by_upload(self) -> Iterator[tuple[str, list[PlannedEpisode]]]:
        for upload in self._plan.sources:
            yield upload, [episode for episode in self._plan.episodes if episode.accepted.upload == upload]

    def _uploaded(
        self, upload: str, episodes: list[PlannedEpisode]
    ) -> Iterator[tuple[PlannedEpisode, Iterator[pa.RecordBatch]]]:
        rows = EpisodeRows(self._landings[upload], self._plan.sources[upload].info)
        for episode in episodes:
            declared = episode.accepted.declared
            yield episode, rows.of(declared.data_file, declared.index)

    def _write_videos(self) -> None:
        fields: list[pa.Field[Any]] = [pa.field("video_key", pa.string())]
        fields += [pa.field(name, pa.int64()) for name in ("chunk_index", "file_index", "file_size")]
        fields += [pa.field(name, pa.int64()) for name in ("moov_offset", "moov_size")]
        fields += [pa.field(name, pa.list_(pa.int64())) for name in ("kf_indices", "kf_positions")]
        schema = pa.schema([*fields, lance.blob_field("video_bytes")])
        table = self._create("videos", schema, self._video_batches(schema))
        if self._plan.videos:
            table.create_scalar_index("video_key", "BITMAP")

    def _video_batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for number, video in enumerate(self._plan.videos):
            path = self._video_path(video)
            index = index_mp4(path, self._plan.info.fps)
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != video.sha256:
                msg = f"{path} is not the file that was announced; upload it again"
                raise ConversionError(msg)
            values: list[Any] = [video.camera, video.chunk, video.file, index.size, index.moov_offset, index.moov_size]
            columns = [pa.array([value], type=schema.field(at).type) for at, value in enumerate(values)]
            columns += [
                pa.array([list(part)], pa.list_(pa.int64())) for part in (index.key_frames, index.key_positions)
            ]
            yield pa.RecordBatch.from_arrays([*columns, lance.blob_array([content])], schema=schema)
            self._progress("videos", number + 1, len(self._plan.videos))

    def _video_path(self, video: PlannedVideo) -> Path:
        return self._landings[video.upload] / video.path

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

        self._create("meta", schema, batches())

    # reading back

    def read_back(self) -> None:
        """Compare everything that was written with what was uploaded; raises `ReadBackError`."""
        self._compare_frames()
        self._compare_videos()
        self._compare_meta()

    def _open(self, name: str) -> Any:
        return lance.dataset(str(self._draft / f"{name}.lance"))

    def _compare_frames(self) -> None:
        table = self._open("frames")
        if table.count_rows() != self._plan.frames:
            msg = f"the frames table has {table.count_rows()} rows, {self._plan.frames} were written"
            raise ReadBackError(msg)
        scanner = table.scanner(
            scan_in_order=True,
            batch_size=_READ_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
            io_buffer_size=_READ_BUFFER,
        )
        stored = Rows(iter(scanner.to_batches()))
        for upload, episodes in self._by_upload():
            source = self._plan.sources[upload]
            for episode, pieces in self._uploaded(upload, episodes):
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
        names = ["video_key", "chunk_index", "file_index"]
        stored = [tuple(row[name] for name in names) for row in table.to_table(columns=names).to_pylist()]
        if stored != [(video.camera, video.chunk, video.file) for video in self._plan.videos]:
            msg = "the videos table does not list the files that were written"
            raise ReadBackError(msg)
        for number, video in enumerate(self._plan.videos):
            digest = hashlib.sha256()
            with table.take_blobs("video_bytes", indices=[number])[0] as blob:
                while chunk := blob.read(_CHUNK):
                    digest.update(chunk)
            if digest.hexdigest() != video.sha256:
                msg = f"{video.path} was read back with other bytes than were uploaded"
                raise ReadBackError(msg)

    def _compare_meta(self) -> None:
        for row in self._open("meta").to_table().to_pylist():
            if (self._meta / row["path"]).read_bytes() != row["data"]:
                msg = f"meta/{row['path']} was read back with other bytes than were written"
                raise ReadBackError(msg)

    # sealing

    def seal(self) -> None:
        """Write the episode list and the manifest, and push everything to the disk."""
        episodes = [
            {
                "episode": episode.accepted.id,
                "index": episode.index,
                "length": episode.length,
                "upload": episode.accepted.upload,
                "source_index": episode.accepted.declared.index,
            }
            for episode in self._plan.episodes
        ]
        document = {"content": self._plan.digest, "episodes": episodes}
        (self._draft / EPISODES_FILE).write_bytes(canonical_json(document))
        entries = []
        for path in sorted(path for path in self._draft.rglob("*") if path.is_file()):
            digest, size = _digest(path)
            entries.append({"path": path.relative_to(self._draft).as_posix(), "sha256": digest, "bytes": size})
            _sync(path)
        entries.sort(key=lambda entry: str(entry["path"]))
        manifest = self._draft / MANIFEST_FILE
        manifest.write_bytes(canonical_json({"files": entries}))
        _sync(manifest)
        for folder in (path for path in self._draft.rglob("*") if path.is_dir()):
            _sync(folder)
        _sync(self._draft)
