"""Protocol buffers on the wire, as far as Lance's metadata needs them. Anything odd is an error, never a guess."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from forebay.cache.errors import DataChangedError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of one encoded message, in order."""
    at, end = 0, len(message)
    while at < end:
        key = message[at]
        if key < 0x80:
            at += 1
        else:
            key, at = varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = varint(message, at)
            yield number, value
        elif wire == _BYTES:
            length, at = varint(message, at)
            if at + length > end:
                raise _cut()
            yield number, message[at : at + length]
            at += length
        elif wire in {_FIXED64, _FIXED32}:
            width = 8 if wire == _FIXED64 else 4
            if at + width > end:
                raise _cut()
            yield number, int.from_bytes(message[at : at + width], "little")
            at += width
        else:
            msg = f"a protobuf field has the wire type {wire}, which does not exist"
            raise DataChangedError(msg)


def varint(message: bytes, at: int) -> tuple[int, int]:
    """One number, and where the next thing begins."""
    end = len(message)
    if at < end and message[at] < 0x80:
        return message[at], at + 1
    value = shift = 0
    while at < end and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
    raise _cut()


def numbers(value: int | bytes) -> list[int]:
    """A repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    if value.isascii():
        return list(value)  # each number fits into one byte
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found


def signed(value: int) -> int:
    """A number that may be negative: protobuf writes it as 64 bits of two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def message(value: int | bytes) -> bytes:
    """A field that has to be a message or a string."""
    if isinstance(value, int):
        msg = "a protobuf field is a number where a message belongs"
        raise DataChangedError(msg)
    return value


def number(value: int | bytes) -> int:
    """A field that has to be a number."""
    if isinstance(value, bytes):
        msg = "a protobuf field is a message where a number belongs"
        raise DataChangedError(msg)
    return value


def text(value: int | bytes) -> str:
    """A field that has to be a string."""
    try:
        return message(value).decode()
    except UnicodeDecodeError as error:
        msg = "a protobuf string is not UTF-8"
        raise DataChangedError(msg) from error


def section(content: bytes, at: int, what: str) -> bytes:
    """A message with its length before it, as Lance's manifests keep them."""
    if not 0 <= at <= len(content) - 4:
        msg = f"{what} points at byte {at} of {len(content)}; it may be cut off"
        raise DataChangedError(msg)
    (length,) = struct.unpack_from("<I", content, at)
    if at + 4 + length > len(content):
        msg = f"{what} ends beyond its {len(content)} bytes; it may be cut off"
        raise DataChangedError(msg)
    return content[at + 4 : at + 4 + length]


def _cut() -> DataChangedError:
    return DataChangedError("a protobuf message ends in the middle of a field")
