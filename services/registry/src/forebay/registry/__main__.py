"""`python -m forebay.registry`: the registry as a process."""

from __future__ import annotations

from forebay.registry.app import run
from forebay.runtime.app import main

if __name__ == "__main__":
    main(run)
