"""`python -m forebay.scheduler_bridge.webhook`: the webhook as a process."""

from __future__ import annotations

from forebay.runtime.app import main
from forebay.scheduler_bridge.webhook_app import run

if __name__ == "__main__":
    main(run)
