"""The command `place`: a version gets a second place on object storage, from which jobs read Lance directly (plan B)."""

from __future__ import annotations

from forebay.contracts.identifiers import stable_id
from forebay.ingest.domain.place_uri import S3Place, parse_place
from forebay.ingest.domain.resolve import unusable
from forebay.ingest.domain.selecting import selected
from forebay.ingest.errors import PlaceUnknownError
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Outcome, Pending, Request, Work
from forebay.runtime.state import State

PLACE = "place"
OBJECTS = "B"


def place_version(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """`{dataset, uri}` -> the version is copied there, read back, and can be leased with `access: B`."""
    dataset, version = selected(state, request)
    why_not = unusable(version)
    if why_not is not None:
        raise Refused("version-unusable", why_not.message, "place another version", {})
    if version.access_plan != "C":
        text = f"v{version.number} of {dataset.name} was registered where it lies; it has no Lance tables to place"
        raise Refused("not-ours", text, "upload the folder, then place that version")
    uri = str(request.args.get("uri") or "")
    try:
        where = parse_place(uri)
    except PlaceUnknownError as error:
        raise Refused("bad-request", str(error), "write for example s3://robots/pick-place") from error
    if not isinstance(where, S3Place):
        raise Refused("bad-request", f"{uri} is no place on object storage", "write for example s3://robots/pick-place")
    root = f"{where.uri}/{request.project}/{dataset.name}/v{version.number}"
    known = version.places.get(OBJECTS)
    result = {"dataset": dataset.name, "number": version.number, "root": root}
    if known == root:
        return Outcome(result={**result, "placing": version.placing, "joined": True})
    if known is not None:
        text = f"v{version.number} of {dataset.name} lies at {known} already, and running jobs may read it there"
        raise Refused("placed-elsewhere", text, "place a later version there instead")
    id_ = "pl-" + stable_id(request.project, request.id)[:24]
    payload = {"dataset": dataset.name, "number": version.number, "root": root, "by": request.by, "placing": id_}
    work = Work(kind=PLACE, key=id_, project=request.project, payload=payload)
    return Outcome(result={**result, "placing": id_, "joined": False}, actions=(work,))
