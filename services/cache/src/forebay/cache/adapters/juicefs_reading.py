"""Make a JuiceFS mount fetch blocks: one small read per block, a bounded number of blocks asked for at a time.

The mount answers a small read from its origin and then fetches the whole block in the
background; it forgets that when it is busy, and says nothing when it fails. So blocks
are asked for a few more at a time than the mount fetches, and asked for again, ever
more rarely, while they do not appear. Reads may hang as long as the mount tries its
origin, so they run on threads that nobody has to wait for.
"""

from __future__ import annotations

import errno
import mmap
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Semaphore
from typing import Self

from forebay.cache.adapters.juicefs_blocks import Block
from forebay.runtime.regular_files import open_regular

READERS = 8
"""Small reads in flight for one file."""
PIECE_BYTES = 4096
AHEAD = 8
"""Blocks asked for beyond those that the mount fetches at a time."""
HOPELESS = 8
"""Failed reads, with no block between them, after which the rest is not tried: each takes the mount's own patience."""
FIRST_PATIENCE_S, LONGEST_PATIENCE_S = 0.5, 8.0
"""How long a block may take to appear before it is asked for again; doubled each time."""
_LOOK_AGAIN_S = 0.01


@dataclass(slots=True)
class _Asked:
    """A block that was asked for."""

    block: Block
    at: float
    patience: float = FIRST_PATIENCE_S
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Brought:
    """What did not come, and the last thing that went wrong, if anything did."""

    left: tuple[Block, ...]
    problem: OSError | None


def bring_in(
    path: Path,
    blocks: Sequence[Block],
    *,
    there: Callable[[Block], bool],
    vain: Callable[[], bool],
    window: Semaphore,
    stall_s: float,
) -> Brought:
    """Ask for blocks until all are there, none has appeared for `stall_s`, or asking again would be in vain.

    `window` is shared by everything that fetches through one mount: a place in it for each block asked for.
    Last block first, because reads from front to back make the mount read ahead what nobody planned.
    Raises `OSError` when `HOPELESS` reads in a row fail, or all, and `TimeoutError` when none is answered.
    """
    with _Readers(path) as readers, _Asking(readers, window, deque(reversed(blocks)), there) as asking:
        until = time.monotonic() + stall_s
        while asking.waiting or asking.asked:
            now = time.monotonic()
            asking.note_failures(hopeless=min(HOPELESS, len(blocks)))
            if asking.note_arrivals() or not asking.asked:
                until = now + stall_s
            asking.ask_more(now)
            if now > until:
                if asking.asked and not any(one.answered for one in asking.asked.values()):
                    msg = f"no read was answered within {stall_s:.0f} s"
                    raise TimeoutError(msg)
                break
            late = asking.late(now)
            if late and vain():
                break
            asking.ask_again(late, now)
            if asking.waiting or asking.asked:
                time.sleep(_LOOK_AGAIN_S)
    return asking.result()


@dataclass(slots=True)
class _Asking:
    """What was asked for and what is still to be asked for."""

    readers: _Readers
    window: Semaphore
    waiting: deque[Block]
    there: Callable[[Block], bool]
    asked: dict[str, _Asked] = field(default_factory=dict)
    failed: dict[str, tuple[Block, OSError]] = field(default_factory=dict)
    in_a_row: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _one in self.asked:
            self.window.release()

    def note_failures(self, *, hopeless: int) -> None:
        """Raise the last error once so many reads have failed with no block between them."""
        for block, error in self.readers.collect():
            if self.asked.pop(block.name, None) is not None:
                self.window.release()
            self.failed[block.name] = block, error
            self.in_a_row += 1
            if self.in_a_row >= hopeless:
                raise error

    def note_arrivals(self) -> bool:
        arrived = [name for name, one in self.asked.items() if self.there(one.block)]
        for name in arrived:
            del self.asked[name]
            self.window.release()
        if arrived:
            self.in_a_row = 0
        return bool(arrived)

    def ask_more(self, now: float) -> None:
        while self.waiting and self.window.acquire(blocking=False):
            block = self.waiting.popleft()
            if block.name in self.asked or self.there(block):
                self.window.release()
                continue
            self.asked[block.name] = _Asked(block, now)
            self.readers.ask(self.asked[block.name])

    def late(self, now: float) -> list[_Asked]:
        """Reads that were answered, and whose block has not appeared in its time."""
        return [one for one in self.asked.values() if one.answered and now - one.at > one.patience]

    def ask_again(self, late: Sequence[_Asked], now: float) -> None:
        for one in late:
            one.at, one.answered = now, False
            one.patience = min(LONGEST_PATIENCE_S, 2 * one.patience)
            self.readers.ask(one)

    def result(self) -> Brought:
        failed = [block for block, _ in self.failed.values() if not self.there(block)]
        left = (*failed, *(one.block for one in self.asked.values()), *self.waiting)
        return Brought(left, next((error for _, error in self.failed.values()), None))


class _Readers:
    """A few threads that read pieces of one file. Leaving does not wait for a read that hangs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._questions: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._problems: queue.SimpleQueue[tuple[Block, OSError]] = queue.SimpleQueue()
        self._threads = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _one in range(self._threads):
            self._questions.put(None)

    def ask(self, asked: _Asked) -> None:
        self._questions.put(asked)
        if self._threads < READERS:
            self._threads += 1
            threading.Thread(target=self._read, name=f"reads {self._path.name}", daemon=True).start()

    def collect(self) -> Iterator[tuple[Block, OSError]]:
        """The reads that failed since the last time."""
        while not self._problems.empty():
            yield self._problems.get()

    def _read(self) -> None:
        while (asked := self._questions.get()) is not None:
            try:
                _read_piece(self._path, asked.block)
            except OSError as error:
                self._problems.put((asked.block, error))
            asked.answered = True


def _read_piece(path: Path, block: Block) -> None:
    """A handle for each piece: the mount reads ahead of handles that it sees moving."""
    middle = block.visible.start + block.visible.length // 2
    with open_regular(path) as file:
        descriptor = file.fileno()
        # What the kernel still holds would be answered without the mount; it drops whole pages only.
        page = middle // mmap.PAGESIZE * mmap.PAGESIZE
        os.posix_fadvise(descriptor, page, PIECE_BYTES + mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
        if not os.pread(descriptor, min(PIECE_BYTES, block.visible.end - middle), middle):
            raise OSError(errno.EIO, f"the file ends before byte {middle}")
