"""Videos through PyAV: every frame is decoded, because only that proves it is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import av
import numpy as np

from forebay.ingest.adapters.mp4_ends import what_is_missing
from forebay.ingest.adapters.picture_cells import CellBatches
from forebay.ingest.domain.breach import printable
from forebay.ingest.domain.frames import VideoScan
from forebay.ingest.domain.pictures import PictureWatch
from forebay.runtime.regular_files import open_regular, path_of

_MAX_SIDE = 16_384
_MAX_THREADS = 16
"""More cost memory for pictures that wait, and win nothing."""
_REPORT_EVERY = 64
_FORMATS = {".mkv": "matroska", ".webm": "matroska", ".avi": "avi"}
"""Everything else is read as mp4. Never guessed from the content: a playlist would make FFmpeg open other files."""
_OPTIONS = {"protocol_whitelist": "file", "enable_drefs": "0"}


def scan_video(
    path: Path,
    name: str,
    on_frames: Callable[[int], None] = lambda _: None,
    *,
    threads: int = 0,
    watch: PictureWatch | None = None,
) -> VideoScan:
    """Decode one file to its end, or to where it breaks. Never raises for what the file contains.

    `threads` are used inside the decoder; 0 takes all cores. `watch` is shown every picture.
    """
    size = 0
    scan = _Scan(watch, on_frames)
    try:
        with open_regular(path, links=False) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                scan.problem = "no bytes"
            else:
                with _container(file, name) as container:
                    scan.decode(container, threads)
    except (av.FFmpegError, OSError, ValueError, OverflowError, EOFError, MemoryError) as error:
        scan.problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if size and scan.problem is not None:
        scan.problem = _told(scan.problem, path, name)
    scan.report()
    return VideoScan(
        file=name,
        size=size,
        times=np.sort(np.asarray(scan.times, dtype=np.float64)),
        codec=scan.codec,
        height=scan.height,
        width=scan.width,
        pictures=() if watch is None else watch.finish(),
        problem=scan.problem,
    )


def _told(problem: str, path: Path, name: str) -> str:
    """What went wrong; a file that was cut off says so itself."""
    try:
        missing = what_is_missing(path) if _format(name) == "mp4" else None
    except OSError:
        missing = None
    return missing or printable(problem.replace(str(path), name), 160)


class _Scan:
    """One file on its way through the decoder."""

    def __init__(self, watch: PictureWatch | None, on_frames: Callable[[int], None]) -> None:
        self.times: list[float] = []
        self.codec: str | None = None
        self.problem: str | None = None
        self.height = self.width = 0
        self._batches = None if watch is None else CellBatches(watch.take)
        self._on_frames = on_frames
        self._told = 0

    def decode(self, container: av.container.InputContainer, threads: int) -> None:
        if not container.streams.video:
            self.problem = "it holds no video stream"
            return
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = min(threads, _MAX_THREADS)
        self.codec = stream.codec_context.name
        if max(stream.codec_context.width, stream.codec_context.height) > _MAX_SIDE:
            self.problem = f"its pictures are larger than {_MAX_SIDE} pixels"
            return
        self.codec = stream.codec_context.codec.canonical_name
        try:
            for frame in container.decode(stream):
                time = frame.time
                if time is not None:
                    if not self.times:
                        self.height, self.width = frame.height, frame.width
                    self.times.append(time)
                    if self._batches is not None:
                        self._show(self._batches, frame, time)
                    if len(self.times) - self._told >= _REPORT_EVERY:
                        self.report()
        finally:
            if self._batches is not None:
                self._batches.flush()

    def _show(self, batches: CellBatches, frame: av.VideoFrame, time: float) -> None:
        try:
            batches.add(frame, time)
        except (ValueError, OSError, NotImplementedError):
            self._batches = None  # a pixel format that cannot be looked at: its times still count

    def report(self) -> None:
        self._on_frames(len(self.times) - self._told)
        self._told = len(self.times)


@contextmanager
def open_video(path: Path, name: str) -> Iterator[av.container.InputContainer]:
    """A video from outside: one file, and nothing that it points to."""
    with open_regular(path, links=False) as file, _container(file, name) as container:
        yield container


def _container(file: BinaryIO, name: str) -> av.container.InputContainer:
    return av.open(path_of(file), format=_format(name), options=_OPTIONS)


def _format(name: str) -> str:
    return _FORMATS.get(PurePosixPath(name).suffix.lower(), "mp4")
