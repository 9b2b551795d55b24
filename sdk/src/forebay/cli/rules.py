"""`forebay rules waive|waivers|revoke`: the commands beside ingest's offline list of rules.

Ingest brings `forebay rules` and takes further subcommands from the entry point group
`forebay.commands.rules`, so that it needs nothing of this package.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, day, plain_table, print_json
from forebay.cli.place import find_place

_EXAMPLE = (
    "Example: forebay rules waive LR-VIDEO-008 --dataset pick-place --reason 'the top camera looks at a still table'"
)
_SHOWN = 12


def register(group: typer.Typer) -> None:
    """Add the subcommand."""
    group.command("waive", epilog=_EXAMPLE)(waive)
    group.command("waivers", epilog="Example: forebay rules waivers --dataset pick-place")(waivers)
    group.command("revoke", epilog="Example: forebay rules revoke 2 --dataset pick-place --reason 'it was the lamp'")(
        revoke
    )


def waive(
    rule: Annotated[str, typer.Argument(help="The rule's id, for example LR-VIDEO-008.")],
    *,
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="The dataset's name.")],
    reason: Annotated[str, typer.Option(help="Why the rule may be ignored, for the record.")],
    episodes: Annotated[
        list[str] | None,
        typer.Option("--episodes", help="Ids (ep-…) or names (pick-place@v3/17), with commas; default: all."),
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Take the responsibility for ignoring a rule. Episodes that only it holds go into the next version.

    Who and why are recorded. Without --episodes later uploads of the dataset are judged
    by it too. Rejected episodes are not brought back: upload them again. Exit 1: refused.
    """
    named = [id_.strip() for text in episodes or () for id_ in text.split(",") if id_.strip()]
    place = find_place(project)
    args: dict[str, Any] = {"rule": rule.upper(), "dataset": dataset, "reason": reason, "episodes": named}
    result = place.ask("ingest", "waive", args)
    if as_json:
        print_json(result)
        return
    out = console()
    whom = f"{len(result['episodes'])} episodes" if result["episodes"] else "every episode"
    out.print(f"{escape(result['rule'])} is waived on {whom} of {escape(result['dataset'])} by {escape(result['by'])}")
    out.print(f"  accepted now: {_named(result['accepted'])}")
    if result["still_held"]:
        out.print(f"  still held by other rules: {_named(result['still_held'])}")
        out.print(f"  see them: forebay dataset show {escape(result['dataset'])}")


def waivers(
    *,
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="The dataset's name.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the waivers on a dataset: who ignored which rule, when and why, and whether it still holds."""
    result = find_place(project).ask("ingest", "waivers", {"dataset": dataset})
    if as_json:
        print_json(result)
        return
    table = plain_table("no.", "rule", "episodes", "by", "since", "holds", "reason")
    for one in result["waivers"]:
        state = "[green]yes[/]" if one["holds"] else "no: it ended" if not one["revoked"] else "no"
        reason = escape(one["reason"])
        if one["revoked"]:
            reason += f"; revoked by {escape(one['revoked_by'])}, {day(one['revoked_at'])}: {escape(one['revoked'])}"
        table.add_row(
            str(one["number"]), escape(one["rule"]), _named(one["episodes"]) if one["episodes"] else "all",
            escape(one["by"]), day(one["at"]), state, reason,
        )  # fmt: skip
    found = bool(result["waivers"])
    console(wrap=True).print(table if found else f"dataset {escape(result['dataset'])} has no waiver")


def revoke(
    number: Annotated[int, typer.Argument(help="The waiver's number, as `forebay rules waivers` lists it.")],
    *,
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="The dataset's name.")],
    reason: Annotated[str, typer.Option(help="Why the rule counts again, for the record.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a waiver: later uploads are judged by the rule again.

    Episodes that were accepted because of it stay in their versions; they are listed. Exit 1: refused.
    """
    place = find_place(project)
    result = place.ask("ingest", "revoke-waiver", {"dataset": dataset, "number": number, "reason": reason})
    if as_json:
        print_json(result)
        return
    out = console()
    out.print(f"waiver {result['number']} of {escape(result['dataset'])} ({escape(result['rule'])}) is revoked")
    if result["let_in"]:
        out.print(f"  accepted with this rule, and still in their versions: {_named(result['let_in'])}")
        out.print("  to exclude one: forebay episode withdraw EPISODE --reason …")


def _named(ids: list[str]) -> str:
    rest = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return escape(", ".join(ids[:_SHOWN]) + rest) or "none"
