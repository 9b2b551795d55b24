"""How the C library keeps memory that was freed: in two arenas instead of one per thread.

glibc gives each new thread an arena of its own, up to eight per core. What a worker's thread has
freed there is of no use to the next thread, which takes fresh memory from the system. A service
that starts threads for each piece of work then grows to several times what it uses.
Called by `main` of every service. Other C libraries have no such setting and no such arenas.
"""

from __future__ import annotations

import ctypes

_ARENA_MAX, _MMAP_THRESHOLD = -8, -3  # parameters of mallopt(3)
_ARENAS = 2
_LARGE_BYTES = 1 << 20


def use_few_arenas() -> None:
    """From now on; large blocks go back to the system when they are freed. Call it before threads are started."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
