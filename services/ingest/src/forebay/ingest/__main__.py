"""`python -m forebay.ingest`."""

from __future__ import annotations

from forebay.ingest.app import run
from forebay.runtime.app import main

main(run)
