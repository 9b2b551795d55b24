"""Encodes chosen spans of a version's video into a new file, so that nothing else of it is left.

What was encoded is decoded again and compared with the source picture by picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import lance
import numpy as np

from forebay.ingest.errors import ConversionError, ReadBackError

_WORST_DIFFERENCE = 16.0
"""Mean difference of brightness, out of 255, above which a picture is another picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How videos are encoded anew. Every second picture is a key frame, because readers jump."""

    crf: int = 18
    encoder: str = "libx264"
    codec: str = "h264"
    pixels: str = "yuv420p"
    key_frame_every: int = 2
    preset: str = "medium"

    def describe(self) -> str:
        """For the record."""
        return f"{self.encoder} crf {self.crf}, preset {self.preset}, {self.pixels}, key frame every {self.key_frame_every}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """One video of a version, by its row."""

    root: Path
    camera: str
    chunk: int
    file: int
    fps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The frames of one episode in a video file."""

    episode: int
    start: float
    frames: int


def cut_video(film: Film, cuts: Sequence[Cut], target: Path, quality: Quality) -> None:
    """Write the frames of `cuts`, one after the other, to `target`; raises `ConversionError` when one is missing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _encode(film, cuts, target, quality)
        _compare(film, cuts, target)
    except (av.FFmpegError, OSError) as error:
        msg = f"{target.name} of {film.camera} cannot be encoded anew: {error}"
        raise ConversionError(msg) from error


def _encode(film: Film, cuts: Sequence[Cut], target: Path, quality: Quality) -> None:
    rate = Fraction(film.fps).limit_denominator(10_000)
    with av.open(str(target), "w", format="mp4") as container:
        stream: Any = None
        for number, frame in enumerate(_frames(film, cuts)):
            if stream is None:
                stream = container.add_stream(quality.encoder, rate=rate)
                stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, quality.pixels
                stream.options = {
                    "crf": str(quality.crf),
                    "g": str(quality.key_frame_every),
                    "bf": "0",
                    "preset": quality.preset,
                }
                stream.codec_context.color_range = frame.color_range
                stream.codec_context.colorspace = frame.colorspace
            picture = frame if frame.format.name == quality.pixels else frame.reformat(format=quality.pixels)
            picture.pts, picture.time_base = number, 1 / rate
            picture.pict_type = 0
            container.mux(stream.encode(picture))
        if stream is not None:
            container.mux(stream.encode())


def _compare(film: Film, cuts: Sequence[Cut], target: Path) -> None:
    written = 0
    with av.open(str(target), format="mp4") as container:
        for before, after in zip(_frames(film, cuts), container.decode(video=0), strict=False):
            left, right = before.to_ndarray(format="gray"), after.to_ndarray(format="gray")
            difference = np.abs(left.astype(np.int16) - right.astype(np.int16)).mean()
            if difference > _WORST_DIFFERENCE or abs((after.time or 0.0) - written / film.fps) > 0.5 / film.fps:
                msg = f"{target.name} of {film.camera}: picture {written} was read back differently from its source"
                raise ReadBackError(msg)
            written += 1
        rest = sum(1 for _ in container.decode(video=0))
    if written + rest != sum(cut.frames for cut in cuts):
        msg = f"{target.name} of {film.camera} was read back with {written + rest} pictures, {sum(c.frames for c in cuts)} were written"
        raise ReadBackError(msg)


def _frames(film: Film, cuts: Sequence[Cut]) -> Iterator[Any]:
    """The wanted frames in the order of their time."""
    waiting = list(cuts)
    done = 0
    with _open_blob(film) as blob, av.open(blob, format="mp4") as container:
        for frame in container.decode(video=0):
            if not waiting:
                return
            place = round(((frame.time or 0.0) - waiting[0].start) * film.fps)
            if place < done:
                continue
            if place > done:
                break
            yield frame
            done += 1
            if done == waiting[0].frames:
                waiting.pop(0)
                done = 0
    if waiting:
        msg = f"{film.camera}, file {film.file}: frame {done} of the episode at {waiting[0].start:.3f} s is not in the video"
        raise ConversionError(msg)


def _open_blob(film: Film) -> Any:
    table = lance.dataset(str(film.root / "videos.lance"))
    names = ["video_key", "chunk_index", "file_index"]
    rows = [tuple(found[name] for name in names) for found in table.to_table(columns=names).to_pylist()]
    return table.take_blobs("video_bytes", indices=[rows.index((film.camera, film.chunk, film.file))])[0]
