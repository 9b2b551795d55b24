"""What every event body and every value inside one has in common."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from forebay.contracts.identifiers import Sha256

MAX_BODY_BYTES = 64 * 1024
"""Larger lists travel by reference (`FileRef`)."""


class Value(BaseModel):
    """A frozen part of a body. Unknown fields are dropped: newer senders may know more."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants", allow_inf_nan=False)


class EventBody(Value):
    """The JSON body of one event. Optional fields may be added; anything else is a new version."""

    event: ClassVar[str]
    """The event's name in the log, e.g. `EpisodeUploaded`."""
    version: ClassVar[int] = 1

    def to_json(self) -> dict[str, Any]:
        """The body as it goes on the wire: no nulls, so that adding a field changes no old digest."""
        return self.model_dump(mode="json", exclude_none=True)


class FileRef(Value):
    """A file outside the event: where, how big, and its digest."""

    uri: str
    sha256: Sha256
    bytes: int
