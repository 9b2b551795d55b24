"""A wire that is cut at a chosen message: what a server has got by then is what a kill leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

_HEADER = 16


@dataclass(slots=True)
class CutWire:
    """Forwards Mongo messages. Those that name `counted` are counted; after `left` of them everything is cut."""

    server: tuple[str, int]
    counted: bytes
    left: int = 10**9
    answered: bool = True
    """Whether the last message is answered: without, its sender cannot know whether it counted."""
    seen: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def arm(self, left: int, *, answered: bool) -> None:
        self.left, self.answered = left, answered

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.left <= 0:
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection(*self.server)
        self._writers += [writer, up_writer]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                counted = await _forward(reader, up_writer, self.counted)
                if counted:
                    self.seen += 1
                    self.left -= 1
                answer = await _message(up_reader)
                if self.left == 0 and counted and not self.answered:
                    self.cut()
                    return
                writer.write(answer)
                await writer.drain()
                if self.left == 0:
                    self.cut()
        writer.close()
        up_writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_HEADER)
    (length,) = struct.unpack_from("<i", head)
    return head + await reader.readexactly(length - _HEADER)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: bytes) -> bool:
    message = await _message(reader)
    writer.write(message)
    await writer.drain()
    return counted in message


@asynccontextmanager
async def cut_wire(url: str, counted: str) -> AsyncIterator[tuple[CutWire, str]]:
    """A wire in front of the server that `url` names, and the address through it."""
    parts = urlsplit(url)
    wire = CutWire((parts.hostname or "127.0.0.1", parts.port or 27017), counted.encode())
    listener = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield wire, urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))
    finally:
        wire.cut()
        listener.close()
