"""What this machine has, where nobody declared it: processors, memory, GPUs."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_ANSWER_WITHIN_S = 10


def count_cpus() -> float:
    """Processors that this process may use, which is fewer than there are under taskset or a cpuset."""
    with suppress(AttributeError, psutil.Error):
        return float(len(psutil.Process().cpu_affinity() or ()) or 1)
    return float(psutil.cpu_count() or 1)


def memory_bytes() -> int:
    return int(psutil.virtual_memory().total)


def count_gpus() -> int:
    """GPUs that the NVIDIA driver knows; 0 without a driver."""
    with suppress(OSError):
        return sum(1 for entry in _NVIDIA.iterdir() if entry.is_dir())
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 a fixed program with fixed arguments
            [tool, "--list-gpus"], capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=True
        )
        return sum(1 for line in done.stdout.splitlines() if line.startswith("GPU "))
    return 0
