"""The cluster's own process and mount namespace: entering it, running servers in it, ending all of it at once.

Everything of a cluster runs in there. Ending its first process ends the rest, whoever is
still alive of those who started it, and no mount of it was ever seen outside.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import psutil

from forebay.testcluster import init
from forebay.testcluster.errors import ClusterError, StepFailed
from forebay.testcluster.settings import outer_environment
from forebay.testcluster.work_folder import WorkFolder

_POLL_S = 0.05
_INIT = str(Path(init.__file__).resolve())
_INIT_ENDS = "/forebay/testcluster/init.py"


def wait_for(what: str, probe: Callable[[], bool], *, within: float, log: Path) -> None:
    """Returns when `probe` says yes; raises `StepFailed` with the end of `log` when it does not in time."""
    deadline = time.monotonic() + within
    while not probe():
        if time.monotonic() > deadline:
            msg = f"{what}: not within {within:.0f} s"
            raise StepFailed(msg, log)
        time.sleep(_POLL_S)


def open_namespace(folder: WorkFolder, targets: Sequence[str]) -> None:
    """Make the namespace, with a folder of ours in the place of each of `targets`."""
    (folder.root / init.READY).unlink(missing_ok=True)
    log = folder.log("namespace")
    command = ["unshare", "--pid", "--mount", "--propagation", "private", "--mount-proc", "--kill-child", "--fork"]
    command += [sys.executable, "-S", _INIT, str(folder.root), *targets]
    with log.open("ab") as output:
        holder = subprocess.Popen(  # noqa: S603 fixed programs, our own folders
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )

    def is_open() -> bool:
        if holder.poll() is not None:
            msg = f"the namespace could not be made (exit code {holder.returncode})"
            raise StepFailed(msg, log)
        return (folder.root / init.READY).exists()

    wait_for("the namespace has its mounts", is_open, within=10, log=log)


def first_process(folder: WorkFolder) -> psutil.Process | None:
    """The first process of the folder's namespace, found by its command line."""
    for process in _holders(folder):
        with contextlib.suppress(psutil.Error):
            if process.name() != "unshare":
                return process
    return None


def _holders(folder: WorkFolder) -> list[psutil.Process]:
    """The first process, and the `unshare` that waits for it outside."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if _folder_of(words) == str(folder.root):
                found.append(process)
    return found


def _doors(first: int) -> list[psutil.Process]:
    """The `nsenter` processes outside, one for each server inside."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[:3] == ["nsenter", "--target", str(first)]:
                found.append(process)
    return found


def _folder_of(words: Sequence[str]) -> str | None:
    """The folder in the command line of a first process, of whichever checkout of this package."""
    for word, following in pairwise(words):
        if word.endswith(_INIT_ENDS):
            return following
    return None


def any_running() -> bool:
    """Whether any cluster, of whichever folder, runs on this machine."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if _folder_of(process.cmdline()) is not None:
                return True
    return False


def alive(folder: WorkFolder) -> list[psutil.Process]:
    """Processes of the folder's cluster, as seen from outside: its servers, the shims of containers, and the holders."""
    ours = Path("/proc/self/ns/pid").readlink()
    found = _holders(folder)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_inside = Path(f"/proc/{process.pid}/ns/pid").readlink() != ours
            if is_inside and any(str(folder.root) in word for word in process.cmdline()):
                found.append(process)
    return list(dict.fromkeys(found))


def inside(folder: WorkFolder) -> list[str]:
    """The words that make a command run inside. Raises `ClusterError` when there is no inside."""
    first = first_process(folder)
    if first is None:
        msg = f"no cluster runs in {folder.root}"
        raise ClusterError(msg, f"start it: python -m forebay.testcluster up --work {folder.root}")
    return ["nsenter", "--target", str(first.pid), "--pid", "--mount"]


def start(folder: WorkFolder, name: str, command: Sequence[str]) -> None:
    """Start a server inside; it outlives us. Its standard output and error go to its log."""
    with folder.log(name).open("ab") as output:
        door = subprocess.Popen(  # noqa: S603 our own servers
            [*inside(folder), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=dict(outer_environment()),
        )
    outside = psutil.Process(door.pid)

    def is_through() -> bool:
        if door.poll() is not None:
            msg = f"{name} ended at once (exit code {door.returncode})"
            raise StepFailed(msg, folder.log(name))
        return bool(outside.children())

    wait_for(f"{name} has started", is_through, within=10, log=folder.log(name))
    server = outside.children()[0]
    note = {"pid": server.pid, "started": server.create_time(), "door": door.pid}
    (folder.processes / f"{name}.json").write_text(json.dumps(note), encoding="utf-8")


def server(folder: WorkFolder, name: str) -> psutil.Process | None:
    """The running server of this name."""
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        note = json.loads((folder.processes / f"{name}.json").read_text(encoding="utf-8"))
        process = psutil.Process(note["pid"])
        if abs(process.create_time() - note["started"]) < 1 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def stop(folder: WorkFolder, name: str, *, within: float = 20) -> bool:
    """End one server, kindly first. False when it did not run."""
    process = server(folder, name)
    if process is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(within)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(within)
    (folder.processes / f"{name}.json").unlink(missing_ok=True)
    return True


def close_namespace(folder: WorkFolder, *, within: float = 30) -> int:
    """End everything inside at once; how many processes that were."""
    holders = _holders(folder)
    first = first_process(folder)
    doors = _doors(first.pid) if first is not None else []
    ended = [*doors, *holders]
    if first is not None:
        with contextlib.suppress(psutil.Error):
            ended += [child for door in doors for child in door.children(recursive=True)]
            ended += first.children(recursive=True)
        with contextlib.suppress(psutil.NoSuchProcess):
            first.kill()
    _, alive = psutil.wait_procs(ended, timeout=within)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(alive, timeout=within)
    if alive:
        msg = f"processes of the cluster in {folder.root} do not end: {sorted(process.pid for process in alive)}"
        raise ClusterError(msg, "a mount that hangs can hold them; look at /proc/PID/stack, then run `down` again")
    return len({process.pid for process in ended})
