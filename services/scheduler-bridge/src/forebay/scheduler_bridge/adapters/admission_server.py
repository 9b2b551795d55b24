"""The mutating webhook over HTTPS: reads the API server's question, answers what `domain/admission.py` says.

Run by `webhook_app.py`. It stands in nobody's way: what goes wrong here lets the Job
through with a warning, and a port or certificate that cannot be used is tried again.
No client can occupy it (`runtime/http_server.py`), and its probes are on another port.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from forebay.scheduler_bridge.domain.admission import Asked, NotAReviewError, answer, asked_of, let_through, site_of
from forebay.scheduler_bridge.domain.applied import NotInstrumentableError, as_job
from forebay.scheduler_bridge.domain.cluster.moves import GateKind
from forebay.scheduler_bridge.domain.manifest import Site
from forebay.scheduler_bridge.errors import ApiError

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger(__name__)
MAX_BYTES = 8 << 20
"""A request of the API server holds an object twice, and it takes none above 3 MiB."""
CONNECTIONS = 32
DEADLINE_S = 5.0
"""For one question; the API server gives up after three seconds."""
GATE_S = 1.0
"""How long an answer waits to learn which gate the cluster honours; the one that is always safe is taken then."""
AGAIN_S = 5.0
"""Until a port or certificate is tried again."""


class Gates(Protocol):
    """Knows which gate the cluster honours."""

    async def kind(self, namespace: str, queue: str) -> GateKind: ...


class Probes(Protocol):
    """Where the state of the webhook is shown (`Health`)."""

    def probe(self, name: str, read: Callable[[], Any]) -> None: ...


class AdmissionServer:
    """One webhook for all projects of one cluster."""

    def __init__(
        self,
        sites: Mapping[str, Site],
        gates: Gates,
        tls: Path,
        port: int,
        *,
        again_s: float = AGAIN_S,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._sites = sites
        self._gates = gates
        self._certificate = Certificate(tls)
        self._port = port
        self._again_s = again_s
        self._deadline_s = deadline_s
        self._asking: dict[str, asyncio.Task[GateKind]] = {}
        self._state = "starting"
        self._listening = False

    async def __call__(self, health: Probes) -> None:
        """Answer until cancelled."""
        health.probe("webhook", lambda: self._state)
        health.probe("connected", lambda: self._listening)
        while True:
            try:
                await self._serve()
            except (OSError, ssl.SSLError) as error:
                self._state = f"cannot listen on port {self._port}: {error}"
                _log.warning("webhook: %s", self._state)
            await asyncio.sleep(self._again_s)

    async def _serve(self) -> None:
        from forebay.runtime import http_server  # noqa: PLC0415 slow to import

        limits = http_server.Limits(connections=CONNECTIONS, seconds=self._deadline_s, body_bytes=MAX_BYTES)
        context = self._certificate.context()
        stop = await http_server.serve(
            self._answer, limits, grace_s=self._deadline_s, ssl_context=context, port=self._port
        )
        try:
            self._state, self._listening = f"answers on port {self._port}", True
            _log.info("webhook: %s", self._state)
            await asyncio.Event().wait()
        finally:
            self._listening = False
            await stop()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        from aiohttp import web  # noqa: PLC0415 as above

        if request.path != "/mutate":
            return web.Response(status=404, text="only /mutate is answered here; health is on another port\n")
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"}, text="only POST is supported\n")
        try:
            asked = asked_of(await request.read())
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413, text=f"no AdmissionReview has more than {MAX_BYTES} bytes\n")
        except NotAReviewError as error:
            return web.Response(status=400, text=f"{error}\n")
        try:
            answered = answer(asked, self._sites, gate=await self._gate(asked))
        except Exception as error:  # noqa: BLE001 our own mistake must not keep anybody's Job out
            _log.exception("webhook: %s %s in %s", asked.operation, asked.uid, asked.namespace)
            answered = let_through(asked.uid, f"{type(error).__name__} in its webhook; its log says more")
        return web.Response(body=msgspec.json.encode(answered), content_type="application/json")

    async def _gate(self, asked: Asked) -> GateKind:
        """Which gate to put: a queue's name that is kept off holds everywhere, so it is what is not known yet."""
        job = asked.job
        if job is None or asked.operation != "CREATE":
            return "label"
        try:
            as_job(job)
            site = site_of(job, asked.namespace, self._sites)
        except NotInstrumentableError:
            return "label"  # told by the answer
        if not site.kueue:
            return "suspend"
        name = site.project.project
        if name not in self._asking or self._asking[name].done():
            found = self._gates.kind(site.project.namespace, site.project.queues[0])
            self._asking[name] = asyncio.ensure_future(_quietly(found))
        done, _ = await asyncio.wait({self._asking[name]}, timeout=GATE_S)
        return self._asking[name].result() if done else "label"


async def _quietly(asking: Awaitable[GateKind]) -> GateKind:
    try:
        return await asking
    except ApiError as error:
        _log.warning("webhook: it is not known which gate the cluster honours: %s", error)
        return "label"


class Certificate:
    """`tls.crt` and `tls.key` of a folder; a connection gets the files as they are when it is made."""

    def __init__(self, folder: Path) -> None:
        self._chain, self._key = folder / "tls.crt", folder / "tls.key"
        self._seen: tuple[tuple[int, int, int], ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """For a server. Raises `OSError` or `ssl.SSLError` when there is no usable certificate."""
        context = self._load()
        context.sni_callback = self._choose
        return context

    def _load(self) -> ssl.SSLContext:
        seen = tuple(
            (found.st_ino, found.st_mtime_ns, found.st_size) for found in (self._chain.stat(), self._key.stat())
        )
        if self._context is None or seen != self._seen:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._chain, self._key)
            self._context, self._seen = context, seen
        return self._context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called for each handshake, also without a server name."""
        try:
            connection.context = self._load()
        except (OSError, ssl.SSLError) as error:  # half written: the one from before still stands
            _log.warning("webhook: the new certificate cannot be used yet: %s", error)
