"""`forebay rules waive`: the command beside ingest's offline list of rules.

Ingest brings `forebay rules` and takes further subcommands from the entry point group
`forebay.commands.rules`, so that it needs nothing of this package.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, print_json
from forebay.cli.place import find_place

_EXAMPLE = (
    "Example: forebay rules waive LR-VIDEO-008 --dataset pick-place --reason 'the top camera looks at a still table'"
)
_SHOWN = 12


def register(group: typer.Typer) -> None:
    """Add the subcommand."""
    group.command("waive", epilog=_EXAMPLE)(waive)


def waive(
    rule: Annotated[str, typer.Argument(help="The rule's id, for example LR-VIDEO-008.")],
    *,
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="The dataset's name.")],
    reason: Annotated[str, typer.Option(help="Why the rule may be ignored, for the record.")],
    episodes: Annotated[
        list[str] | None, typer.Option("--episodes", help="Stable ids, with commas or repeated; default: all.")
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


def _named(ids: list[str]) -> str:
    rest = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return escape(", ".join(ids[:_SHOWN]) + rest) or "none"
