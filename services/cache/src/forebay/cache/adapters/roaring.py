"""Roaring bitmaps of 32-bit numbers, read only: which fragments an index covers is kept as one."""

from __future__ import annotations

import struct

from forebay.cache.errors import DataChangedError

_PLAIN, _WITH_RUNS = 12346, 12347
_ARRAY_MOST = 4096
_BITMAP_BYTES = 8192
_OFFSETS_SINCE = 4
_MOST_CONTAINERS = 1 << 16


def read_roaring(content: bytes) -> frozenset[int]:
    """The numbers of a bitmap in the portable format; raises `DataChangedError` for anything else."""
    try:
        return frozenset(_numbers(content))
    except struct.error as error:
        msg = "a bitmap of fragments is cut off"
        raise DataChangedError(msg) from error


def _numbers(content: bytes) -> list[int]:
    (cookie,) = struct.unpack_from("<I", content, 0)
    at, runs = 4, b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = content[at : at + (count + 7) // 8]
        at += (count + 7) // 8
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", content, at)
        at += 4
    else:
        msg = "a bitmap of fragments is written in an unknown way"
        raise DataChangedError(msg)
    if count > _MOST_CONTAINERS:
        msg = "a bitmap of fragments claims more parts than there can be"
        raise DataChangedError(msg)
    keys = [struct.unpack_from("<HH", content, at + 4 * one) for one in range(count)]
    at += 4 * count
    if not runs or count >= _OFFSETS_SINCE:
        at += 4 * count
    found: list[int] = []
    for number, (key, most) in enumerate(keys):
        if runs and runs[number // 8] >> number % 8 & 1:
            (spans,) = struct.unpack_from("<H", content, at)
            for one in range(spans):
                start, length = struct.unpack_from("<HH", content, at + 2 + 4 * one)
                found += [key << 16 | low for low in range(start, start + length + 1)]
            at += 2 + 4 * spans
        elif most + 1 <= _ARRAY_MOST:
            found += [key << 16 | low for low in struct.unpack_from(f"<{most + 1}H", content, at)]
            at += 2 * (most + 1)
        else:
            words = struct.unpack_from(f"<{_BITMAP_BYTES}B", content, at)
            found += [
                key << 16 | 8 * place + bit for place, word in enumerate(words) for bit in range(8) if word >> bit & 1
            ]
            at += _BITMAP_BYTES
    return found
