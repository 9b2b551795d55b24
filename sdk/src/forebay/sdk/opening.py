"""`open("dataset:pick-place@train-ready")`: from a logical name to a `Dataset`.

Inside a job the name means what the job pinned, whatever the tag says now. Outside
of one, ingest is asked where the tag points at this moment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from forebay.contracts.identifiers import LogicalName, parse_logical_name
from forebay.contracts.parts import Part, Source
from forebay.runtime.settings import environment
from forebay.sdk.dataset import Dataset, open_pinned, open_root
from forebay.sdk.errors import InputNotDeclaredError
from forebay.sdk.inputs import find_input, read_inputs
from forebay.sdk.roots import root_at
from forebay.sdk.settings import PlaceSettings, current_job, place_settings


def open(name: str, *, project: str | None = None, environ: Mapping[str, str] | None = None) -> Dataset:  # noqa: A001 the verb people expect: sdk.open(...)
    """Open a dataset by logical name, `dataset:NAME@TAG` or `@v17`.

    Raises `InputNotDeclaredError` when the job does not list it, `DataUnreadableError`
    when it cannot be read here, `Unreachable` when nobody can say where it is.
    """
    environ = environment() if environ is None else environ
    logical = parse_logical_name(name)
    job, place = current_job(environ), place_settings(environ)
    if job.inputs is not None:
        inputs = read_inputs(job.inputs)
        pinned = find_input(inputs, logical)
        return open_pinned(pinned, root_at(inputs.where_is(pinned), home=place.home))
    with ThreadPoolExecutor(1) as thread:  # a notebook has a running loop of its own
        version = thread.submit(asyncio.run, _ask_ingest(logical, place, project)).result()
    return open_root(root_at(str(version["root"]), home=place.home), name=logical.name, number=int(version["number"]))


async def _ask_ingest(name: LogicalName, place: PlaceSettings, project: str | None) -> dict[str, Any]:
    from forebay.runtime.client import Client  # noqa: PLC0415 inside a job no bus is needed

    url, projects = _installation(place)
    key = place.nkey_file or place.home / "keys" / f"{Part.OPERATOR}.nk"
    chosen = project or place.project or projects[0]
    async with Client.connect(url, key if key.exists() else None, Source(Part.OPERATOR)) as client:
        answer = await client.ask("ingest", chosen, "dataset", {"dataset": name.name})
    number = name.version if name.version is not None else answer.result["tags"].get(name.selector)
    for version in answer.result["versions"]:
        if version["number"] == number:
            return dict(version)
    tags = ", ".join(sorted(answer.result["tags"])) or "none"
    msg = f"dataset {name.name} has no {name.selector!r} in project {chosen} (tags: {tags})"
    raise InputNotDeclaredError(msg, f"see: forebay dataset show {name.name}")


def _installation(place: PlaceSettings) -> tuple[str, list[str]]:
    """The bus and the projects of the installation that `forebay up` describes in its home folder."""
    path = Path(place.home) / "local.json"
    local: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    url = place.nats_url or str(local.get("nats_url", "nats://127.0.0.1:4222"))
    return url, [str(project) for project in local.get("projects", [])] or ["default"]
