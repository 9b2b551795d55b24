"""A JuiceFS mount as the pool: warm by reading through it, prove by the block files in its cache folder.

JuiceFS's own warm-up counts bytes before it has fetched them and reports success when
blocks failed, so it is not used. Instead: `juicefs info` maps a file to its blocks, one
small read per missing block makes the mount fetch it whole, and a block counts as warm
when its file lies in the cache folder with the right size.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from forebay.cache.adapters.folder_pool import check_size, disk_of, room_on_disk
from forebay.cache.adapters.juicefs_volume import program
from forebay.cache.domain.plan import ByteRange, PlannedFile, merge_ranges
from forebay.cache.domain.pool_facts import PoolFacts
from forebay.cache.errors import PoolError
from forebay.cache.ports import Kept, Missing, PoolTraits, Residency

READERS = 8
"""Reads in flight; the mount downloads blocks in parallel behind them."""
PIECE_BYTES = 4096
APPEAR_S = 0.25
"""How long to wait for the next block to appear before it is read again."""
SETTLE_S = 5.0
"""How long to go on reading when no block appears."""
_LOOK_AGAIN_S = 0.02
_FILES_PER_CALL = 64
_REMEMBERED_FILES = 10_000
_CHECKSUM_UNIT = 32 * 1024
_INFO_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Block:
    """One object of the volume, as far as it is visible in a file."""

    name: str
    """`chunks/…/<slice>_<index>_<size>`; empty for a hole, which has nothing to fetch."""
    size: int
    visible: ByteRange


@dataclass(frozen=True, slots=True)
class _Mount:
    """What the mount says about itself."""

    cache_dirs: tuple[Path, ...]
    block_bytes: int
    capacity_bytes: int
    keep_free_ratio: float


class JuicefsPool:
    """The mount at `mountpoint`, on the machine whose cache folder can be looked into."""

    def __init__(self, mountpoint: Path) -> None:
        self._mountpoint = mountpoint.absolute()
        self._blocks: OrderedDict[tuple[Path, int, int], tuple[Block, ...]] = OrderedDict()

    @property
    def traits(self) -> PoolTraits:
        return PoolTraits(adapter="juicefs", proof="blocks", cannot_prove=None, block_bytes=self._mount().block_bytes)

    def holds(self, path: Path) -> bool:
        """Whether a path lies in this mount."""
        return path.absolute().is_relative_to(self._mountpoint)

    def check(self, root: Path, files: Sequence[PlannedFile]) -> list[Residency]:
        mount = self._mount()
        paths = [root / file.path for file in files]
        for path, file in zip(paths, files, strict=True):
            check_size(path, file)
        blocks = self._locate(paths)
        return [self._judge(mount, file, blocks[path]) for path, file in zip(paths, files, strict=True)]

    def fetch(self, root: Path, file: PlannedFile) -> int:
        mount = self._mount()
        path = root / file.path
        check_size(path, file)
        blocks = [
            block
            for block in self._locate([path])[path]
            if _touched(block, file.spans) and not _is_cached(mount, block)
        ]
        _bring_in(mount, path, blocks)
        return sum(block.size for block in blocks if _is_cached(mount, block))

    def room_bytes(self) -> int:
        mount = self._mount()
        return min(mount.capacity_bytes, *(room_on_disk(folder) for folder in mount.cache_dirs))

    def drop(self, root: Path, files: Sequence[PlannedFile], *, keep: Sequence[Kept] = ()) -> int:
        mount = self._mount()
        there = [(root / file.path, file) for file in files if (root / file.path).exists()]
        kept = [(place / file.path, file) for place, held in keep for file in held if (place / file.path).exists()]
        blocks = self._locate([path for path, _ in (*there, *kept)])
        stay = {block.name for path, file in kept for block in blocks[path] if _touched(block, file.spans)}
        freed, whole = 0, []
        for path, file in there:
            doomed = [one for one in blocks[path] if one.name not in stay and _touched(one, file.spans)]
            freed += sum(_take_out(mount, block) for block in doomed)
            if not any(_lies_in(mount, block) for block in blocks[path]):
                whole.append(path)
        _forget(whole)
        return freed

    def facts(self) -> PoolFacts:
        mount = self._mount()
        return PoolFacts(
            adapter="juicefs",
            limit_bytes=mount.capacity_bytes,
            used_bytes=self._used_bytes(),
            keep_free_ratio=mount.keep_free_ratio,
            disks=tuple(disk_of(folder) for folder in mount.cache_dirs),
        )

    # how

    def _used_bytes(self) -> int | None:
        for line in (self._mountpoint / ".stats").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "juicefs_blockcache_bytes":
                return int(float(value))
        return None

    def _mount(self) -> _Mount:
        """Ask the mount itself: the answer is also the proof that it works."""
        try:
            told = json.loads((self._mountpoint / ".config").read_bytes())
        except (OSError, ValueError) as error:
            msg = f"{self._mountpoint} is no working JuiceFS mount: {error}; start it again with 'forebay up'"
            raise PoolError(msg) from error
        chunk = told["Chunk"]
        folders = tuple(Path(folder) for folder in chunk["CacheDir"].split(":"))
        if not all(folder.is_absolute() and folder.is_dir() for folder in folders):
            msg = f"the mount at {self._mountpoint} caches in {chunk['CacheDir']!r}, which cannot be looked into from here"
            raise PoolError(msg)
        return _Mount(
            cache_dirs=folders,
            block_bytes=chunk["BlockSize"],
            capacity_bytes=chunk["CacheSize"],
            keep_free_ratio=chunk["FreeSpace"],
        )

    def _judge(self, mount: _Mount, file: PlannedFile, blocks: Sequence[Block]) -> Residency:
        verified: list[ByteRange] = []
        missing: list[Missing] = []
        for block in blocks:
            parts = _touched(block, file.spans)
            if parts and _is_cached(mount, block):
                verified += parts
            else:
                why = _why_missing(mount, block) if parts else ""
                missing += [Missing(file=file.path, range=part, reason=why) for part in parts]
        return Residency(verified=merge_ranges(verified), missing=tuple(missing))

    def _locate(self, paths: Sequence[Path]) -> dict[Path, tuple[Block, ...]]:
        """The blocks of files; asked once per file, because versions do not change."""
        keys = {path: (path, *_identity(path)) for path in paths}
        located = {path: blocks for path, key in keys.items() if (blocks := self._blocks.get(key)) is not None}
        unknown = [path for path in keys if path not in located]
        for start in range(0, len(unknown), _FILES_PER_CALL):
            part = unknown[start : start + _FILES_PER_CALL]
            for path, blocks in zip(part, _ask_blocks(part), strict=True):
                located[path] = self._blocks[keys[path]] = blocks
        while len(self._blocks) > _REMEMBERED_FILES:
            self._blocks.popitem(last=False)
        return located


def _bring_in(mount: _Mount, path: Path, blocks: Sequence[Block]) -> None:
    """Read and look, until all blocks are there or none appears any more.

    The mount fetches whole blocks in the background and forgets requests when it is
    busy, so a block that does not appear soon is read again.
    """
    waiting = list(blocks)
    until = time.monotonic() + SETTLE_S
    while waiting and time.monotonic() < until:
        _read_pieces(path, waiting)
        left = _still_missing(mount, waiting)
        if len(left) < len(waiting):
            until = time.monotonic() + SETTLE_S
        waiting = left


def _still_missing(mount: _Mount, blocks: Sequence[Block]) -> list[Block]:
    """The blocks that are missing when none has appeared for a moment."""
    left = [block for block in blocks if not _is_cached(mount, block)]
    until = time.monotonic() + APPEAR_S
    while left and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN_S)
        still = [block for block in left if not _is_cached(mount, block)]
        if len(still) < len(left):
            until = time.monotonic() + APPEAR_S
        left = still
    return left


def _read_pieces(path: Path, blocks: Sequence[Block]) -> None:
    """Read a few bytes of each block, in parallel."""
    backwards = list(reversed(blocks))
    shares = [share for start in range(READERS) if (share := backwards[start::READERS])]
    try:
        with ThreadPoolExecutor(max_workers=READERS) as readers:
            for done in [readers.submit(_read_share, path, share) for share in shares]:
                done.result()
    except OSError as error:
        msg = f"{path} cannot be read through the mount: {error}"
        raise PoolError(msg) from error


def _read_share(path: Path, blocks: Sequence[Block]) -> None:
    """One handle, from the end to the start: ascending reads would make the mount read ahead, unplanned."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for block in blocks:
            middle = block.visible.start + block.visible.length // 2
            # What the kernel still holds would be answered without the mount; it drops whole pages only.
            page = middle // mmap.PAGESIZE * mmap.PAGESIZE
            os.posix_fadvise(descriptor, page, PIECE_BYTES + mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
            os.pread(descriptor, min(PIECE_BYTES, block.visible.end - middle), middle)
    finally:
        os.close(descriptor)


def _identity(path: Path) -> tuple[int, int]:
    told = path.stat()
    return told.st_size, told.st_mtime_ns


def _touched(block: Block, spans: Sequence[ByteRange]) -> list[ByteRange]:
    """The parts of a block's visible bytes that are planned."""
    parts = (
        ByteRange(max(block.visible.start, start), min(block.visible.end, end))
        for start, end in spans
        if start < block.visible.end and end > block.visible.start
    )
    return [part for part in parts if part.length > 0]


def _is_cached(mount: _Mount, block: Block) -> bool:
    """Whether the block's file is there, whole: its bytes, with or without JuiceFS's checksums behind them."""
    if not block.name:
        return True
    checksums = 4 * -(-block.size // _CHECKSUM_UNIT)
    for folder in mount.cache_dirs:
        try:
            size = (folder / "raw" / block.name).stat().st_size
        except OSError:
            continue
        if size in {block.size, block.size + checksums}:
            return True
    return False


def _lies_in(mount: _Mount, block: Block) -> bool:
    """Whether anything of the block lies in the cache, whole or not."""
    return bool(block.name) and any((folder / "raw" / block.name).exists() for folder in mount.cache_dirs)


def _take_out(mount: _Mount, block: Block) -> int:
    """Delete the block's file; the mount finds it missing and asks its origin the next time."""
    freed = 0
    for folder in mount.cache_dirs if block.name else ():
        path = folder / "raw" / block.name
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            msg = f"{path} cannot be deleted to make room: {error}"
            raise PoolError(msg) from error
        freed += size
    return freed


def _forget(paths: Sequence[Path]) -> None:
    """Make the mount stop counting the blocks of files that nothing is left of; it would find out within the hour."""
    for start in range(0, len(paths), _FILES_PER_CALL):
        _run_juicefs("warmup", "--evict", *(str(path) for path in paths[start : start + _FILES_PER_CALL]))


def _why_missing(mount: _Mount, block: Block) -> str:
    for folder in mount.cache_dirs:
        told = os.statvfs(folder)
        free = told.f_bavail / told.f_blocks
        if free < mount.keep_free_ratio:
            return f"the cache disk of {folder} has {free:.1%} free, below the {mount.keep_free_ratio:.0%} JuiceFS leaves free"
    return f"block {block.name} is not in the cache folder"


def _ask_blocks(paths: Sequence[Path]) -> list[tuple[Block, ...]]:
    """Run `juicefs info` and read its tables of objects, one per path in the order asked."""
    told = _run_juicefs("info", *(str(path) for path in paths))
    tables = list(_tables(told, [f"{path} :" for path in paths]))
    for path, blocks in zip(paths, tables, strict=True):
        told_bytes = sum(block.visible.length for block in blocks)
        if told_bytes != path.stat().st_size:
            msg = f"'juicefs info' accounts for {told_bytes:,} bytes of {path}, which has {path.stat().st_size:,}"
            raise PoolError(msg)
    return tables


def _run_juicefs(command: str, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 our own program, no shell
            [program(), command, *arguments], check=False, capture_output=True, text=True, timeout=_INFO_SECONDS
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
    lines = iter(text.splitlines())
    wanted = list(headings)
    blocks: list[Block] | None = None
    for line in lines:
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
