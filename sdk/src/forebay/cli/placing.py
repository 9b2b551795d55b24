"""`forebay dataset place`: a second place for a version, on object storage, for jobs with `access: B`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, print_json
from forebay.cli.place import Place, find_place, person, run_async

if TYPE_CHECKING:
    from forebay.runtime.client import Client

_LOOK_EVERY_S = 0.3
EXAMPLE = "Example: forebay dataset place pick-place@v3 s3://robots/versions"


def place_dataset(
    dataset: Annotated[str, typer.Argument(help="The version: reach@v3 or reach@train-ready.")],
    uri: Annotated[str, typer.Argument(help="s3://BUCKET/PREFIX; the version gets a folder of its own below it.")],
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until it is there; 0: do not wait.")] = 600.0,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Copy a version's Lance tables to object storage, and read every file back.

    Jobs whose dataset says `access: B` then read them there, by the same logical name.
    Ingest and the jobs find the keys in object-stores.json of the home folder, or in
    AWS_ variables; this command sends none. Exit 1: it could not be put there.
    """
    place = find_place(project)
    result = run_async(_place(place, {"dataset": dataset, "uri": uri}, timeout))
    if as_json:
        print_json(result)
    else:
        _show(result)
    if result["problem"]:
        raise typer.Exit(1)


async def _place(place: Place, args: dict[str, Any], within_s: float) -> dict[str, Any]:
    async with place.client() as client:
        asked = (await client.ask("ingest", place.project, "place", args, by=person())).result
        found = await _look(client, place.project, asked)
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not found["done"] and loop.time() < end:
            await asyncio.sleep(_LOOK_EVERY_S)
            found = await _look(client, place.project, asked)
        return {**asked, "project": place.project, **found}


async def _look(client: Client, project: str, asked: dict[str, Any]) -> dict[str, Any]:
    answer = await client.ask("ingest", project, "dataset", {"dataset": asked["dataset"]})
    version = next(one for one in answer.result["versions"] if one["number"] == asked["number"])
    there = asked["root"] in version["places"].values()
    answered = version["placing"] == asked["placing"]
    return {"done": there or answered, "problem": version["placing_problem"] if answered and not there else None}


def _show(result: dict[str, Any]) -> None:
    out = console()
    label = f"[bold]{escape(result['dataset'])}@v{result['number']}[/]"
    if result["problem"]:
        out.print(f"{label} is not there: {escape(result['problem'])}")
    elif result["done"]:
        out.print(f"{label} lies at {escape(result['root'])} now, every file read back; jobs read it with `access: B`")
    else:
        out.print(f"{label} is being copied; see: forebay dataset show {escape(result['dataset'])} --json")
