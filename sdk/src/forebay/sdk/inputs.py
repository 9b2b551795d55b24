"""`inputs.json` of an attempt: the pinned inputs and what the job was promised.

Written by the scheduler-bridge, read by the agent and by `open` inside a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forebay.contracts.identifiers import LogicalName, parse_logical_name
from forebay.contracts.v1.datasets import PinnedInput
from forebay.contracts.v1.jobs import Resources
from forebay.contracts.v1.models import Compatibility
from forebay.sdk.errors import BadJobFolderError, InputNotDeclaredError


class Inputs(BaseModel):
    """The file's content."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    inputs: tuple[PinnedInput, ...] = ()
    places: Mapping[str, str] = Field(default_factory=dict)
    """Where the cache has made a version ready, by `name@v<number>`; else it is read at its root."""
    compatibility: Compatibility = Compatibility()
    resources: Resources = Resources()
    allow_cold_start: bool = False
    forbid_cold_start: bool = False
    command: tuple[str, ...] = ()

    def where_is(self, pinned: PinnedInput) -> str:
        """The place that this job reads a version from: a folder, or `s3://bucket/prefix`."""
        return self.places.get(f"{pinned.name}@v{pinned.number}") or pinned.root

    def place_of(self, pinned: PinnedInput) -> Path:
        """The same, where only a folder can be meant."""
        return local_path(self.where_is(pinned))


def read_inputs(path: Path) -> Inputs:
    """Read the file; raises `BadJobFolderError` that says what is wrong with it."""
    try:
        return Inputs.model_validate_json(path.read_bytes())
    except OSError as error:
        msg = f"the inputs file {path} cannot be read ({error.strerror})"
        raise BadJobFolderError(msg, "start the command through a job: forebay submit JOB.yaml") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        msg = f"the inputs file {path} is damaged: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise BadJobFolderError(msg, "submit the job again") from error


def find_input(inputs: Inputs, name: LogicalName) -> PinnedInput:
    """Pick the pinned input that a logical name means.

    The tag may have moved on since the job was pinned; the job keeps its version,
    so a name matches as it was written, or by its version number.
    """
    same = [found for found in inputs.inputs if (found.kind, found.name) == (name.kind, name.name)]
    for found in same:
        written = parse_logical_name(found.logical, kind=found.kind)
        if name == written or name.version == found.number:
            return found
    declared = ", ".join(found.logical for found in inputs.inputs) or "none"
    msg = f"this job has no input {str(name)!r} (declared: {declared})"
    raise InputNotDeclaredError(msg, "add it to the job's `datasets:` or `models:` and submit again")


def local_path(uri: str) -> Path:
    """The local folder or file of a `file://` URI or plain path."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri)
