"""What ingest's work shares: how many runs of each kind there may be at once, and the processes that look at foreign files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from forebay.ingest.domain.decide import CONVERT, DERIVE, VALIDATE
from forebay.ingest.domain.registering import REGISTER
from forebay.runtime.open_work import Slots
from forebay.runtime.processes import ProcessServer


class Shared(TypedDict):
    """Arguments of `run_service`."""

    slots: Mapping[str, Slots]
    processes: ProcessServer


def shared(validators: int) -> Shared:
    """At least two runs of each kind, because one project never holds the last."""
    from forebay.ingest.adapters.decoders import service_processes  # noqa: PLC0415 it imports PyAV, which takes a second

    judging, writing = Slots.shared(max(2, validators)), Slots.shared(2)
    slots = {VALIDATE: judging, REGISTER: judging, CONVERT: writing, DERIVE: writing}
    return {"slots": slots, "processes": service_processes()}
