"""`python -m forebay.scheduler_bridge`: the service as a process."""

from __future__ import annotations

from forebay.runtime.app import main
from forebay.scheduler_bridge.app import run

if __name__ == "__main__":
    main(run)
