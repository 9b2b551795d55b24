"""A small HTTP server that no client can occupy: one request per connection, and a deadline for each connection.

Used by the health server and by the webhook. The deadline covers everything that a
client may delay (TLS, headers, body, reading the answer), so idle and slow clients
are disconnected. When too many connections are open, the oldest is closed and the
new one is served.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

_log = logging.getLogger(__name__)
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server grants its clients."""

    connections: int
    """Open at once; one more closes the oldest."""
    seconds: float
    """From the connection to the last byte of the answer."""
    body_bytes: int
    """Of a request; a longer body gets 413."""
    line_bytes: int = 8190
    """Of the request line and of each header."""
    headers: int = 64


class LimitedServer(web.Server):
    """aiohttp's server with `Limits`."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[web.RequestHandler, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}
        loop = asyncio.get_running_loop()

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            response = await handler(request)
            response.force_close()
            return response

        def make_request(
            message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
        ) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=limits.body_bytes)

        super().__init__(
            answer,
            request_factory=make_request,
            access_log=None,
            logger=_log,
            keepalive_timeout=limits.seconds,
            lingering_time=min(1.0, limits.seconds),
            max_line_size=limits.line_bytes,
            max_field_size=limits.line_bytes,
            max_headers=limits.headers,
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._open) >= self._limits.connections:
            oldest, _ = next(iter(self._open.values()))
            oldest.abort()
            self._forget(next(iter(self._open)))
        expiry = asyncio.get_running_loop().call_later(self._limits.seconds, transport.abort)
        self._open[handler] = transport, expiry

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._forget(handler)

    def _forget(self, handler: web.RequestHandler) -> None:
        if (known := self._open.pop(handler, None)) is not None:
            known[1].cancel()


async def serve(
    handler: Handler, limits: Limits, *, grace_s: float, ssl_context: ssl.SSLContext | None = None, **where: Any
) -> Callable[[], Awaitable[None]]:
    """Listen (`host` and `port`, or `sock`) until the returned function is called. Raises `OSError`.

    A request that is being answered then gets `grace_s` to end.
    """
    server = LimitedServer(handler, limits)
    handshake = None if ssl_context is None else limits.seconds
    listener = await asyncio.get_running_loop().create_server(
        server, ssl=ssl_context, ssl_handshake_timeout=handshake, **where
    )

    async def stop() -> None:
        listener.close()
        await server.shutdown(grace_s)

    return stop
