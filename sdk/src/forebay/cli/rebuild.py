"""`forebay rebuild SERVICE`: fold the log again from its first event and compare the digests."""

from __future__ import annotations

import asyncio
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from forebay.cli.output import AsJson, Project, console, errors, print_json, seconds
from forebay.cli.place import Place, find_place, person, run_async

if TYPE_CHECKING:
    from forebay.runtime.machine import Service

GROUP = "forebay.services"
_LOOK_EVERY_S = 0.3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rebuild", epilog="Example: forebay rebuild registry --swap")(rebuild)


def rebuild(
    service: Annotated[str, typer.Argument(help="ingest, cache, scheduler-bridge or registry.")],
    project: Project = None,
    swap: Annotated[
        bool,
        typer.Option("--swap", help="Let the service itself rebuild while it answers, and go on over the new store."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fold the whole log into a fresh store with that service's code and compare it with the live one.

    Without --swap the live service is not touched. Exit 1 when the digests differ.
    """
    if swap:
        result = run_async(_swap(find_place(project), service))
        _show_swap(result, as_json=as_json)
        return
    result = run_async(_rebuild(find_place(project), _definition(service)))
    if as_json:
        print_json(result)
    else:
        verdict = "[green]equal[/]" if result["equal"] else "[bold red]different[/]"
        out = console()
        out.print(
            f"{service} at {result['position']}: {verdict}; {result['events']} messages in"
            f" {seconds(result['seconds'])} ({result['events_per_second']:,.0f}/s), {result['documents']} documents"
        )
        out.print(f"  rebuilt {escape(result['rebuilt_digest'])}")
        out.print(f"  live    {escape(result['live_digest'])}")
    if not result["equal"]:
        raise typer.Exit(1)


def _show_swap(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        verdict = "[green]equal[/]" if result["equal"] else "[bold red]different[/], the rebuilt one counts now"
        out = console()
        out.print(
            f"{result['service']} at {result['position']}: {verdict}; {result['events']} messages in"
            f" {seconds(result['seconds'])}, {result['documents']} documents; folding stood still for"
            f" {seconds(result['stood_still_s'])}, answers for {seconds(result['swap_s'])}"
        )
        out.print(f"  rebuilt {escape(result['rebuilt_digest'])}")
        out.print(f"  before  {escape(result['live_digest'])}")
    if not result["equal"]:
        raise typer.Exit(1)


async def _swap(place: Place, service: str) -> dict[str, Any]:
    from forebay.runtime.errors import Refused  # noqa: PLC0415 help must not pay for it

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with place.client() as client:
        with Progress(*columns, console=errors(), transient=True) as bar:
            task = bar.add_task("folding")
            args: dict[str, Any] = {"start": True}
            while True:
                made = (await client.ask(service, place.project, "rebuild", args, by=person(), timeout=30)).result
                bar.update(task, description=made["phase"], total=made["target"], completed=made["position"])
                if made["state"] != "running":
                    break
                args = {}
                await asyncio.sleep(_LOOK_EVERY_S)
    if made["state"] == "failed":
        msg = f"{service} was not rebuilt: {made['error']}"
        raise Refused("rebuild-failed", msg, "the store is as it was; the service's log has the details")
    return {"service": service, "equal": made["rebuilt_digest"] == made["live_digest"], **made}


def _definition(name: str) -> Service:
    """The service's pure definition, from its own package."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        msg = f"no service {name!r} is installed here; installed: {', '.join(sorted(points)) or 'none'}"
        raise typer.BadParameter(msg)
    made: Service = points[name].load()()
    return made


async def _rebuild(place: Place, service: Service) -> dict[str, Any]:
    from forebay.runtime.errors import Refused  # noqa: PLC0415 help must not pay for it
    from forebay.runtime.rebuild import rebuild as fold_again  # noqa: PLC0415

    columns = (TextColumn("folding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with place.client() as client:
        live = (await client.ask(service.name, place.project, "digest", {}, by=person())).result
        if live["fold_version"] != service.fold_version:
            msg = f"{service.name} runs fold version {live['fold_version']}, the code here has {service.fold_version}"
            raise Refused("other-version", msg, "restart the service, then rebuild again")
        position = int(live["position"])
        with tempfile.TemporaryDirectory() as folder, Progress(*columns, console=errors(), transient=True) as bar:
            task = bar.add_task("folding", total=position)
            made = await fold_again(
                service,
                client.batches(after=0, until=position),
                Path(folder) / "state.sqlite",
                progress=lambda seq: bar.update(task, completed=seq),
            )
    return {
        "service": service.name,
        "position": position,
        "rebuilt_position": made.seq,
        "equal": made.digest == live["digest"] and made.seq == position,
        "rebuilt_digest": made.digest,
        "live_digest": live["digest"],
        "documents": made.documents,
        "events": made.events,
        "parked": made.parked,
        "seconds": round(made.seconds, 3),
        "events_per_second": round(made.events / made.seconds, 1) if made.seconds else 0.0,
    }
