"""A real JuiceFS mount for tests, always taken away again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forebay.cache.adapters import juicefs_volume
from forebay.cache.adapters.juicefs_volume import Bucket
from forebay.runtime.settings import environment

from tests.eventually import WITHIN_S, wait_until


@dataclass(frozen=True, slots=True)
class Mounted:
    """Where the mount is, and where its cache lies."""

    mountpoint: Path
    cache_dir: Path
    process: subprocess.Popen[bytes]
    log: Path

    def block_files(self) -> set[Path]:
        return {path for path in self.cache_dir.rglob("raw/chunks/**/*") if path.is_file()}

    def forget(self) -> int:
        """Take every block out of the cache, as a full or broken disk would; returns how many."""
        files = self.block_files()
        for path in files:
            path.unlink()
        return len(files)

    def kill(self) -> None:
        """End the mount as a crash would: what serves it, and what would start it again."""
        told = json.loads((self.mountpoint / ".config").read_bytes())
        self.process.kill()
        os.kill(told["Pid"], signal.SIGKILL)

    def origin_bytes(self) -> int:
        """Bytes that the mount has fetched from its object storage so far."""
        for line in (self.mountpoint / ".stats").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "juicefs_object_request_data_bytes_GET":
                return int(float(value))
        return 0


@contextmanager
def mounted(
    folder: Path,
    *,
    storage: Path | Bucket | None = None,
    meta_url: str | None = None,
    cache_dir: Path | None = None,
    io_retries: int = 10,
) -> Iterator[Mounted]:
    """Format (once) and mount under `folder`."""
    meta_url = meta_url or f"sqlite3://{folder / 'meta.db'}"
    mountpoint, cache_dir = folder / "pool", cache_dir or folder / "cache"
    mountpoint.mkdir(exist_ok=True)
    juicefs_volume.format_volume(meta_url, storage or folder / "objects", "forebay-test")
    command = juicefs_volume.mount_command(meta_url, mountpoint, cache_dir, cache_size_mib=1024, io_retries=io_retries)
    secrets = juicefs_volume.split_password(meta_url)[1]
    log_path = folder / "mount.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**environment(), **secrets})
    try:

        def there() -> bool:
            assert process.poll() is None, log_path.read_text()
            return juicefs_volume.is_mounted(mountpoint)

        wait_until(there, what="the mount is there")
        yield Mounted(mountpoint, cache_dir, process, log_path)
    finally:
        juicefs_volume.unmount(mountpoint)
        process.terminate()
        process.wait(timeout=WITHIN_S)
