"""`forebay lineage ID` and `forebay impact ID`: trees from the registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from forebay.cli.output import AsJson, Project, console, print_json
from forebay.cli.place import find_place

Id = Annotated[
    str, typer.Argument(help="A model (reach-policy, reach-policy@production), job, checkpoint, dataset@v1 or episode.")
]
_COLOURS = {
    "episode": "green", "dataset": "cyan", "job": "yellow", "attempt": "yellow", "checkpoint": "blue",
    "model": "magenta", "release": "bold magenta", "evaluation": "white", "upload": "cyan",
}  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("lineage", epilog="Example: forebay lineage reach-policy@production")(lineage)
    app.command("impact", epilog="Example: forebay impact ep-0123456789abcdef01234567")(impact)


def lineage(
    id: Id,  # noqa: A002 the word people use
    episodes: Annotated[int, typer.Option(help="How many episodes to list.")] = 20,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what made something, down to the episodes. Says what is missing."""
    found = find_place(project).ask("registry", "lineage", {"id": id, "episodes": episodes})
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(_tree(found["tree"], "parents"))
    _show_completeness(out, found)


def impact(
    id: Id,  # noqa: A002
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what something reached: versions, jobs, checkpoints, models, releases."""
    found = find_place(project).ask("registry", "impact", {"id": id})
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(_tree(found["tree"], "children"))
    counts = ", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in found["counts"].items())
    out.print(f"reached: {counts or 'nothing'}")
    for one in found.get("live") or ():
        out.print(f"[bold]live now:[/] {escape(one['model'])}@{one['channel']} names v{one['number']}")
    _show_completeness(out, found)


def _tree(node: Mapping[str, Any], below: str) -> Tree:
    """The answer's nodes as a tree, depth first without recursion limits to worry about."""
    root = Tree(_label(node), guide_style="dim")
    waiting = [(root, node)]
    while waiting:
        branch, shown = waiting.pop()
        waiting += [(branch.add(_label(child)), child) for child in shown.get(below, ())]
        paging = shown.get("episodes")
        if isinstance(paging, Mapping) and paging.get("after"):
            branch.add(f"[dim]… {paging['read'] - paging['shown']} more episodes (--episodes {paging['read']})[/]")
    return root


def _label(node: Mapping[str, Any]) -> str:
    kind = str(node.get("kind", ""))
    colour = _COLOURS.get(kind, "white")
    parts = [f"[{colour}]{escape(str(node.get('title') or node.get('id')))}[/]"]
    if node.get("placeholder"):
        parts.append("[red]no event has described it[/]")
    if node.get("contested"):
        parts.append(f"[red]contested: {escape(', '.join(node['contested']))}[/]")
    if node.get("repeated"):
        parts.append("[dim](shown above)[/]")
    if node.get("possible"):
        parts.append("[yellow]possibly[/]")
    return "  ".join(parts)


def _show_completeness(out: Console, found: Mapping[str, Any]) -> None:
    for one in found.get("contradictions") or ():
        out.print(f"[red]contradiction:[/] {escape(str(one.get('message', one)))}")
    if found["complete"]:
        out.print("[green]complete[/]: nothing is missing from this answer")
        return
    out.print(f"[yellow]not complete[/]: {len(found['missing'])} things are missing")
    for one in found["missing"][:10]:
        out.print(f"  {escape(str(one['id']))}: {escape(str(one['reason']))}")
