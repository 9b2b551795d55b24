"""The videos table of one version: mp4 files verbatim in blobs, written and read back.

Small files go through memory, the next one read while Lance writes this one; large
ones are streamed by Lance itself, so that memory does not grow with a file.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from forebay.ingest.adapters.decoders import cores
from forebay.ingest.adapters.linked_tables import forget_history, share_table
from forebay.ingest.adapters.mp4_index import Mp4Index, index_mp4
from forebay.ingest.adapters.origins import CHUNK, Origin, blob_digest
from forebay.ingest.adapters.table_streams import add_rows
from forebay.ingest.domain.version_plan import PlannedVideo, VersionPlan
from forebay.ingest.errors import ConversionError, IngestError, ReadBackError
from forebay.runtime.regular_files import open_regular, read_regular

Progress = Callable[[str, int, int], None]
_PLACE = ("video_key", "chunk_index", "file_index")
_IN_MEMORY = 16 << 20
"""Larger files are streamed, at more processor time per byte."""
_WHOLE_FILE = 2
"""Lance's word for a blob that is a file of its own."""


class VersionVideos:
    """The videos of one version, below the folder `draft`."""

    def __init__(self, plan: VersionPlan, origins: Mapping[str, Origin], draft: Path, progress: Progress) -> None:
        self._plan = plan
        self._origins = origins
        self._path = draft / "videos.lance"
        self._progress = progress

    def write(self, go_on: Callable[[], None]) -> None:
        """Write what the version before does not have; `go_on` is called between files, and raises to stop."""
        fields: list[pa.Field[Any]] = [pa.field("video_key", pa.string())]
        fields += [pa.field(name, pa.int64()) for name in ("chunk_index", "file_index", "file_size")]
        fields += [pa.field(name, pa.int64()) for name in ("moov_offset", "moov_size")]
        fields += [pa.field(name, pa.list_(pa.int64())) for name in ("kf_indices", "kf_positions")]
        schema = pa.schema([*fields, lance.blob_field("video_bytes")])
        base = self._plan.base
        if base is not None:
            share_table(self._origins[base.origin].folder / "videos.lance", self._path)
        table = add_rows(self._path, schema, self._batches(schema, len(self._shared()), go_on))
        unused = self._unused()
        if unused:
            table.delete(" OR ".join(unused))
        if self._plan.videos:
            table.create_scalar_index("video_key", "BITMAP", replace=True)
        forget_history(table)

    def _shared(self) -> list[PlannedVideo]:
        base = self._plan.base
        return [video for video in self._plan.videos if base is not None and video.origin == base.origin]

    def _unused(self) -> list[str]:
        base = self._plan.base
        if base is None or base.kept is None:
            return []
        unused = base.kept.places.keys() - {video.path for video in self._shared()}
        return [_where(*base.kept.places[path]) for path in sorted(unused)]

    def _batches(self, schema: pa.Schema, shared: int, go_on: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        for number, (video, (index, content)) in enumerate(self._loaded(self._plan.videos[shared:]), shared + 1):
            go_on()
            values: list[Any] = [video.camera, video.chunk, video.file, index.size, index.moov_offset, index.moov_size]
            columns = [pa.array([value], type=schema.field(at).type) for at, value in enumerate(values)]
            columns += [
                pa.array([list(part)], pa.list_(pa.int64())) for part in (index.key_frames, index.key_positions)
            ]
            yield pa.RecordBatch.from_arrays([*columns, lance.blob_array([content])], schema=schema)
            self._progress("videos", number, len(self._plan.videos))

    def _loaded(self, videos: Sequence[PlannedVideo]) -> Iterator[tuple[PlannedVideo, tuple[Mp4Index, bytes | str]]]:
        """Each video with its index and bytes, or its URI when it is large."""

        def load(video: PlannedVideo) -> tuple[Mp4Index, bytes | str]:
            path = self._origins[video.origin].video(video.path)
            index = index_mp4(path, self._plan.info.fps)
            return index, read_regular(path) if index.size <= _IN_MEMORY else path.absolute().as_uri()

        coming: deque[Future[tuple[Mp4Index, bytes | str]]] = deque()
        with ThreadPoolExecutor(1) as loader:
            for number, video in enumerate(videos):
                if not coming:
                    coming.append(loader.submit(load, video))
                loaded = coming.popleft().result()
                coming.extend(loader.submit(load, following) for following in videos[number + 1 : number + 2])
                yield video, loaded

    def compare(self, go_on: Callable[[], None]) -> dict[Path, str]:
        """Read every new video back; raises `ReadBackError`.

        Returns the digests of files below the table that are one video each and nothing else.
        """
        table = lance.dataset(str(self._path))
        stored = [tuple(row[name] for name in _PLACE) for row in table.to_table(columns=list(_PLACE)).to_pylist()]
        if stored != [(video.camera, video.chunk, video.file) for video in self._plan.videos]:
            msg = "the videos table does not list the files that were written"
            raise ReadBackError(msg)
        shared = len(self._shared())
        written = self._plan.videos[shared:]
        files = _blob_files(self._path, table)[shared:]
        known: dict[Path, str] = {}

        def read(number: int) -> tuple[str, bool]:
            go_on()
            return _digest_beside(table, shared + number, files[number])

        with ThreadPoolExecutor(cores()) as readers:
            found = readers.map(read, range(len(written)))
            for video, file, (digest, same) in zip(written, files, found, strict=True):
                if digest != video.sha256:
                    raise self._other_bytes(video, digest)
                if file is not None and same:
                    known[file] = digest
        return known

    def _other_bytes(self, video: PlannedVideo, stored: str) -> IngestError:
        """Who is to blame: the source, when it is not what was announced, else what was written."""
        path = self._origins[video.origin].video(video.path)
        with open_regular(path) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == stored:
                return ConversionError(f"{path} is not the file that was announced; upload it again")
        return ReadBackError(f"{video.path} was read back with other bytes than were uploaded")


def _blob_files(path: Path, table: Any) -> list[Path | None]:
    """For each row the file that should be its blob and nothing else."""
    blobs = table.to_table(columns=["video_bytes"])["video_bytes"].to_pylist()
    folders: list[Path] = []
    for fragment in table.get_fragments():
        stem = Path(fragment.data_files()[0].path).stem
        folders += [path / "data" / stem] * fragment.count_rows()
    return [
        folder / (format(blob["blob_id"], "032b")[::-1] + ".blob") if blob["kind"] == _WHOLE_FILE else None
        for folder, blob in zip(folders, blobs, strict=True)
    ]


def _digest_beside(table: Any, row: int, file: Path | None) -> tuple[str, bool]:
    """SHA-256 of one video, read through the call that trainers use; and whether `file` is the same bytes."""
    if file is None or not file.is_file():
        return blob_digest(table, row), False
    digest, same = hashlib.sha256(), True
    with table.take_blobs("video_bytes", indices=[row])[0] as blob, open_regular(file) as beside:
        while chunk := blob.read(CHUNK):
            digest.update(chunk)
            same = same and beside.read(CHUNK) == chunk
        same = same and not beside.read(1)
    return digest.hexdigest(), same


def _where(camera: str, chunk: int, file: int) -> str:
    quoted = camera.replace("'", "''")
    return f"(video_key = '{quoted}' AND chunk_index = {chunk} AND file_index = {file})"
