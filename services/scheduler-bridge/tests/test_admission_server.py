"""The webhook over real HTTPS: questions, nonsense, a certificate that is exchanged, and what it does when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
import subprocess
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from forebay.local.home import free_port
from forebay.runtime.health import Health
from forebay.scheduler_bridge.adapters.admission_server import MAX_BYTES, AdmissionServer
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.cluster.moves import GateKind
from forebay.scheduler_bridge.errors import ApiSilentError

from tests.eventually import eventually

from .cluster_jobs import site
from .test_admission import review
from .test_instrument import plain_job

Json = dict[str, Any]
DEADLINE_S = 2.0
SCRIPT = Path(__file__).parents[3] / "deploy/kubernetes/certificate.sh"


def make_certificate(folder: Path) -> Path:
    """As operators make it."""
    subprocess.run([str(SCRIPT), str(folder), "localhost", "127.0.0.1"], check=True)
    return folder


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    return make_certificate(tmp_path / "tls")


class Watched(Health):
    """What the webhook shows of itself."""

    def __init__(self) -> None:
        super().__init__("webhook")
        self.caught_up = True

    def state(self) -> str:
        return str(self.report().get("webhook", ""))

    async def shows(self, text: str) -> None:
        """Wait until it says so."""
        await eventually(lambda: text in self.state(), what=f"the webhook shows {text!r}")


class Gates:
    """A cluster that honours our gate, or does not answer."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent

    async def kind(self, namespace: str, queue: str) -> GateKind:
        assert (namespace, queue) == ("robot-train", "team-a")
        if self._silent:
            msg = "no answer"
            raise ApiSilentError(msg)
        return "annotation"


@asynccontextmanager
async def served(tls: Path, gates: Gates | None = None, port: int = 0) -> AsyncIterator[tuple[int, Watched]]:
    """The port of a webhook that runs, and what it shows; it ends with the test."""
    port = port or free_port()
    sites, company = {"arm-lab": site()}, Watched()
    server = AdmissionServer(sites, gates or Gates(), tls, port, again_s=0.05, deadline_s=DEADLINE_S)
    task = asyncio.create_task(server(company))
    try:
        yield port, company
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def asked(port: int, tls: Path, content: Any, path: str = "/mutate") -> tuple[int, Any]:
    """One question over a connection of its own, with the certificate checked."""
    trust = ssl.create_default_context(cafile=str(tls / "tls.crt"))
    url = f"https://127.0.0.1:{port}{path}"
    body: Json = {"data": io.BytesIO(content)} if isinstance(content, bytes) else {"json": content}
    async with aiohttp.ClientSession() as session, session.post(url, ssl=trust, **body) as response:
        is_json = response.content_type == "application/json"
        return response.status, await (response.json() if is_json else response.text())


def patch_of(answered: Json) -> str:
    return b64decode(answered["response"]["patch"]).decode().replace("~1", "/")


async def test_it_answers_the_api_server(tls: Path) -> None:
    """A patch for an annotated Job, over TLS."""
    async with served(tls) as (port, company):
        await company.shows("answers on port")
        status, found = await asked(port, tls, review(plain_job()))
    assert status == 200
    assert found["response"]["allowed"]
    assert layout.GATE in patch_of(found)


async def test_a_gate_that_is_not_known_is_the_one_that_is_always_safe(tls: Path) -> None:
    """The queue's name is kept off, and nobody waits for the cluster's answer."""
    async with served(tls, Gates(silent=True)) as (port, company):
        await company.shows("answers on port")
        _, found = await asked(port, tls, review(plain_job()))
    assert layout.GATE not in patch_of(found)
    assert layout.WAITING_QUEUE in patch_of(found)


async def test_nonsense_is_answered_and_survived(tls: Path) -> None:
    """Bytes, huge bodies, other paths: a clear no, and the next question is answered."""
    async with served(tls) as (port, company):
        await company.shows("answers on port")
        status, said = await asked(port, tls, b"{")
        assert (status, "AdmissionReview" in said) == (400, True)
        status, said = await asked(port, tls, b"[" * (MAX_BYTES + 1))
        assert (status, str(MAX_BYTES) in said) == (413, True)
        assert (await asked(port, tls, {}, "/elsewhere"))[0] == 404
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"this is no TLS\r\n\r\n")
        await reader.read()
        writer.close()
        assert (await asked(port, tls, review({"metadata": {}})))[1]["response"]["allowed"]
        trust = ssl.create_default_context(cafile=str(tls / "tls.crt"))
        for path, status in (("healthz", 404), ("mutate", 405)):
            url = f"https://127.0.0.1:{port}/{path}"
            async with aiohttp.ClientSession() as session, session.get(url, ssl=trust) as response:
                assert response.status == status


async def test_a_new_certificate_counts_from_the_next_connection_on(tls: Path, tmp_path: Path) -> None:
    """Nothing is restarted, and a file that is half written changes nothing."""
    async with served(tls) as (port, company):
        await company.shows("answers on port")
        old = tmp_path / "old"
        old.mkdir()
        (old / "tls.crt").write_bytes((tls / "tls.crt").read_bytes())
        (tls / "tls.crt").write_text("-----BEGIN CERTIFICATE-----\n")
        assert (await asked(port, old, review(plain_job())))[0] == 200
        make_certificate(tls)
        assert (await asked(port, tls, review(plain_job())))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asked(port, old, review(plain_job()))


async def test_without_port_or_certificate_it_tries_again(tmp_path: Path) -> None:
    """The bridge goes on meanwhile; health says what is missing."""
    async with served(tmp_path / "tls") as (port, company):
        await company.shows("No such file")
        assert not company.report()["healthy"]
        tls = make_certificate(tmp_path / "tls")
        await company.shows("answers on port")
        assert company.report()["healthy"]
        async with served(tls, port=port) as (_, second):
            await second.shows("in use")
        assert (await asked(port, tls, review(plain_job())))[0] == 200


@pytest.mark.parametrize(
    ("what", "encrypted", "sent"),
    [
        ("nothing, not even TLS", False, b""),
        ("nothing", True, b""),
        ("half a header", True, b"POST /mutate HTTP/1.1\r\nHost: x\r\n"),
        ("half a body", True, b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"),
    ],
)
async def test_clients_that_send_nothing_keep_nobody_out(tls: Path, what: str, sent: bytes, *, encrypted: bool) -> None:
    """Sixty of them at once: the API server is answered within its three seconds, and they are disconnected."""
    del what
    trust = ssl.create_default_context(cafile=str(tls / "tls.crt")) if encrypted else None
    async with served(tls) as (port, company):
        await company.shows("answers on port")
        pipes = [await asyncio.open_connection("127.0.0.1", port, ssl=trust) for _ in range(60)]
        try:
            for _, writer in pipes:
                writer.write(sent)
            async with asyncio.timeout(3):
                status, found = await asked(port, tls, review(plain_job()))
            assert (status, found["response"]["allowed"]) == (200, True)
            async with asyncio.timeout(DEADLINE_S + 3):
                for reader, _ in pipes:
                    with contextlib.suppress(ConnectionError):
                        await reader.read()
        finally:
            for _, writer in pipes:
                writer.close()
