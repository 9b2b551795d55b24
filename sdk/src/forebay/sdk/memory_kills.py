"""Counts kills for lack of memory in this process's control group.

The agent compares the count before and after its command: a SIGKILL alone does not
say who sent it.
"""

from __future__ import annotations

from pathlib import Path


def memory_kills() -> int:
    """How often the kernel has killed in this group so far; 0 where it does not say."""
    for events in _event_files():
        try:
            lines = events.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def _event_files() -> list[Path]:
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = []
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
        elif "memory" in controllers.split(","):
            found.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return [*found, Path("/sys/fs/cgroup/memory.events")]
