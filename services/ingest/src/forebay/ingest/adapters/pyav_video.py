"""Videos through PyAV: every frame is decoded, because only that proves it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import av
import numpy as np

from forebay.ingest.domain.breach import printable
from forebay.ingest.domain.frames import VideoScan

_MAX_SIDE = 16_384
_MAX_THREADS = 16
"""More cost memory for pictures that wait, and win nothing."""
_REPORT_EVERY = 64
_FORMATS = {".mkv": "matroska", ".webm": "matroska", ".avi": "avi"}
"""Everything else is read as mp4. Never guessed from the content: a playlist would make FFmpeg open other files."""
_OPTIONS = {"protocol_whitelist": "file", "enable_drefs": "0"}


def scan_video(
    path: Path, name: str, on_frames: Callable[[int], None] = lambda _: None, *, threads: int = 0
) -> VideoScan:
    """Decode one file to its end, or to where it breaks. Never raises for what the file contains.

    `threads` are used inside the decoder; 0 takes all cores.
    """
    size = path.stat().st_size
    times: list[float] = []
    codec: str | None = None
    problem: str | None = "no bytes" if size == 0 else None
    told = 0
    try:
        if size:
            with av.open(str(path), format=_format(name), options=_OPTIONS) as container:
                if not container.streams.video:
                    problem = "it holds no video stream"
                else:
                    stream = container.streams.video[0]
                    stream.thread_type = "AUTO"
                    stream.codec_context.thread_count = min(threads, _MAX_THREADS)
                    codec = stream.codec_context.name
                    if max(stream.codec_context.width, stream.codec_context.height) > _MAX_SIDE:
                        problem = f"its pictures are larger than {_MAX_SIDE} pixels"
                    else:
                        codec = stream.codec_context.codec.canonical_name
                        for frame in container.decode(stream):
                            if frame.time is not None:
                                times.append(frame.time)
                            if len(times) - told >= _REPORT_EVERY:
                                on_frames(len(times) - told)
                                told = len(times)
    except (av.FFmpegError, OSError, ValueError, OverflowError, EOFError, MemoryError) as error:
        problem = printable(str(error).replace(str(path), name), 160) or type(error).__name__
    on_frames(len(times) - told)
    return VideoScan(
        file=name, size=size, times=np.sort(np.asarray(times, dtype=np.float64)), codec=codec, problem=problem
    )


def _format(name: str) -> str:
    return _FORMATS.get(PurePosixPath(name).suffix.lower(), "mp4")
