"""Memory that threads have freed is used again by others."""

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


if hasattr(ctypes.CDLL(None), "malloc_stats"):  # glibc

    @pytest.mark.parametrize(("mode", "least", "most"), [("few", 1, 2), ("as it is", 3, 1000)])
    def test_threads_share_two_arenas(mode: str, least: int, most: int) -> None:
        """Twelve threads at once; without the setting each would have an arena of its own."""
        done = subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, text=True, check=True)
        assert least <= done.stderr.count("Arena ") <= most, done.stderr
