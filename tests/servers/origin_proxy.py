"""A wire in front of object storage that counts, slows down, refuses, breaks answers and disappears.

It runs on a thread of its own, because what is tested blocks: reads through a mount.
Requests pass unchanged (`Host` too, which signatures cover), one at a time per connection.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.eventually import WITHIN_S

_CHUNK = 64 * 1024
_HEAD = 64 * 1024
_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
_BROKEN = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"

Matches = Callable[[str, str], bool]
"""(method, path) of a request."""


def reads_of_blocks(method: str, path: str) -> bool:
    """What a JuiceFS mount fetches."""
    return method == "GET" and "/chunks/" in path


@dataclass(slots=True)
class OriginProxy:
    """Change the fields at any time; they hold for the next request, the rate for the next bytes."""

    target: tuple[str, int]
    latency_s: float = 0.0
    bytes_per_s: float | None = None
    """For all answers together."""
    refuse: int | None = None
    """Status to answer with instead of asking: 403, 500, 503."""
    cut_after: int | None = None
    """Bytes of an answer's body after which the connection is closed."""
    hang: bool = False
    """Never answer."""
    gone: bool = False
    """Close every connection at once, as after the server's end."""
    on: Matches = reads_of_blocks
    """Requests that these faults hold for; latency and rate hold for all."""
    requests: int = 0
    """Requests that match `on`,"""
    fetched: int = 0
    """and bytes of the answers' bodies to them that were passed on."""
    port: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    _free_at: float = 0.0
    _then: tuple[int, Callable[[], object]] | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def heal(self) -> None:
        """Take all faults away, not the counters."""
        self.latency_s, self.bytes_per_s, self.refuse = 0.0, None, None
        self.cut_after, self.hang, self.gone = None, False, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        up: asyncio.StreamWriter | None = None
        try:
            if self.gone:
                return
            up_reader, up = await asyncio.open_connection(*self.target, limit=_HEAD)
            self._writers.add(up)
            while await self._one(reader, writer, up_reader, up):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, up):
                if one is not None:
                    self._writers.discard(one)
                    one.close()

    async def _one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; whether the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if b"\r\nexpect: 100-continue" in head.lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:"))
        matched = self.on(method, path)
        if matched:
            self.requests += 1
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if self.gone:
            return False
        if matched and self.hang:
            await asyncio.Event().wait()
        if matched and self.refuse is not None:
            await _body(reader, head, None)
            await self._answer_refused(writer, self.refuse)
            return True
        up.write(head)
        await _body(reader, head, up)
        answer = await up_reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        return await self._pass_on(up_reader, writer, answer, matched=matched, bare=method == "HEAD")

    async def _answer_refused(self, writer: asyncio.StreamWriter, status: int) -> None:
        body = _DENIED if status == 403 else _BROKEN
        head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async def _pass_on(
        self, up: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, *, matched: bool, bare: bool
    ) -> bool:
        status = int(head[9:12])
        if bare or status in {204, 304}:
            await writer.drain()
            return True
        passed = 0
        async for part in _parts(up, head):
            if self.gone or (matched and self.cut_after is not None and passed + len(part) > self.cut_after):
                return False
            await self._wait_for_rate(len(part))
            writer.write(part)
            await writer.drain()
            passed += len(part)
            if matched:
                self._count(len(part))
        return True

    def when_fetched(self, more: int, act: Callable[[], object]) -> None:
        """Call `act` in the moment in which so many more bytes have passed, before any other does."""
        self._then = (self.fetched + more, act)

    def _count(self, size: int) -> None:
        self.fetched += size
        if self._then is not None and self.fetched >= self._then[0]:
            _, act = self._then
            self._then = None
            act()

    async def _wait_for_rate(self, size: int) -> None:
        if self.bytes_per_s is None:
            return
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size / self.bytes_per_s
        await asyncio.sleep(self._free_at - now)

    def close_soon(self) -> None:
        """Close every connection, from any thread: hung requests end."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.close_all)

    def close_all(self) -> None:
        for writer in tuple(self._writers):
            writer.close()


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None


async def _body(reader: asyncio.StreamReader, head: bytes, up: asyncio.StreamWriter | None) -> None:
    if _header(head, b"content-length") is None and _header(head, b"transfer-encoding") is None:
        return  # a request without a body; an answer without a length would end with its connection
    async for part in _parts(reader, head):
        if up is not None:
            up.write(part)
            await up.drain()


async def _parts(reader: asyncio.StreamReader, head: bytes) -> AsyncIterator[bytes]:
    """The body after a head, as it came: counted, chunked, or until the end of the connection."""
    if (_header(head, b"transfer-encoding") or b"").lower() == b"chunked":
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
            if size == 0:
                return
    length = _header(head, b"content-length")
    left = int(length) if length is not None else None
    while left is None or left > 0:
        part = await reader.read(_CHUNK if left is None else min(_CHUNK, left))
        if not part:
            if left is None:
                return
            raise asyncio.IncompleteReadError(b"", left)
        left = None if left is None else left - len(part)
        yield part


@contextmanager
def origin_proxy(target: str) -> Iterator[OriginProxy]:
    """A proxy in front of the server at a URL, on a free port; it ends with the block."""
    parts = urlsplit(target)
    proxy = OriginProxy((parts.hostname or "127.0.0.1", parts.port or 80))
    loop = asyncio.new_event_loop()
    proxy.loop = loop
    started = threading.Event()

    async def run() -> None:
        listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=_HEAD)
        proxy.port = listener.sockets[0].getsockname()[1]
        started.set()
        await ended.wait()
        listener.close()
        proxy.close_all()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert started.wait(WITHIN_S)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(WITHIN_S)
        loop.close()
