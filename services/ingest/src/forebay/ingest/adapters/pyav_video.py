"""Videos through PyAV: every frame is decoded, because only that proves it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np

from forebay.ingest.domain.breach import printable
from forebay.ingest.domain.frames import VideoScan

_MAX_SIDE = 16_384
_REPORT_EVERY = 64


def scan_video(path: Path, name: str, on_frames: Callable[[int], None] = lambda _: None) -> VideoScan:
    """Decode one file to its end, or to where it breaks. Never raises for what the file contains."""
    size = path.stat().st_size
    times: list[float] = []
    codec: str | None = None
    problem: str | None = "no bytes" if size == 0 else None
    told = 0
    try:
        if size:
            with av.open(str(path), format="mp4" if name.endswith(".mp4") else None) as container:
                if not container.streams.video:
                    problem = "it holds no video stream"
                else:
                    stream = container.streams.video[0]
                    stream.thread_type = "AUTO"
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
