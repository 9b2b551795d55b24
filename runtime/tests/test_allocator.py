"""Memory that one thread freed is used by others, and unused memory is returned to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

THREADS = 12
CODE = f"""
import ctypes, sys, threading
from forebay.runtime.allocator import use_few_arenas
if sys.argv[1] == "few":
    use_few_arenas()
libc, together = ctypes.CDLL(None), threading.Barrier({THREADS})
libc.malloc.restype = ctypes.c_void_p
def work():
    together.wait()
    kept.append([libc.malloc(5000) for _ in range(200)])
    together.wait()
kept = []
threads = [threading.Thread(target=work) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_stats()
"""

HOLES = """
import asyncio, ctypes, time
import psutil
from forebay.runtime.allocator import return_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def resident():
    return psutil.Process().memory_info().rss
blocks = [libc.malloc(2000) for _ in range(40_000)]
for block in blocks:
    ctypes.memset(block, 1, 2000)
for number, block in enumerate(blocks):
    if number % 64:
        libc.free(block)
async def main():
    full = resident()
    task = asyncio.create_task(return_freed_memory(every_s=0.01))
    deadline = time.monotonic() + 30
    while full - resident() < 30_000_000:
        assert time.monotonic() < deadline, (full, resident())
        await asyncio.sleep(0.01)
    task.cancel()
assert resident() > 80_000_000, resident()
asyncio.run(main())
"""


if hasattr(ctypes.CDLL(None), "malloc_stats"):  # glibc

    @pytest.mark.parametrize(("mode", "least", "most"), [("few", 1, 2), ("as it is", 3, 1000)])
    def test_threads_share_two_arenas(mode: str, least: int, most: int) -> None:
        """Twelve threads at once; without the setting each would have an arena of its own."""
        done = subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, text=True, check=True)
        assert least <= done.stderr.count("Arena ") <= most, done.stderr

    def test_freed_memory_goes_back_to_the_system() -> None:
        """Blocks in use between the free ones keep only their own pages."""
        subprocess.run([sys.executable, "-c", HOLES], check=True)
