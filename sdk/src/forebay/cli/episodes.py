"""`forebay episode withdraw`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, print_json
from forebay.cli.place import find_place

_EXAMPLE = "Example: forebay episode withdraw ep-5f620b51890b547af9cef0bc --reason 'a person in it asked for that'"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Withdraw episodes.", no_args_is_help=True)
    group.callback()(_group)
    group.command("withdraw", epilog=_EXAMPLE)(withdraw)
    app.add_typer(group, name="episode")


def _group() -> None:
    """Withdraw episodes."""


def withdraw(
    episode: Annotated[str, typer.Argument(help="Its stable id (ep-…), or its number in a version: reach@v3/17.")],
    *,
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Exclude an episode from new versions. Versions that hold it are marked, and jobs that wait for them are told.

    Running jobs are flagged, not stopped. Models that it reached: forebay impact EPISODE.
    """
    place = find_place(project)
    result = place.ask("ingest", "withdraw", {"episode": episode, "reason": reason})
    if as_json:
        print_json(result)
        return
    out = console()
    name = f" ({escape(result['name'])})" if result["name"] else ""
    done = "withdrawn" if result["changed"] else f"was withdrawn before by {escape(str(result['by']))}"
    out.print(f"{escape(result['episode'])}{name} of {escape(result['dataset'])} {done}: {escape(result['reason'])}")
    versions = ", ".join(f"v{number}" for number in result["versions"]) or "no version"
    out.print(
        f"  held by {versions}; jobs waiting: {_names(result['waiting_jobs'])}; with a lease: {_names(result['leased_jobs'])}"
    )
    if result["versions"]:
        newest = max(result["versions"])
        out.print(f"  a version without it: forebay dataset derive {escape(result['dataset'])}@v{newest} --reason …")
    out.print(f"  models that it reached: forebay impact {escape(result['episode'])}")


def _names(jobs: list[str]) -> str:
    return escape(", ".join(jobs)) or "none"
