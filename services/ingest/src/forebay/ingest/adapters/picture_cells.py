"""Decoded frames made small: a grid of mean brightness, and the samples that it was made from.

Works on the first plane of any pixel format without converting the picture, because
this runs for every frame of a dataset beside the decoder.
"""

from __future__ import annotations

import av
import numpy as np
import numpy.typing as npt

from forebay.ingest.domain.pictures import Cells

_GRID = 16
_SAMPLES = 96
"""Rows and columns that are looked at, at most about twice as many."""
_SMALLEST = 8
"""Sampled pixels along a side of a cell: fewer would let the codec's noise through."""


def cells_of(frame: av.VideoFrame) -> tuple[Cells, bytes]:
    """Mean brightness (0 to 255) in a grid of at most 16 by 16 cells, and the sampled bytes."""
    samples = _samples(frame)
    content = samples.tobytes()
    height, width = samples.shape
    tall, wide = _side(height), _side(width)
    whole = samples[: height // tall * tall, : width // wide * wide]
    # down first, then across: each sum runs along memory, which is several times faster than a mean over both
    down = whole.reshape(height // tall, tall, -1).sum(axis=1, dtype=np.float32)
    cells = down.reshape(height // tall, width // wide, wide).sum(axis=2) / np.float32(tall * wide)
    if samples.dtype == np.uint16:
        cells = cells / np.float32(2 ** max(frame.format.components[0].bits - 8, 0))
    return cells, content


def _side(samples: int) -> int:
    return min(max(samples // _GRID, _SMALLEST), samples)


def _samples(frame: av.VideoFrame) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16]:
    plane = frame.planes[0]
    table = np.frombuffer(memoryview(plane), dtype=np.uint8).reshape(-1, plane.line_size)
    rows, columns = max(frame.height // _SAMPLES, 1), max(frame.width // _SAMPLES, 1)
    deep = frame.format.components[0].bits > 8
    packed = not frame.format.is_planar and len(frame.format.components) > 1
    size = 1 if not packed else max(frame.format.padded_bits_per_pixel // 8, 1)
    if deep and not packed:
        wide = table[: frame.height, : frame.width * 2].view("<u2" if not frame.format.is_big_endian else ">u2")
        return np.ascontiguousarray(wide[::rows, ::columns]).astype(np.uint16, copy=False)
    # of packed colours the second byte: green in RGB and BGR
    first = 1 if size >= 3 else 0
    return np.ascontiguousarray(table[: frame.height, first : frame.width * size : size][::rows, ::columns])
