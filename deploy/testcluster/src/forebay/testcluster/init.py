"""The first process of a cluster's own process and mount namespace: makes its mounts, then buries the dead.

Run by its path with nothing but the standard library (`python -S init.py FOLDER TARGET…`). When it ends,
the kernel ends every process in the namespace, containers included, and takes its mounts away.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

READY = "namespace-ready"


def main(folder: Path, targets: list[str]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    subprocess.run(["mount", "--make-rshared", "/"], check=True)  # noqa: S607 as root, from its PATH
    for target in targets:
        source = folder / "instead" / target.lstrip("/")
        source.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", str(source), target], check=True)  # noqa: S603, S607 our own folders
    (folder / READY).touch()
    while True:
        signal.sigwait({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        _bury()


def _bury() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
