"""What a report shows beside words: pictures out of videos, and curves of signals. Runs inside decoders.

Small by construction: pictures of at most 200 pixels, curves of at most 600 points.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.adapters.pyav_video import open_video

_SIDE = 200
_POINTS = 600
_MOST_CURVES = 32

Report = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """One feature of one episode."""

    episode: int
    feature: str
    frames: npt.NDArray[np.int64]
    """Frame of each point."""
    values: npt.NDArray[np.float64]
    """Points by dimensions."""
    total: int
    """Rows of the episode."""


def read_pictures(path: Path, name: str, times: Sequence[float], report: Report) -> list[bytes | None]:
    """A JPEG of the frame nearest to each time; None where there is none. `times` ascend."""
    found: list[bytes | None] = []
    try:
        with open_video(path, name) as container:
            stream = container.streams.video[0]
            for time in times:
                found.append(_picture(container, stream, time))
                report(1)
    except (av.FFmpegError, OSError, ValueError, IndexError):
        pass  # the video's own finding says what is wrong with it
    return [*found, *[None] * (len(times) - len(found))]


def _picture(container: Any, stream: Any, time: float) -> bytes | None:
    container.seek(int(max(time, 0.0) / stream.time_base) if math.isfinite(time) else 0, stream=stream)
    half = float(1 / (2 * stream.average_rate)) if stream.average_rate else 0.02
    last = None
    for frame in container.decode(stream):
        last = frame
        if frame.time is not None and frame.time >= time - half:
            break
    beyond = last is not None and math.isfinite(time) and last.time is not None and last.time < time - 3 * half
    return None if last is None or beyond else _jpeg(last)


def _jpeg(frame: av.VideoFrame) -> bytes:
    scale = min(_SIDE / max(frame.width, frame.height), 2.0)
    width, height = (max(int(side * scale) // 2 * 2, 2) for side in (frame.width, frame.height))
    small = frame.reformat(width=width, height=height, format="yuvj420p")
    small.pts, small.time_base = 0, Fraction(1, 25)
    target = io.BytesIO()
    with av.open(target, "w", format="mjpeg") as container:
        stream: Any = container.add_stream("mjpeg", rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuvj420p"
        container.mux(stream.encode(small))
        container.mux(stream.encode())
    return target.getvalue()


def read_curves(
    path: Path, episode: int, features: Sequence[str], marked: Sequence[int], report: Report
) -> list[Curves]:
    """Curves of one episode out of one data file; the `marked` frames are among the points."""
    with ParquetTable(path) as table:
        present = [name for name in features if name in table.schema.names]
        pieces: dict[str, list[npt.NDArray[np.float64]]] = {name: [] for name in present}
        for batch in table.blocks(["episode_index", *present]):
            rows = batch.filter(pa.array(batch.column("episode_index").to_numpy(zero_copy_only=False) == episode))
            for name in present if rows.num_rows else ():
                values = _table(rows.column(name), rows.num_rows)
                if values is not None:
                    pieces[name].append(values)
            report(1)
    found: list[Curves] = []
    for name, parts in pieces.items():
        if not parts or len({part.shape[1] for part in parts}) != 1:
            continue
        values = np.concatenate(parts)
        frames = np.unique(
            np.r_[
                np.linspace(0, len(values) - 1, min(_POINTS, len(values))).astype(np.int64),
                [m for m in marked if m < len(values)],
            ]
        ).astype(np.int64)
        found.append(
            Curves(
                episode=episode, feature=name, frames=frames, values=values[frames][:, :_MOST_CURVES], total=len(values)
            )
        )
    return found


def _table(column: Any, rows: int) -> npt.NDArray[np.float64] | None:
    """Rows by values; None for what is no number, or has rows of several lengths."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    while (
        pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
    ):
        column = column.flatten()
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)) or not rows or len(column) % rows:
        return None
    values = column.cast(pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64).reshape(rows, -1)
