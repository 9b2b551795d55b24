"""A real S3 server: SeaweedFS, all of it in one process, from its wheel."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from forebay.local.home import free_port
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.eventually import WITHIN_S, eventually

ACCESS_KEY, SECRET_KEY = "forebay-test", "a-secret-of-the-test"
_GRPC = 10_000
"""SeaweedFS counts its gRPC ports from the others when it is not told otherwise."""
_OUTGOING = 32_768
"""From here on the kernel gives ports to outgoing connections."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """One running server."""

    endpoint: str

    def environment(self) -> dict[str, str]:
        """What a client finds in its environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    def bucket(self, name: str) -> S3Store:
        return S3Store(
            name,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    async def upload(self, folder: Path, bucket: str, prefix: str) -> str:
        """Put every file of a folder below the prefix; returns the URI."""
        store = self.bucket(bucket)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            await obstore.put_async(store, f"{prefix}/{path.relative_to(folder).as_posix()}", path)
        return f"s3://{bucket}/{prefix}"


@asynccontextmanager
async def s3_server(folder: Path) -> AsyncIterator[S3Server]:
    """Start a server; what is put into a bucket makes it (names have at least 3 characters)."""
    config = folder / "s3.json"
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    config.write_text(json.dumps({"identities": [{"name": "test", "credentials": credentials, "actions": actions}]}))
    data = folder / "weed"
    data.mkdir()
    ports = {name: _port() for name in ("master", "volume", "filer", "s3")}
    command = [
        str(Path(sys.executable).parent / "weed"), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-filer", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false",
        "-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=64",
        *(f"-{name}.port={port}" for name, port in ports.items()),
        *(f"-{name}.port.grpc={port + _GRPC}" for name, port in ports.items()),
    ]  # fmt: skip
    with (folder / "weed.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, cwd=data)
    server = S3Server(f"http://127.0.0.1:{ports['s3']}")
    try:
        await eventually(lambda: _takes_objects(server), what="SeaweedFS takes objects")
        yield server
    finally:
        process.send_signal(signal.SIGKILL)  # a polite end takes it ten seconds
        await process.wait()


@contextmanager
def s3_server_beside(folder: Path) -> Iterator[S3Server]:
    """The same for tests that block: the server is looked after by a loop on a thread of its own."""
    loop, started, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    running: list[S3Server] = []

    async def run() -> None:
        try:
            async with s3_server(folder) as server:
                running.append(server)
                started.set()
                await ended.wait()
        finally:
            started.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    started.wait(WITHIN_S)
    assert running, (folder / "weed.log").read_text()
    try:
        yield running[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(WITHIN_S)
        loop.close()


async def _takes_objects(server: S3Server) -> bool:
    try:
        await obstore.put_async(server.bucket("probe"), "probe", b"probe")
    except BaseError:
        return False
    return True


def _port() -> int:
    """A free port whose gRPC port is free as well."""
    while True:
        port = free_port()
        if port + _GRPC < _OUTGOING and free_port(port + _GRPC) == port + _GRPC:
            return port
