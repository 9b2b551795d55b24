"""Whether an mp4 file was cut off: its outermost boxes say how long it should be."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from forebay.runtime.regular_files import open_regular

_MOST_BOXES = 10_000
_OUTERMOST = frozenset(
    b"ftyp styp pdin moov moof mfra mdat free skip wide udta meta meco sidx ssix prft emsg uuid PICT pnot imda".split()
)
"""Boxes that a file is made of; anything else is no mp4, or damaged."""


def what_is_missing(path: Path) -> str | None:
    """In words, what a broken mp4 lacks at its end; None when its boxes are whole, or when it is no mp4."""
    kinds: list[bytes] = []
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at + 8 <= size and len(kinds) < _MOST_BOXES:
            file.seek(at)
            head = file.read(16)
            length, kind = struct.unpack(">I4s", head[:8])
            if kind not in _OUTERMOST:
                break
            if length == 1 and len(head) == 16:
                length = struct.unpack(">Q", head[8:16])[0]
            elif length == 0:
                length = size - at  # the last box goes on to the end
            if length < 8:
                break
            kinds.append(kind)
            if at + length > size:
                return f"cut off: its box {kind.decode('ascii')} should go on for {at + length - size} more bytes"
            at += length
    if b"ftyp" in kinds and b"moov" not in kinds:
        return "cut off or never closed: there is no index (box moov)"
    return None
