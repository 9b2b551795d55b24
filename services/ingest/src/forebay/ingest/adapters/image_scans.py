"""Cameras whose pictures stand in the data files, one encoded picture per row: each is decoded.

Runs inside a decoder. A picture is a struct of `bytes` and `path`, or the bytes alone;
PNG, JPEG, WebP, TIFF and BMP are known by their first bytes. Nothing is read but the
data file: a path that stands there instead of bytes is told, never followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.adapters.picture_cells import CellBatches
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, printable
from forebay.ingest.domain.pictures import EpisodePictures, PictureWatch
from forebay.ingest.domain.recording import Feature, Info

_ROWS = 256
_MAX_SIDE = 16_384
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "png", b"IEND"),
    (b"\xff\xd8\xff", "mjpeg", b"\xff\xd9"),
    (b"RIFF", "webp", b""),
    (b"II*\x00", "tiff", b""),
    (b"MM\x00*", "tiff", b""),
    (b"BM", "bmp", b""),
)
"""First bytes, decoder, and what stands near the end of a whole file."""
_TAIL = 64
_OPTIONS = {"err_detect": "crccheck+explode", "max_pixels": str(_MAX_SIDE * _MAX_SIDE)}
_TIFF_OPTIONS = {"max_pixels": _OPTIONS["max_pixels"]}
"""TIFF has no checksums, and the strict mode stops at tags that FFmpeg does not know."""

Column = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageScan:
    """What the pictures of one data file gave."""

    pictures: tuple[EpisodePictures, ...]
    breaches: list[Breach]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """One camera in one episode."""

    watch: PictureWatch
    batches: CellBatches
    frames: int = 0
    wrong: list[tuple[int, str]] = field(default_factory=list)
    """Frame and what is wrong with its picture."""
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Height and width -> the first frame that has them."""


def scan_images(info: Info, path: Path, name: str, report: Callable[[int], None]) -> ImageScan:
    """Decode every picture of the data file; raises `UnreadableFileError` when the file itself breaks."""
    seen: dict[tuple[int, str], _Seen] = {}
    with ParquetTable(path) as table:
        cameras = [camera for camera in info.image_cameras if camera.key in table.schema.names]
        columns = ["episode_index", *(camera.key for camera in cameras)]
        for batch in table.blocks(columns, _ROWS):
            episodes = batch.column("episode_index").to_numpy(zero_copy_only=False)
            cuts = [0, *(int(cut) for cut in np.flatnonzero(np.diff(episodes)) + 1), batch.num_rows]
            for camera in cameras:
                stored = list(_bytes_of(batch.column(camera.key)))
                for start, stop in pairwise(cuts):
                    key = (int(episodes[start]), camera.key)
                    if key not in seen:
                        seen[key] = _new(key, name)
                    for content in stored[start:stop]:
                        _take(seen[key], content)
                report(batch.num_rows)
    found: list[Breach] = []
    pictures: list[EpisodePictures] = []
    wanted = {camera.key: camera for camera in info.image_cameras}
    for (episode, camera_key), one in seen.items():
        one.batches.flush()
        pictures += one.watch.finish()
        found += _breaches(one, episode, wanted[camera_key], name)
    return ImageScan(pictures=tuple(pictures), breaches=found)


def _new(key: tuple[int, str], name: str) -> _Seen:
    one = EpisodePictures(episode=key[0], camera=key[1], file=name, start=0.0, stop=math.inf)
    watch = PictureWatch([one], 1.0)
    return _Seen(watch=watch, batches=CellBatches(watch.take, lossless=True))


def _bytes_of(column: Column) -> Iterator[bytes | None]:
    """The encoded pictures, one at a time; None where there are no bytes."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    return (value.as_py() for value in column)


def _take(seen: _Seen, content: bytes | None) -> None:
    number = seen.frames
    seen.frames += 1
    if not content:
        seen.wrong.append((number, "has no bytes"))
        return
    try:
        frame = _decode(content)
        seen.sizes.setdefault((frame.height, frame.width), number)
        seen.batches.add(frame, float(number))
    except (av.FFmpegError, ValueError, OSError, NotImplementedError) as error:
        text = getattr(error, "strerror", None) or str(error)
        seen.wrong.append((number, f"cannot be decoded ({len(content)} bytes, {printable(text, 100)})"))


def _decode(content: bytes) -> av.VideoFrame:
    kind = next(((codec, end) for start, codec, end in _KINDS if content.startswith(start)), None)
    if kind is None:
        msg = "it is no PNG, JPEG, WebP, TIFF or BMP"
        raise ValueError(msg)
    codec, end = kind
    if end and end not in content[-_TAIL:]:
        msg = "it is cut off"
        raise ValueError(msg)
    context: Any = av.CodecContext.create(codec, "r")
    context.thread_count = 1
    context.options = _OPTIONS if codec != "tiff" else _TIFF_OPTIONS
    frames = [*context.decode(av.Packet(content)), *context.decode(None)]
    if not frames:
        msg = "it gives no picture"
        raise ValueError(msg)
    return frames[0]  # type: ignore[no-any-return] # the context is one of video


def _breaches(seen: _Seen, episode: int, camera: Feature, name: str) -> Iterator[Breach]:
    if seen.wrong:
        frame, what = seen.wrong[0]
        yield Breach(
            rule=rules.IMAGE_UNREADABLE,
            episodes=(episode,),
            feature=camera.key,
            file=name,
            frame=frame,
            expected="a picture in every row",
            found=f"{len(seen.wrong)} of {seen.frames} pictures cannot be used",
            message=f"episode {episode}, frame {frame}: the picture of {camera.key} {what}"
            f" ({len(seen.wrong)} such pictures in the episode; {name})",
        )
    declared = camera.shape
    for (height, width), frame in seen.sizes.items():
        if (height, width) in {declared[:2], declared[1:]} or len(declared) < 2:
            continue
        yield Breach(
            rule=rules.PICTURE_SIZE,
            episodes=(episode,),
            feature=camera.key,
            file=name,
            frame=frame,
            expected=f"{list(declared)}",
            found=f"{height} x {width}",
            message=f"episode {episode}, frame {frame}: {camera.key} is declared {list(declared)},"
            f" the picture has height {height} and width {width}",
        )
        return
