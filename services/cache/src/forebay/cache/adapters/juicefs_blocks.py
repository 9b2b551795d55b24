"""Blocks of a JuiceFS volume: which ones a file has, and which lie whole and unbroken in a mount's cache.

A cached block is a file `raw/chunks/…/<slice>_<index>_<size>` in the cache folder: its
bytes, then a CRC-32C of each 32 KiB. A block counts when its file has that size and
every checksum holds. What was compared is not compared again while the file stays as
it is, so that looking again costs a `stat` per block.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import google_crc32c

from forebay.cache.adapters.juicefs_volume import program
from forebay.cache.domain.plan import ByteRange
from forebay.cache.errors import PoolError

_UNIT = 32 * 1024
_REMEMBERED_BLOCKS = 1_000_000
_INFO_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Block:
    """One object of the volume, as far as it is visible in a file."""

    name: str
    """`chunks/…/<slice>_<index>_<size>`; empty for a hole, which has nothing to fetch."""
    size: int
    visible: ByteRange

    def touched(self, spans: Sequence[ByteRange]) -> list[ByteRange]:
        """The parts of the visible bytes that are planned."""
        parts = (
            ByteRange(max(self.visible.start, start), min(self.visible.end, end))
            for start, end in spans
            if start < self.visible.end and end > self.visible.start
        )
        return [part for part in parts if part.length > 0]


@dataclass(frozen=True, slots=True)
class Mount:
    """What a mount says about itself."""

    cache_dirs: tuple[Path, ...]
    block_bytes: int
    capacity_bytes: int
    keep_free_ratio: float
    prefetch: int
    """Whole blocks that are fetched at a time behind small reads."""
    checksums: bool
    """Whether cached blocks carry checksums, which the mount compares as it reads."""

    def files_of(self, block: Block) -> tuple[Path, ...]:
        """Where the block's file may lie."""
        return tuple(folder / "raw" / block.name for folder in self.cache_dirs) if block.name else ()


def read_mount(mountpoint: Path) -> Mount:
    """Ask the mount itself: the answer is also the proof that it works."""
    try:
        told = json.loads((mountpoint / ".config").read_bytes())
    except (OSError, ValueError) as error:
        msg = f"{mountpoint} is no working JuiceFS mount: {error}; start it again with 'forebay up'"
        raise PoolError(msg) from error
    chunk: Mapping[str, object] = told["Chunk"]
    folders = tuple(Path(folder) for folder in str(chunk["CacheDir"]).split(":"))
    if not all(folder.is_absolute() and folder.is_dir() for folder in folders):
        msg = f"the mount at {mountpoint} caches in {chunk['CacheDir']!r}, which cannot be looked into from here"
        raise PoolError(msg)
    return Mount(
        cache_dirs=folders,
        block_bytes=int(str(chunk["BlockSize"])),
        capacity_bytes=int(str(chunk["CacheSize"])),
        keep_free_ratio=float(str(chunk["FreeSpace"])),
        prefetch=int(str(chunk["Prefetch"])),
        checksums=chunk["CacheChecksum"] != "none",
    )


def read_statistic(mountpoint: Path, wanted: str) -> int:
    """One counter of the mount; 0 before it has counted anything."""
    try:
        lines = (mountpoint / ".stats").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        msg = f"{mountpoint} is no working JuiceFS mount: {error}; start it again with 'forebay up'"
        raise PoolError(msg) from error
    return next((int(float(value)) for name, _, value in (one.partition(" ") for one in lines) if name == wanted), 0)


class CachedBlocks:
    """Looks at block files, remembering what it has compared. Used from several threads."""

    def __init__(self) -> None:
        self._compared: dict[str, tuple[int, int, int]] = {}
        self._lock = Lock()

    def whole(self, mount: Mount, block: Block) -> bool:
        """Whether the block lies in the cache with every byte as it was fetched."""
        if not block.name:
            return True
        return any(self._whole_file(path, block, mount) for path in mount.files_of(block))

    def broken(self, mount: Mount, block: Block) -> bool:
        """Whether a file of the block is there that does not hold what it should."""
        return lies_in(mount, block) and not self.whole(mount, block)

    def _whole_file(self, path: Path, block: Block, mount: Mount) -> bool:
        try:
            told = path.stat()
        except OSError:
            return False
        checksums = 4 * -(-block.size // _UNIT) if mount.checksums else 0
        if told.st_size != block.size + checksums:
            return False
        seen = (told.st_mtime_ns, told.st_ino, told.st_size)
        with self._lock:
            if self._compared.get(block.name) == seen:
                return True
        if mount.checksums and not _holds(path, block.size):
            return False
        with self._lock:
            self._compared[block.name] = seen
            while len(self._compared) > _REMEMBERED_BLOCKS:
                del self._compared[next(iter(self._compared))]
        return True


def _holds(path: Path, size: int) -> bool:
    """Whether every 32 KiB of a block file has its checksum."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    wanted = struct.unpack(f">{(len(content) - size) // 4}I", content[size:])
    starts = range(0, size, _UNIT)
    return all(
        google_crc32c.value(content[start : min(start + _UNIT, size)]) == value
        for start, value in zip(starts, wanted, strict=True)
    )


def lies_in(mount: Mount, block: Block) -> bool:
    """Whether anything of the block lies in the cache, whole or not."""
    return any(path.exists() for path in mount.files_of(block))


def take_out(mount: Mount, block: Block) -> int:
    """Delete the block's file; the mount finds it missing and asks its origin the next time. Returns bytes freed."""
    freed = 0
    for path in mount.files_of(block):
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            msg = f"{path} cannot be deleted: {error.strerror}; the cache disk of {path.anchor} may have failed"
            raise PoolError(msg) from error
        freed += size
    return freed


def ask_blocks(paths: Sequence[Path]) -> list[tuple[Block, ...]]:
    """Run `juicefs info` and read its tables of objects, one per path in the order asked."""
    told = run_juicefs("info", *(str(path) for path in paths))
    tables = list(_tables(told, [f"{path} :" for path in paths]))
    for path, blocks in zip(paths, tables, strict=True):
        told_bytes = sum(block.visible.length for block in blocks)
        if told_bytes != path.stat().st_size:
            msg = f"'juicefs info' accounts for {told_bytes:,} bytes of {path}, which has {path.stat().st_size:,}"
            raise PoolError(msg)
    return tables


def run_juicefs(command: str, *arguments: str) -> str:
    """Run a command on paths of a mount; raises `PoolError` when it fails."""
    try:
        done = subprocess.run(  # noqa: S603 our own program, no shell
            [program(), "--no-agent", command, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=_INFO_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        msg = (
            f"'juicefs {command}' did not answer within {_INFO_SECONDS} s for {arguments[-1]}; is the mount overloaded?"
        )
        raise PoolError(msg) from error
    if done.returncode != 0:
        told = " ".join(done.stderr.strip().splitlines()[-2:])
        msg = f"'juicefs {command}' failed for {arguments[-1]} (last of {len(arguments)}): {told}"
        raise PoolError(msg)
    return done.stdout


def _tables(text: str, headings: Sequence[str]) -> Iterator[tuple[Block, ...]]:
    """The rows `| chunk | object | size | offset | length | pos |` below each heading."""
    wanted = list(headings)
    blocks: list[Block] | None = None
    for line in text.splitlines():
        if wanted and line == wanted[0]:
            if blocks is not None:
                yield tuple(blocks)
            blocks = []
            wanted.pop(0)
        elif blocks is not None and line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) == 6 and cells[0].isdigit():
                blocks.append(_block(cells))
    if blocks is not None:
        yield tuple(blocks)
    if wanted:
        msg = f"'juicefs info' said nothing about {wanted[0].removesuffix(' :')}"
        raise PoolError(msg)


def _block(cells: Sequence[str]) -> Block:
    _, name, size, _, length, position = cells
    start = int(position)
    short = name[name.index("chunks/") :] if name else ""
    return Block(name=short, size=int(size), visible=ByteRange(start, start + int(length)))


def full_disk(mount: Mount) -> str | None:
    """Why the mount keeps no more blocks; None while every cache disk has room for some."""
    for folder in mount.cache_dirs:
        with contextlib.suppress(OSError):
            told = os.statvfs(folder)
            room = told.f_bavail - mount.keep_free_ratio * told.f_blocks
            if room * told.f_frsize < 2 * mount.block_bytes:
                return (
                    f"the cache disk of {folder} has {told.f_bavail / told.f_blocks:.1%} free, and JuiceFS "
                    f"leaves {mount.keep_free_ratio:.0%} free: make room there, or ask for less"
                )
    return None


def why_missing(mount: Mount, block: Block) -> str:
    """The best that can be told from outside."""
    if lies_in(mount, block):
        return f"block {block.name} in the cache folder is cut or broken"
    return full_disk(mount) or f"block {block.name} is not in the cache folder"
