"""Attacks on the health port: whoever reaches it cannot keep a probe from its answer, nor read or change anything else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psutil
import pytest
from forebay.local.home import free_port
from forebay.runtime import health_server
from forebay.runtime.health import Health

from tests.eventually import eventually

ADDRESS = "127.0.0.1"
DEADLINE_S = 1.5
Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def health() -> Health:
    return Health("toy")


@contextmanager
def listening(health: Health, *, stalled_s: float = 60) -> Iterator[int]:
    port = free_port()
    stop = health_server.serve(health, ADDRESS, port, stalled_s=stalled_s, deadline_s=DEADLINE_S)
    try:
        yield port
    finally:
        stop()


@asynccontextmanager
async def connected(port: int, count: int, sent: bytes = b"") -> AsyncIterator[list[Pipe]]:
    """That many open connections, each of which has sent these bytes."""
    pipes = [await asyncio.open_connection(ADDRESS, port) for _ in range(count)]
    try:
        for _, writer in pipes:
            writer.write(sent)
        yield pipes
    finally:
        for _, writer in pipes:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def server_side(port: int) -> int:
    """Connections that the server holds."""
    found = psutil.Process().net_connections("tcp")
    return sum(item.status == psutil.CONN_ESTABLISHED and item.laddr[1] == port for item in found)


async def answered(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and body; status 0 when the connection was closed without an answer."""
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    try:
        writer.write(request)
        with contextlib.suppress(ConnectionError):
            text = await reader.read()
            head, _, body = text.partition(b"\r\n\r\n")
            return (int(head.split()[1]), body) if head else (0, b"")
        return 0, b""
    finally:
        writer.close()


async def get(port: int, path: str) -> tuple[int, bytes]:
    async with asyncio.timeout(10):
        return await answered(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def quick(port: int, path: str = "/livez") -> tuple[int, bytes]:
    """The answer, which must come within a second."""
    async with asyncio.timeout(1):
        return await get(port, path)


async def listens(port: int) -> None:
    async def ready() -> bool:
        return (await get(port, "/livez"))[0] == 200

    await eventually(ready, what="the health server answers")


async def test_alive_ready_and_healthy_are_three_questions(health: Health) -> None:
    """A service that waits for the bus is alive; one with parked messages works, and is not healthy."""
    connected_now, problem = False, ""
    health.probe("connected", lambda: connected_now)
    health.problem("parked", lambda: problem)
    with listening(health) as port:
        await listens(port)

        async def statuses() -> list[int]:
            return [(await get(port, path))[0] for path in ("/livez", "/readyz", "/healthz")]

        assert await statuses() == [200, 503, 503]
        connected_now, health.caught_up = True, True
        assert await statuses() == [200, 200, 200]
        problem = "one message is parked"
        assert await statuses() == [200, 200, 503]
        assert json.loads((await get(port, "/healthz"))[1])["problems"] == [problem]
        connected_now = False
        assert await statuses() == [200, 503, 503]


async def test_a_loop_that_stands_still_is_not_alive(health: Health) -> None:
    """The server answers from its own thread, and says that the service's loop does not turn."""
    with listening(health, stalled_s=1.5) as port:
        await listens(port)

        def ask_later() -> int:
            time.sleep(2)
            return asyncio.run(get(port, "/livez"))[0]

        waiting = asyncio.get_running_loop().run_in_executor(None, ask_later)
        time.sleep(3)  # noqa: ASYNC251 the fault under test: something blocks the loop
        assert await waiting == 503
        await eventually(lambda: quick(port), what="it turns again")
        assert (await quick(port))[0] == 200


async def test_idle_connections_keep_nobody_out(health: Health) -> None:
    """With 300 connections that say nothing, liveness is answered within a second, and the idle ones are closed."""
    with listening(health) as port:
        await listens(port)
        async with connected(port, 300) as pipes:
            for _ in range(10):
                assert (await quick(port))[0] == 200
            assert server_side(port) <= health_server.CONNECTIONS
            await eventually(lambda: server_side(port) == 0, what="the server has closed them")
            for reader, _ in pipes:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""


async def test_a_request_that_comes_byte_by_byte_is_cut_off(health: Health) -> None:
    """Dripping headers do not extend the deadline, and nobody else waits."""
    with listening(health) as port:
        await listens(port)
        started = time.monotonic()
        async with connected(port, 100, b"GET /livez HTTP/1.1\r\n") as pipes:

            async def drip(pipe: Pipe) -> None:
                with contextlib.suppress(ConnectionError):
                    while not pipe[0].at_eof():
                        pipe[1].write(b"X: y\r\n")
                        await pipe[1].drain()
                        await asyncio.sleep(0.2)

            async with asyncio.timeout(DEADLINE_S + 5), asyncio.TaskGroup() as group:
                for pipe in pipes:
                    group.create_task(drip(pipe))
                assert (await quick(port))[0] == 200
        assert time.monotonic() - started < DEADLINE_S + 5


async def test_a_body_that_never_ends_is_cut_off(health: Health) -> None:
    """The answer does not wait for it, and the connection does not outlive its deadline."""
    with listening(health) as port:
        await listens(port)
        head = b"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        async with connected(port, 20, head) as pipes:

            async def pour(pipe: Pipe) -> None:
                with contextlib.suppress(ConnectionError):
                    while not pipe[0].at_eof():
                        pipe[1].write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                        await pipe[1].drain()
                        await asyncio.sleep(0.05)

            async with asyncio.timeout(DEADLINE_S + 5), asyncio.TaskGroup() as group:
                for pipe in pipes:
                    group.create_task(pour(pipe))
                assert (await quick(port))[0] == 200


async def test_an_answer_that_nobody_reads_is_given_up(health: Health) -> None:
    """A client that asks for much and takes nothing does not keep a connection."""
    health.probe("much", lambda: "x" * (16 << 20))
    with listening(health) as port:
        await listens(port)
        async with connected(port, 4, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") as pipes:
            for reader, _ in pipes:
                assert await reader.readexactly(1) == b"H"
            await eventually(lambda: server_side(port) == 0, what="the server has closed them")
            for reader, _ in pipes:
                with contextlib.suppress(ConnectionError):
                    assert len(await reader.read()) < 16 << 20


@pytest.mark.parametrize(
    ("what", "request_", "expected"),
    [
        ("a huge header", b"GET /livez HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", {400, 0}),
        ("a huge path", b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", {400, 0}),
        ("many headers", b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n", {400, 0}),
        ("no HTTP", b"\x16\x03\x01\x02\x00\r\n\r\n", {400}),
        ("a change", b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", {405}),
        ("deletion", b"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
        ("a file", b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", {404}),
        ("no body for HEAD", b"HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n", {200}),
    ],
)
async def test_what_it_does_not_serve_is_refused(
    health: Health, what: str, request_: bytes, expected: set[int]
) -> None:
    """A clear no or a closed connection, and the next probe is answered."""
    with listening(health) as port:
        await listens(port)
        status, body = await answered(port, request_)
        assert status in expected, what
        assert request_[:4] != b"HEAD" or body == b""
        assert (await quick(port))[0] == 200


async def test_metrics_are_in_the_format_of_prometheus(health: Health) -> None:
    """What Prometheus scrapes."""
    with listening(health) as port:
        await listens(port)
        status, body = await get(port, "/metrics")
    assert status == 200
    assert b"# TYPE python_info gauge" in body


async def test_a_port_in_use_is_an_error_at_once(health: Health) -> None:
    """The service does not start without its health port."""
    with listening(health) as port, pytest.raises(OSError, match="in use"):
        health_server.serve(health, ADDRESS, port)
