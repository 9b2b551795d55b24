"""Whether a safetensors file can be whole, from its header and its size alone.

The format: 8 bytes little-endian header length, a JSON header, then the tensors
without holes. So 8 + header length + largest end offset must equal the file size.
No tensor is read, and a hostile header costs no more than its allowed length.
"""

from __future__ import annotations

import json
import struct
from math import prod
from typing import Any

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 25_000_000
"""About 150,000 tensors; more is refused rather than parsed."""
_MAX_DIMENSIONS = 64
_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


class HeaderError(ValueError):
    """The file cannot be a whole safetensors file; the message says which number is wrong."""


def header_length(prefix: bytes, size: int) -> int:
    """The length that the first 8 bytes claim, checked against the file's size."""
    if size == 0:
        raise HeaderError("empty file")
    if size < LENGTH_BYTES or len(prefix) < LENGTH_BYTES:
        raise HeaderError(f"{size} bytes are too few: the header length alone takes {LENGTH_BYTES}")
    (length,) = struct.unpack("<Q", prefix[:LENGTH_BYTES])
    if length > MAX_HEADER_BYTES:
        raise HeaderError(f"the header claims {length} bytes, at most {MAX_HEADER_BYTES} are allowed")
    if LENGTH_BYTES + length > size:
        raise HeaderError(f"truncated: the header claims {length} bytes, the file has {size}")
    return int(length)


def tensors_of(header: bytes, size: int) -> frozenset[str]:
    """Names of the tensors of a whole file; raises `HeaderError` with the numbers otherwise."""
    entries = _entries(header)
    spans = sorted((*_span(name, entry), name) for name, entry in entries.items())
    end = 0
    for start, stop, name in spans:
        if start != end:
            what = "overlap" if start < end else "leave a hole"
            raise HeaderError(f"tensors {what} before {name!r}: expected offset {end}, found {start}")
        end = stop
    expected = LENGTH_BYTES + len(header) + end
    if size < expected:
        raise HeaderError(f"truncated: the header describes {expected} bytes, the file has {size}")
    if size > expected:
        raise HeaderError(f"{size - expected} bytes more than the header covers ({expected})")
    return frozenset(entries)


def _entries(header: bytes) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(header.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"the header is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise HeaderError("the header is not a JSON object")
    found.pop("__metadata__", None)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _span(name: str, entry: object) -> tuple[int, int]:
    if not isinstance(entry, dict):
        raise HeaderError(f"{name!r} is not described by an object")
    shape, offsets, dtype = entry.get("shape"), entry.get("data_offsets"), entry.get("dtype")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise HeaderError(f"{name!r}: data_offsets {str(offsets)[:80]} are not two sizes")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise HeaderError(f"{name!r}: shape {str(shape)[:80]} is not a list of sizes")
    start, stop = offsets
    if stop < start:
        raise HeaderError(f"{name!r} ends at {stop} before it starts at {start}")
    bits = _BITS.get(str(dtype))
    if bits is not None and (prod(shape) * bits + 7) // 8 != stop - start:
        raise HeaderError(
            f"{name!r}: shape {shape} of {dtype} needs {(prod(shape) * bits + 7) // 8} bytes, its offsets hold {stop - start}"
        )
    return start, stop
