"""A service's health over HTTP: `/livez`, `/readyz`, `/healthz` and `/metrics`.

It runs in a thread with an event loop of its own, so it answers while the service's loop
is busy. Liveness means that the service's loop still runs; readiness, that it has read
the whole log and is connected; health, that nothing at all is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from forebay.runtime.health import Health

if TYPE_CHECKING:
    from aiohttp import web

BEAT_S = 1.0
STALLED_S = 60.0
"""A loop that did not turn for this long is taken for dead."""
CONNECTIONS = 64
DEADLINE_S = 5.0
MAX_BODY_BYTES = 1024
_BACKLOG = 128
_STOP_S = 5.0


class Heartbeat:
    """When the loop that created it last turned."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = time.monotonic()
        self._timer = self._loop.call_soon(self._beat)

    def _beat(self) -> None:
        self._last = time.monotonic()
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def age_s(self) -> float:
        return time.monotonic() - self._last

    def stop(self) -> None:
        self._timer.cancel()


def serve(
    health: Health, address: str, port: int, *, stalled_s: float = STALLED_S, deadline_s: float = DEADLINE_S
) -> Callable[[], None]:
    """Serve until the returned function is called. To be called in the loop that `/livez` judges. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    heartbeat = Heartbeat()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    pages = Pages(health, heartbeat, stalled_s)
    thread = threading.Thread(target=_run, args=(loop, pages, listener, ended, deadline_s), name="health", daemon=True)
    thread.start()

    def stop() -> None:
        heartbeat.stop()
        with contextlib.suppress(RuntimeError):  # the server ended before; what it met is in the log
            loop.call_soon_threadsafe(ended.set)
        thread.join(_STOP_S)

    return stop


def _run(
    loop: asyncio.AbstractEventLoop, pages: Pages, listener: socket.socket, ended: asyncio.Event, deadline_s: float
) -> None:
    from forebay.runtime import http_server  # noqa: PLC0415 takes long; here it does not delay the service's start

    limits = http_server.Limits(connections=CONNECTIONS, seconds=deadline_s, body_bytes=MAX_BODY_BYTES)

    async def until_ended() -> None:
        stop = await http_server.serve(pages, limits, grace_s=0.2, sock=listener, backlog=_BACKLOG)
        await ended.wait()
        await stop()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(until_ended())


class Pages:
    """What is answered."""

    def __init__(self, health: Health, heartbeat: Heartbeat, stalled_s: float) -> None:
        self._health = health
        self._heartbeat = heartbeat
        self._stalled_s = stalled_s
        self._pages: dict[str, Callable[[web.BaseRequest], web.Response]] = {
            "/livez": self._live,
            "/readyz": self._ready,
            "/healthz": self._healthy,
            "/metrics": self._metrics,
        }

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        from aiohttp import web  # noqa: PLC0415 as above

        page = self._pages.get(request.path)
        if page is None:
            return web.Response(status=404, text=f"no such page; there are {', '.join(self._pages)}\n")
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, headers={"Allow": "GET, HEAD"}, text="only GET and HEAD are supported\n")
        return page(request)

    def _live(self, _: web.BaseRequest) -> web.Response:
        age = self._heartbeat.age_s()
        return _json({"alive": age < self._stalled_s, "heartbeat_age_s": round(age, 1)}, ok=age < self._stalled_s)

    def _ready(self, _: web.BaseRequest) -> web.Response:
        report = self._health.report()
        return _json(report, ok=bool(report["ready"]))

    def _healthy(self, _: web.BaseRequest) -> web.Response:
        report = self._health.report()
        return _json(report, ok=bool(report["healthy"]))

    def _metrics(self, request: web.BaseRequest) -> web.Response:
        from aiohttp import web  # noqa: PLC0415 as above

        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})


def _json(report: dict[str, Any], *, ok: bool) -> web.Response:
    from aiohttp import web  # noqa: PLC0415 as above

    body = json.dumps(report, default=str).encode() + b"\n"
    return web.Response(status=200 if ok else 503, body=body, content_type="application/json")
