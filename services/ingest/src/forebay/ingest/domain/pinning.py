"""Pins the inputs of jobs: the first version that a name resolves to stays the job's, whatever tags do later."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.ingest.domain.documents import Lease, waiting_for
from forebay.ingest.domain.resolve import resolve
from forebay.runtime.state import Fold


def pin_waiting(fold: Fold, project: str, kind: str, name: str) -> None:
    """Look the name up again for every job that waits for it."""
    for lease in fold.find(Lease, "waits_for", waiting_for(project, kind, name)):
        put_pinned(fold, lease)


def put_pinned(fold: Fold, lease: Lease) -> None:
    """Pin every input that resolves now; what is pinned already stays as it is."""
    pins = []
    for pin in lease.pins:
        number = pin.number if pin.number is not None else resolve(fold, lease.project, pin).number
        pins.append(replace(pin, number=number))
    fold.put(replace(lease, pins=tuple(pins)))
