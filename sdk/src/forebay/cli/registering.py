"""`forebay dataset register`: use data where it lies, without a copy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, coloured, console, print_json
from forebay.cli.place import Place, find_place, person, run_async

if TYPE_CHECKING:
    from forebay.runtime.client import Client

_LOOK_EVERY_S = 0.3
_FINAL = frozenset({"COMMITTED", "FAILED"})
_SHOWN = 12
EXAMPLE = "Example: forebay dataset register s3://robots/pick-place --dataset pick-place --endpoint http://minio:9000"


def register_dataset(
    uri: Annotated[str, typer.Argument(help="Folder of a LeRobot dataset, or s3://BUCKET/PREFIX.")],
    *,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Its name; default: the last part.")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 server. Ingest has the keys, in its AWS_ variables.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Revision at the source, for lineage.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the verdict; 0: do not wait.")] = 600.0,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Validate a dataset where it lies and make a version of it, without copying anything.

    Sizes, digests or etags are recorded; when a file changes later, the version is
    broken by name before a job gets it. Exit 1: it is not good enough, see the findings.
    """
    place = find_place(project)
    whole = uri if "://" in uri else str(Path(uri).expanduser().absolute())
    name = dataset or whole.rstrip("/").rsplit("/", 1)[-1]
    args = {"uri": whole, "dataset": name, "endpoint": endpoint, "revision": revision}
    result = run_async(_register(place, args, timeout))
    if as_json:
        print_json(result)
    else:
        _show(result)
    if result["state"] == "FAILED":
        raise typer.Exit(1)


async def _register(place: Place, args: dict[str, Any], within_s: float) -> dict[str, Any]:
    async with place.client() as client:
        asked = (await client.ask("ingest", place.project, "register", args, by=person())).result
        found = await _look(client, place.project, asked["registration"])
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while found["state"] not in _FINAL and loop.time() < end:
            await asyncio.sleep(_LOOK_EVERY_S)
            found = await _look(client, place.project, asked["registration"])
        return {**found, "project": place.project, "joined": asked["joined"]}


async def _look(client: Client, project: str, registration: str) -> dict[str, Any]:
    answer = await client.ask("ingest", project, "registration", {"registration": registration})
    return dict(answer.result)


def _show(result: dict[str, Any]) -> None:
    out = console()
    name, uri = escape(result["dataset"]), escape(result["uri"])
    if result["state"] == "COMMITTED":
        out.print(f"registered [bold]{name}@v{result['version']}[/]: the data stays at {uri}")
        return
    if result["state"] != "FAILED":
        out.print(f"{escape(result['registration'])} is {coloured(result['state'])}; see: forebay dataset show {name}")
        return
    out.print(f"not registered: {escape(result['message'] or '')}")
    for finding in result["findings"][:_SHOWN]:
        out.print(f"  {escape(finding['rule'])} {escape(finding['severity'])}: {escape(str(finding['message']))}")
