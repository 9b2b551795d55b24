"""An mp4 -> the bytes that decoding a window of time takes: the index box, and samples from the key frame before it.

Works on the sample tables in `moov` (stts, ctts, stss, stsc, stsz, stco or co64) and the
edit list, as decoders do; the pictures themselves are not touched. What these tables do
not describe (fragments, several edits) is planned whole, with the reason.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.cache.adapters.origin import Origin
from forebay.cache.domain.plan import ByteRange, PlannedFile, merge_ranges, planned_file
from forebay.cache.errors import DataChangedError

if TYPE_CHECKING:
    import numpy as np

Window = tuple[float, float]
"""Seconds from the first frame to one frame after the last, on the file's own clock."""

MAX_MOOV_BYTES = 256 << 20
MAX_SAMPLES = 20_000_000
_SMALL_BOX = 64 * 1024
_HEADER = 16
_MAX_BOXES = 100_000


class _Whole(Exception):  # noqa: N818 a decision, not an error
    """The file has to be planned whole, and why."""


@dataclass(frozen=True, slots=True)
class _Box:
    kind: bytes
    start: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class _Samples:
    """One track's samples in decoding order."""

    offsets: np.ndarray[Any, Any]
    sizes: np.ndarray[Any, Any]
    decode: np.ndarray[Any, Any]
    show: np.ndarray[Any, Any]
    """Seconds when a sample is decoded and shown, edit list applied."""
    keys: np.ndarray[Any, Any]
    """Indices of the samples that decoding can begin with."""


def plan_windows(
    origin: Origin, path: str, windows: Iterable[Window], tolerance_s: float
) -> tuple[PlannedFile, str | None]:
    """The plan of one mp4, and why it is whole where it is."""
    size = origin.size(path)
    try:
        ranges = _ranges(origin, path, size, list(windows), tolerance_s)
    except _Whole as reason:
        return planned_file(path, size), f"{path.rsplit('/', 1)[-1]} is planned whole: {reason}"
    except (struct.error, IndexError, ValueError, KeyError, OverflowError) as error:
        msg = f"{path}: its index box cannot be understood ({error}); it may be damaged"
        raise DataChangedError(msg) from error
    return planned_file(path, size, ranges), None


def _ranges(origin: Origin, path: str, size: int, windows: Sequence[Window], tolerance_s: float) -> list[ByteRange]:
    ranges: list[ByteRange] = []
    moov: bytes | None = None
    for box in _top_boxes(origin, path, size):
        if box.kind in {b"moof", b"sidx"}:
            reason = "it is fragmented"
            raise _Whole(reason)
        if box.kind == b"moov":
            if box.end - box.start > MAX_MOOV_BYTES:
                reason = f"its index has {box.end - box.start:,} bytes"
                raise _Whole(reason)
            moov = origin.read(path, box.body, box.end)
            ranges.append(ByteRange(box.start, box.end))
        elif box.kind != b"mdat" and box.end - box.start <= _SMALL_BOX:
            ranges.append(ByteRange(box.start, box.end))
        else:
            ranges.append(ByteRange(box.start, min(box.end, box.start + _HEADER)))
    if moov is None:
        msg = f"{path}: no index box (moov) among its {size:,} bytes: truncated upload or recorder crash"
        raise DataChangedError(msg)
    samples = _video(moov)
    if samples.offsets.size and int((samples.offsets + samples.sizes).max()) > size:
        msg = f"{path}: its index points beyond its {size:,} bytes; it may be cut off"
        raise DataChangedError(msg)
    for first, last in [(0, 0), *(_span(samples, window, tolerance_s) for window in windows)]:
        # Players look at the first sample when they open a file, whatever is asked of them later.
        starts = samples.offsets[first : last + 1]
        ends = starts + samples.sizes[first : last + 1]
        ranges += merge_ranges(ByteRange(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
    return ranges


def _span(samples: _Samples, window: Window, tolerance_s: float) -> tuple[int, int]:
    """First and last sample, in decoding order, that a window takes."""
    import numpy as np  # noqa: PLC0415 only windows of mp4 files need it

    # One picture more than asked for: by seeing it a reader, and a decoder that reorders, know that the one before is done.
    first_s, last_s = window[0] - tolerance_s, window[1] + tolerance_s
    wanted = np.flatnonzero((samples.show >= first_s) & (samples.show < last_s))
    if not wanted.size:
        reason = f"no picture is shown from {window[0]:.3f} s to {window[1]:.3f} s"
        raise _Whole(reason)
    # A key frame that is shown after a wanted picture does not help to decode it, even if it comes before it.
    usable = samples.keys[(samples.keys <= wanted[0]) & (samples.show[samples.keys] <= samples.show[wanted].min())]
    first = int(usable[-1]) if usable.size else 0
    # A decoder gives a picture out once it has seen what is decoded up to the time it is shown.
    until = np.flatnonzero(samples.decode <= samples.show[wanted].max())
    return first, max(int(wanted[-1]), int(until[-1]) if until.size else 0)


def _top_boxes(origin: Origin, path: str, size: int) -> Iterator[_Box]:
    start, seen = 0, 0
    while start + 8 <= size and seen < _MAX_BOXES:
        box = _box(origin.read(path, start, min(size, start + _HEADER)), 0, start, size)
        if box is None or box.end > size:
            msg = f"{path}: a box at byte {start:,} does not fit into its {size:,} bytes; it may be cut off or no mp4"
            raise DataChangedError(msg)
        yield box
        start, seen = box.end, seen + 1
    if start < size and size - start >= 8:
        reason = f"it has more than {_MAX_BOXES:,} boxes"
        raise _Whole(reason)


def _box(content: bytes, at: int, start: int, limit: int) -> _Box | None:
    """The header at `at` of `content`, which lies at `start`."""
    if at + 8 > len(content):
        return None
    length, kind = struct.unpack_from(">I4s", content, at)
    header = 8
    if length == 1:
        if at + 16 > len(content):
            return None
        (length,) = struct.unpack_from(">Q", content, at + 8)
        header = 16
    elif length == 0:
        length = limit - start
    return _Box(kind, start, start + header, start + length) if length >= header else None


def _boxes(content: bytes, start: int = 0, end: int | None = None) -> Iterator[_Box]:
    stop = len(content) if end is None else end
    while start + 8 <= stop:
        box = _box(content, start, start, stop)
        if box is None or box.end > stop:
            msg = f"a box at byte {start} does not fit"
            raise ValueError(msg)
        yield box
        start = box.end


def _children(content: bytes, box: _Box) -> dict[bytes, _Box]:
    found: dict[bytes, _Box] = {}
    for child in _boxes(content, box.body, box.end):
        found.setdefault(child.kind, child)
    return found


def _video(moov: bytes) -> _Samples:
    """The samples of the first video track."""
    movie_scale = 1
    for box in _boxes(moov):
        if box.kind == b"mvex":
            reason = "it is fragmented"
            raise _Whole(reason)
        if box.kind == b"mvhd":
            version = moov[box.body]
            (movie_scale,) = struct.unpack_from(">I", moov, box.body + (20 if version == 1 else 12))
    tracks = [_children(moov, box) for box in _boxes(moov) if box.kind == b"trak"]
    for track in tracks:
        media = _children(moov, track[b"mdia"])
        handler = media[b"hdlr"].body
        if moov[handler + 8 : handler + 12] == b"vide":
            tables = _children(moov, _children(moov, media[b"minf"])[b"stbl"])
            version = moov[media[b"mdhd"].body]
            (scale,) = struct.unpack_from(">I", moov, media[b"mdhd"].body + (20 if version == 1 else 12))
            shift = _edit_shift(moov, track, movie_scale, scale)
            return _samples(moov, tables, scale, shift)
    reason = "it has no video track"
    raise _Whole(reason)


def _edit_shift(moov: bytes, track: Mapping[bytes, _Box], movie_scale: int, scale: int) -> float:
    """Seconds to add to a media time to get the time when it is shown."""
    listed = _children(moov, track[b"edts"]).get(b"elst") if b"edts" in track else None
    if listed is None:
        return 0.0
    version = moov[listed.body]
    (count,) = struct.unpack_from(">I", moov, listed.body + 4)
    width, layout = (20, ">QqHH") if version == 1 else (12, ">IiHH")
    delay = 0.0
    starts: list[int] = []
    if listed.body + 8 + count * width > listed.end:
        msg = "its edit list is cut"
        raise ValueError(msg)
    for entry in range(count):
        length, media_time, rate, fraction = struct.unpack_from(layout, moov, listed.body + 8 + entry * width)
        if (rate, fraction) != (1, 0):
            reason = "its edit list changes the speed"
            raise _Whole(reason)
        if media_time == -1 and not starts:
            delay += length / movie_scale
        else:
            starts.append(media_time)
    if len(starts) > 1:
        reason = f"its edit list has {len(starts)} parts"
        raise _Whole(reason)
    return delay - (starts[0] / scale if starts else 0.0)


def _samples(moov: bytes, tables: Mapping[bytes, _Box], scale: int, shift: float) -> _Samples:
    import numpy as np  # noqa: PLC0415 only windows of mp4 files need it

    if not scale:
        msg = "its time scale is 0"
        raise ValueError(msg)
    sizes = _sizes(moov, tables)
    count = sizes.size
    deltas = _runs(moov, tables[b"stts"], ">u4", count)
    decode = np.concatenate([[0], np.cumsum(deltas)[:-1]]) if count else deltas
    offsets = decode * 0
    if b"ctts" in tables:
        # Version 0 holds unsigned numbers, but writers put negative ones in, and decoders take them so.
        offsets = _runs(moov, tables[b"ctts"], ">i4", count)
    if b"stss" in tables:
        box = tables[b"stss"]
        keys = _array(moov, box, 8, (_count(moov, box, 4), 1), ">u4")[:, 0] - 1
        keys = np.sort(keys[(keys >= 0) & (keys < count)])
    else:
        keys = np.arange(count)
    return _Samples(
        offsets=_places(moov, tables, sizes),
        sizes=sizes,
        decode=decode / scale + shift,
        show=(decode + offsets) / scale + shift,
        keys=keys,
    )


def _sizes(moov: bytes, tables: Mapping[bytes, _Box]) -> np.ndarray[Any, Any]:
    import numpy as np  # noqa: PLC0415 only windows of mp4 files need it

    if b"stsz" not in tables:
        reason = "its samples are listed in the compact form (stz2)"
        raise _Whole(reason)
    box = tables[b"stsz"]
    uniform, count = _count(moov, box, 4), _count(moov, box, 8)
    if count > MAX_SAMPLES:
        reason = f"it claims {count:,} samples"
        raise _Whole(reason)
    if uniform:
        return np.full(count, uniform, dtype=np.int64)
    return _array(moov, box, 12, (count, 1), ">u4")[:, 0]


def _places(moov: bytes, tables: Mapping[bytes, _Box], sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where each sample begins: chunks lie anywhere, samples of a chunk behind each other."""
    import numpy as np  # noqa: PLC0415 only windows of mp4 files need it

    wide = b"co64" in tables
    box = tables[b"co64" if wide else b"stco"]
    chunks = _array(moov, box, 8, (_count(moov, box, 4), 1), ">u8" if wide else ">u4")[:, 0]
    runs = _array(moov, tables[b"stsc"], 8, (_count(moov, tables[b"stsc"], 4), 3), ">u4")
    firsts = runs[:, 0] - 1
    lengths = np.diff(np.append(firsts, len(chunks)))
    if len(firsts) and (firsts[0] != 0 or (lengths <= 0).any() or int((lengths * runs[:, 1]).sum()) != sizes.size):
        msg = "its chunks do not hold its samples"
        raise ValueError(msg)
    per_chunk = np.repeat(runs[:, 1], lengths)
    chunk_of = np.repeat(np.arange(len(per_chunk)), per_chunk)
    if chunk_of.size != sizes.size:
        msg = "its chunks do not hold its samples"
        raise ValueError(msg)
    before = np.cumsum(sizes) - sizes
    first_of_chunk = np.cumsum(per_chunk) - per_chunk
    places: np.ndarray[Any, Any] = chunks[chunk_of] + before - before[first_of_chunk[chunk_of]]
    return places


def _runs(moov: bytes, box: _Box, kind: str, count: int) -> np.ndarray[Any, Any]:
    """(how many, value) pairs, written out for `count` samples."""
    import numpy as np  # noqa: PLC0415 only windows of mp4 files need it

    pairs = _count(moov, box, 4)
    lengths = _array(moov, box, 8, (pairs, 2), ">u4")[:, 0]
    values = _array(moov, box, 8, (pairs, 2), kind)[:, 1]
    if int(lengths.sum()) != count:
        msg = f"a table of times has {int(lengths.sum())} samples, the file has {count}"
        raise ValueError(msg)
    return np.repeat(values, lengths)


def _count(moov: bytes, box: _Box, at: int) -> int:
    (count,) = struct.unpack_from(">I", moov, box.body + at)
    return int(count)


def _array(moov: bytes, box: _Box, at: int, shape: tuple[int, int], kind: str) -> np.ndarray[Any, Any]:
    import numpy as np  # noqa: PLC0415 only windows of mp4 files need it

    (rows, width), found = shape, np.dtype(kind)
    if box.body + at + rows * width * found.itemsize > box.end:
        msg = f"the table {box.kind.decode(errors='replace')} is shorter than its {rows} entries"
        raise ValueError(msg)
    values = np.frombuffer(moov, dtype=found, count=rows * width, offset=box.body + at)
    return values.astype(np.int64).reshape(rows, width)
