"""`python -m forebay.cache`: the service as a process."""

from __future__ import annotations

from forebay.cache.app import run
from forebay.runtime.app import main

if __name__ == "__main__":
    main(run)
