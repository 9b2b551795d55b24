"""How many runs of each kind of ingest's work there may be at once."""

from __future__ import annotations

from forebay.ingest.domain.decide import CONVERT, DERIVE, VALIDATE
from forebay.ingest.domain.registering import REGISTER
from forebay.runtime.open_work import Slots


def slots(validators: int) -> dict[str, Slots]:
    """At least two of each, because one project never holds the last."""
    judging, writing = Slots.shared(max(2, validators)), Slots.shared(2)
    return {VALIDATE: judging, REGISTER: judging, CONVERT: writing, DERIVE: writing}
