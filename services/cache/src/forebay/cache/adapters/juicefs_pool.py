"""A JuiceFS mount as the pool: warm by reading through it, prove by the block files in its cache folder.

JuiceFS's own warm-up counts bytes before it has fetched them and reports success when
blocks failed, so it is not used. Instead: `juicefs info` maps a file to its blocks, one
small read per missing block makes the mount fetch it whole, and a block counts as warm
when its file lies in the cache folder with the right size and checksums.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, Semaphore

from forebay.cache.adapters.folder_pool import check_size, disk_of, room_on_disk
from forebay.cache.adapters.juicefs_blocks import (
    Block,
    CachedBlocks,
    Mount,
    ask_blocks,
    full_disk,
    lies_in,
    read_mount,
    read_statistic,
    run_juicefs,
    take_out,
    why_missing,
)
from forebay.cache.adapters.juicefs_log import log_end, origin_error
from forebay.cache.adapters.juicefs_reading import AHEAD, Brought, bring_in
from forebay.cache.domain.plan import ByteRange, PlannedFile, merge_ranges
from forebay.cache.domain.pool_facts import PoolFacts
from forebay.cache.ports import Kept, Missing, PoolTraits, Residency

STALL_S = 60.0
"""How long to go on when no block appears; the mount itself tries its origin again for about a quarter of a minute."""
FAILURES_PER_BLOCK = 4
"""Failed requests of the mount for each cold block, after which blocks are not asked for again."""
_FILES_PER_CALL = 64
_REMEMBERED_FILES = 10_000
_REMEMBERED_CAUSES = 10_000


class JuicefsPool:
    """The mount at `mountpoint`, on the machine whose cache folder can be looked into."""

    def __init__(self, mountpoint: Path, *, log: Path | None = None, stall_s: float = STALL_S) -> None:
        self._mountpoint = mountpoint.absolute()
        self._log = log
        self._stall_s = stall_s
        self._blocks: OrderedDict[tuple[Path, int, int], tuple[Block, ...]] = OrderedDict()
        self._cached = CachedBlocks()
        self._window: tuple[int, Semaphore] | None = None
        self._lock = Lock()
        self._causes: OrderedDict[str, str] = OrderedDict()
        """Why blocks did not come, where more is known than that they are not there."""

    @property
    def traits(self) -> PoolTraits:
        return PoolTraits(
            adapter="juicefs", proof="blocks", cannot_prove=None, block_bytes=read_mount(self._mountpoint).block_bytes
        )

    def holds(self, path: Path) -> bool:
        """Whether a path lies in this mount, links followed."""
        return path.absolute().is_relative_to(self._mountpoint) or path.resolve().is_relative_to(self._mountpoint)

    def check(self, root: Path, files: Sequence[PlannedFile]) -> list[Residency]:
        mount = read_mount(self._mountpoint)
        paths = [self._path(root, file) for file in files]
        for path, file in zip(paths, files, strict=True):
            check_size(path, file)
        blocks = self._locate(paths)
        return [self._judge(mount, file, blocks[path]) for path, file in zip(paths, files, strict=True)]

    def fetch(self, root: Path, file: PlannedFile) -> int:
        mount = read_mount(self._mountpoint)
        path = self._path(root, file)
        check_size(path, file)
        cold = [
            one for one in self._locate([path])[path] if one.touched(file.spans) and not self._cached.whole(mount, one)
        ]
        for block in cold:
            if self._cached.broken(mount, block):  # it would answer small reads beside the broken part for ever
                take_out(mount, block)
            self._causes.pop(block.name, None)
        failed, since = self._failures(), log_end(self._log)
        try:
            brought = bring_in(
                path,
                cold,
                there=lambda block: self._cached.whole(mount, block),
                vain=lambda: full_disk(mount) is not None or self._failures() - failed > FAILURES_PER_BLOCK * len(cold),
                window=self._window_of(mount),
                stall_s=self._stall_s,
            )
        except OSError as error:
            read_mount(self._mountpoint)  # raises when it is the mount itself that is gone
            raise origin_error(str(path), error, self._log, since) from error
        if brought.left:
            self._explain(brought, failed, since)
        return sum(block.size for block in cold if self._cached.whole(mount, block))

    def room_bytes(self) -> int:
        mount = read_mount(self._mountpoint)
        return min(mount.capacity_bytes, *(room_on_disk(folder) for folder in mount.cache_dirs))

    def drop(self, root: Path, files: Sequence[PlannedFile], *, keep: Sequence[Kept] = ()) -> int:
        mount = read_mount(self._mountpoint)
        there = self._existing(root, files)
        kept = [one for place, held in keep for one in self._existing(place, held)]
        blocks = self._locate([path for path, _ in (*there, *kept)])
        stay = {block.name for path, file in kept for block in blocks[path] if block.touched(file.spans)}
        freed, whole = 0, []
        for path, file in there:
            doomed = [one for one in blocks[path] if one.name not in stay and one.touched(file.spans)]
            freed += sum(take_out(mount, block) for block in doomed)
            if not any(lies_in(mount, block) for block in blocks[path]):
                whole.append(path)
        # Makes the mount stop counting what it lost; of files that something is left of it finds out within the hour.
        for start in range(0, len(whole), _FILES_PER_CALL):
            run_juicefs("warmup", "--evict", *(str(path) for path in whole[start : start + _FILES_PER_CALL]))
        return freed

    def facts(self) -> PoolFacts:
        mount = read_mount(self._mountpoint)
        return PoolFacts(
            adapter="juicefs",
            limit_bytes=mount.capacity_bytes,
            used_bytes=read_statistic(self._mountpoint, "juicefs_blockcache_bytes"),
            keep_free_ratio=mount.keep_free_ratio,
            disks=tuple(disk_of(folder) for folder in mount.cache_dirs),
        )

    # how

    def _path(self, root: Path, file: PlannedFile) -> Path:
        """Where the mount has the file: datasets that stay in their place are links into it."""
        path = root / file.path
        return path if path.is_relative_to(self._mountpoint) else path.resolve()

    def _existing(self, root: Path, files: Sequence[PlannedFile]) -> list[tuple[Path, PlannedFile]]:
        """What of these lies in the mount now."""
        paths = [(self._path(root, file), file) for file in files]
        return [(path, file) for path, file in paths if path.is_relative_to(self._mountpoint) and path.exists()]

    def _judge(self, mount: Mount, file: PlannedFile, blocks: Sequence[Block]) -> Residency:
        verified: list[ByteRange] = []
        missing: list[Missing] = []
        for block in blocks:
            parts = block.touched(file.spans)
            if parts and self._cached.whole(mount, block):
                verified += parts
            else:
                why = (self._causes.get(block.name) or why_missing(mount, block)) if parts else ""
                missing += [Missing(file=file.path, range=part, reason=why) for part in parts]
        return Residency(verified=merge_ranges(verified), missing=tuple(missing))

    def _locate(self, paths: Sequence[Path]) -> dict[Path, tuple[Block, ...]]:
        """The blocks of files; asked once per file, because versions do not change."""
        keys = {path: (path, *_identity(path)) for path in paths}
        located = {path: blocks for path, key in keys.items() if (blocks := self._blocks.get(key)) is not None}
        unknown = [path for path in keys if path not in located]
        for start in range(0, len(unknown), _FILES_PER_CALL):
            part = unknown[start : start + _FILES_PER_CALL]
            for path, blocks in zip(part, ask_blocks(part), strict=True):
                located[path] = self._blocks[keys[path]] = blocks
        while len(self._blocks) > _REMEMBERED_FILES:
            self._blocks.popitem(last=False)
        return located

    def _window_of(self, mount: Mount) -> Semaphore:
        """Places for all that is asked for through this mount, a few more than it fetches at a time."""
        places = mount.prefetch + AHEAD
        with self._lock:
            if self._window is None or self._window[0] != places:
                self._window = places, Semaphore(places)
            return self._window[1]

    def _failures(self) -> int:
        """Requests of the mount to its object storage that failed so far."""
        return read_statistic(self._mountpoint, "juicefs_object_request_errors")

    def _explain(self, brought: Brought, failed: int, since: int) -> None:
        """Some blocks did not come or stay: say what reads met, or what the mount counted meanwhile."""
        problem = brought.problem
        more = self._failures() - failed
        if problem is None and more > 0:
            problem = OSError(f"{more} of its answers broke off")
        if problem is not None:
            cause = str(origin_error("the block", problem, self._log, since))
            self._causes.update((block.name, cause) for block in brought.left)
        while len(self._causes) > _REMEMBERED_CAUSES:
            self._causes.popitem(last=False)


def _identity(path: Path) -> tuple[int, int]:
    told = path.stat()
    return told.st_size, told.st_mtime_ns
