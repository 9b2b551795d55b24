"""Health: what a service says about itself, over the bus and on /healthz and /metrics.

The HTTP server runs in a thread, so it answers even while the event loop is busy.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

_log = logging.getLogger(__name__)


class Health:
    """The current state of one service; `probes` add facts that change by themselves."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.phase = "starting"
        self.caught_up = False
        self.started = time.time()
        self._probes: dict[str, Callable[[], Any]] = {}
        self._problems: dict[str, Callable[[], str]] = {}

    def probe(self, name: str, read: Callable[[], Any]) -> None:
        self._probes[name] = read

    def problem(self, name: str, read: Callable[[], str]) -> None:
        """Any sentence that `read` gives makes the report red."""
        self._problems[name] = read

    def report(self) -> dict[str, Any]:
        facts = {name: read() for name, read in self._probes.items()}
        problems = {name: said for name, read in self._problems.items() if (said := read())}
        trouble = [facts[name] for name in ("trouble",) if facts.get(name)]
        healthy = self.caught_up and bool(facts.get("connected", True)) and not trouble and not problems
        return {
            "service": self.service,
            "healthy": healthy,
            "phase": self.phase,
            "caught_up": self.caught_up,
            "up_s": round(time.time() - self.started, 1),
            "problems": problems,
            **facts,
        }


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the parent's name
        _log.debug(format, *args)


def serve(health: Health, address: str, port: int) -> Callable[[], None]:
    """Serve /healthz (200 or 503) and /metrics; returns how to stop."""
    metrics = make_wsgi_app()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        if path != "/healthz":
            start_response("404 Not Found", [("content-type", "text/plain")])
            return [b"/healthz and /metrics live here\n"]
        report = health.report()
        status = "200 OK" if report["healthy"] else "503 Service Unavailable"
        start_response(status, [("content-type", "application/json")])
        return [json.dumps(report, default=str).encode() + b"\n"]

    server: WSGIServer = make_server(address, port, application, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop
