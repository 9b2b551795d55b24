"""Decoded frames made small: a grid of mean brightness for each, many frames at a time.

Works on the first plane of any pixel format without converting the picture, because
this runs for every frame of a dataset beside the decoder. Per frame only its samples
are copied; the sums are made of a batch, since a call costs more than a small picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane

_GRID = 16
_SAMPLES = 96
"""Rows and columns that are looked at, at most about twice as many."""
_SMALLEST = 8
"""Sampled pixels along a side of a cell: fewer would let the codec's noise through."""
_BATCH = 64

Taker = Callable[[npt.NDArray[np.float64], npt.NDArray[np.float32], npt.NDArray[np.unsignedinteger[Any]]], None]


class CellBatches:
    """Frames come in one by one; `take` gets times, cells (0 to 255) and the exact sums behind them, in batches."""

    def __init__(self, take: Taker, *, lossless: bool = False) -> None:
        """`lossless`: depth in 16 bits is taken as it is, since no codec adds noise to it and its unit is unknown."""
        self._take = take
        self._lossless = lossless
        self._form: tuple[object, ...] = ()
        self._view: _View | None = None
        self._times: list[float] = []

    def add(self, frame: av.VideoFrame, time: float) -> None:
        """The next frame. Raises `ValueError` for a pixel format that cannot be looked at."""
        plane = VideoPlane(frame, 0)
        form = (frame.format.name, frame.width, frame.height, plane.line_size)
        if self._view is None or form != self._form:
            self.flush()
            self._view, self._form = _View(frame, plane.line_size, lossless=self._lossless), form
        self._view.keep(plane, len(self._times))
        self._times.append(time)
        if len(self._times) == _BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand over what is kept."""
        if self._times and self._view is not None:
            times, self._times = np.asarray(self._times), []
            self._take(times, *self._view.cells(len(times)))


class _View:
    """How pictures of one form are looked at, with room for a batch of them."""

    def __init__(self, frame: av.VideoFrame, line_size: int, *, lossless: bool) -> None:
        rows, columns = max(frame.height // _SAMPLES, 1), max(frame.width // _SAMPLES, 1)
        depth = frame.format.components[0].bits
        packed = not frame.format.is_planar and len(frame.format.components) > 1
        size = 1 if not packed else max(frame.format.padded_bits_per_pixel // 8, 1)
        self._line_size = line_size
        self._kind: np.dtype[np.unsignedinteger[Any]] = np.dtype(np.uint8)
        width = frame.width
        if depth > 8 and not packed:
            self._kind = np.dtype(">u2" if frame.format.is_big_endian else "<u2")
        # of packed colours the second byte: green in RGB and BGR
        first = 1 if size >= 3 else 0
        self._slice = (slice(0, frame.height, rows), slice(first, width * size, size * columns))
        shape = np.empty((frame.height, line_size // self._kind.itemsize), np.bool_)[self._slice].shape
        self._samples = np.empty((_BATCH, *shape), np.uint8 if self._kind.itemsize == 1 else np.uint16)
        # a cell has at most some 150 samples
        self._wide: type[np.unsignedinteger[Any]] = np.uint16 if self._kind.itemsize == 1 else np.uint32
        scaled = self._kind.itemsize > 1 and not (lossless and len(frame.format.components) == 1)
        self._scale = np.float32(2 ** max(depth - 8, 0) if scaled else 1)

    def keep(self, plane: VideoPlane, number: int) -> None:
        table = np.frombuffer(memoryview(plane), self._kind).reshape(-1, self._line_size // self._kind.itemsize)
        self._samples[number] = table[self._slice]

    def cells(self, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.unsignedinteger[Any]]]:
        samples = self._samples[:count]
        _, height, width = samples.shape
        tall, wide = _side(height), _side(width)
        # a sum of whole rows runs along memory, several times faster than a sum over both
        down = _sum_of(samples[:, : height // tall * tall].reshape(count, height // tall, tall, width), 2, self._wide)
        across = down[:, :, : width // wide * wide].reshape(count, height // tall, width // wide, wide)
        sums = _sum_of(across, 3, self._wide)
        return sums.astype(np.float32) / (np.float32(tall * wide) * self._scale), sums


def _side(samples: int) -> int:
    return min(max(samples // _GRID, _SMALLEST), samples)


def _sum_of(values: npt.NDArray[Any], axis: int, wide: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
    """A few slices added up: quicker than numpy's sum, which is made for long axes."""
    parts = np.moveaxis(values, axis, 0)
    total: npt.NDArray[Any] = parts[0].astype(wide)
    for part in parts[1:]:
        total += part
    return total
