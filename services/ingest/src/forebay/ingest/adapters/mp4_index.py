"""Where things lie inside an mp4: the index box and the key frames.

LeRobot's Lance reader uses these to fetch only the bytes that a time window needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import av

from forebay.ingest.errors import ConversionError
from forebay.runtime.regular_files import open_regular, path_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Mp4Index:
    """Byte positions inside one file."""

    size: int
    moov_offset: int
    moov_size: int
    key_frames: tuple[int, ...]
    """Frame numbers of the key frames."""
    key_positions: tuple[int, ...]
    """Byte position of each."""


def index_mp4(path: Path, fps: float) -> Mp4Index:
    """Walk the boxes and the packets; raises `ConversionError` when the file is no readable mp4."""
    with open_regular(path) as file:
        return _index(path, file, fps)


def _index(path: Path, file: BinaryIO, fps: float) -> Mp4Index:
    size = os.fstat(file.fileno()).st_size
    offset, length = _find_moov(path, file, size)
    try:
        with av.open(path_of(file), format="mp4") as container:
            keys = sorted((round(time * fps), position) for time, position in _key_frames(container))
    except (av.FFmpegError, OSError, IndexError) as error:
        msg = f"{path}: its packets cannot be listed: {error}"
        raise ConversionError(msg) from error
    return Mp4Index(
        size=size,
        moov_offset=offset,
        moov_size=length,
        key_frames=tuple(number for number, _ in keys),
        key_positions=tuple(position for _, position in keys),
    )


def _key_frames(container: av.container.InputContainer) -> Iterator[tuple[float, int]]:
    """Time and byte position of every key frame.

    The index box knows when frames are decoded. Where that is when they are shown it
    suffices; else every packet is read, because only packets know when they are shown.
    """
    stream = container.streams.video[0]
    base = stream.time_base
    entries = list(stream.index_entries) if base is not None and not stream.codec_context.has_b_frames else []
    packets = (packet for packet in container.demux(stream) if packet.pts is not None and packet.pos is not None)
    first = next(packets, None)
    if first is None:
        return
    plain = bool(entries) and not any(entry.is_discard for entry in entries)
    if plain and base is not None and (first.pts, first.pos) == (entries[0].timestamp, entries[0].pos):
        yield from ((float(entry.timestamp * base), entry.pos) for entry in entries if entry.is_keyframe)
        return
    for packet in chain([first], packets):
        if packet.is_keyframe and packet.pts is not None and packet.pos is not None and packet.time_base:
            yield float(packet.pts * packet.time_base), packet.pos


def _find_moov(path: Path, file: BinaryIO, size: int) -> tuple[int, int]:
    """Offset and size of the index box, from the headers of the top-level boxes."""
    offset = 0
    while offset + 8 <= size:
        file.seek(offset)
        header = file.read(16)
        length, kind = int.from_bytes(header[:4], "big"), header[4:8]
        if length == 1:
            length = int.from_bytes(header[8:16], "big")
        elif length == 0:
            length = size - offset
        if length < 8 or offset + length > size:
            break
        if kind == b"moov":
            return offset, length
        offset += length
    msg = f"{path}: no complete index box (moov) among its {size} bytes"
    raise ConversionError(msg)
