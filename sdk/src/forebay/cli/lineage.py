"""`forebay lineage ID` and `forebay impact ID`: trees from the registry, as text, table, JSON, Mermaid or SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from forebay.cli.output import AsJson, Project, console, print_document, print_json
from forebay.cli.place import find_place

Id = Annotated[
    str,
    typer.Argument(
        help="A model (reach-policy, reach-policy@production), job, checkpoint, dataset@v1, or an episode (ep-… or dataset@v1/17)."
    ),
]
AsOf = Annotated[
    str | None, typer.Option("--as-of", help="As the log was: a sequence, a day (its end) or a time. UTC.")
]
AsTable = Annotated[bool, typer.Option("--table", help="One line for each thing instead of a tree.")]
AsMermaid = Annotated[bool, typer.Option("--mermaid", help="A Mermaid flowchart instead of a tree.")]
SvgFile = Annotated[Path | None, typer.Option("--svg", help="Draw it into this SVG file.", metavar="FILE")]
_COLOURS = {
    "episode": "green", "dataset": "cyan", "job": "yellow", "attempt": "yellow", "checkpoint": "blue",
    "model": "magenta", "release": "bold magenta", "evaluation": "white", "upload": "cyan",
}  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("lineage", epilog="Example: forebay lineage reach-policy@production --svg reach.svg")(lineage)
    app.command("impact", epilog="Example: forebay impact ep-0123456789abcdef01234567")(impact)


def lineage(
    id: Id,  # noqa: A002 the word people use
    *,
    episodes: Annotated[int, typer.Option(help="How many episodes to list.")] = 20,
    episodes_after: Annotated[str | None, typer.Option(help="List episodes after this one.")] = None,
    depth: Annotated[int | None, typer.Option(help="How far up to go.", min=0)] = None,
    as_of: AsOf = None,
    table: AsTable = False,
    mermaid: AsMermaid = False,
    svg: SvgFile = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what made something, down to the episodes. Says what is missing, and up to which event it is true."""
    args = _given(id=id, episodes=episodes, episodes_after=episodes_after, depth=depth, as_of=as_of)
    answer = find_place(project).answer("registry", "lineage", args)
    found: dict[str, Any] = {**answer.result, "as_of_seq": answer.as_of_seq, "lag": answer.lag}
    if _drawn(found, "parents", mermaid=mermaid, svg=svg, as_json=as_json):
        return
    out = console()
    _show(out, found["tree"], "parents", table=table)
    show_completeness(out, found)


def impact(
    id: Id,  # noqa: A002
    *,
    as_of: AsOf = None,
    table: AsTable = False,
    mermaid: AsMermaid = False,
    svg: SvgFile = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what something reached: versions, jobs, checkpoints, models, releases."""
    answer = find_place(project).answer("registry", "impact", _given(id=id, as_of=as_of))
    found: dict[str, Any] = {**answer.result, "as_of_seq": answer.as_of_seq, "lag": answer.lag}
    if _drawn(found, "children", mermaid=mermaid, svg=svg, as_json=as_json):
        return
    out = console()
    _show(out, found["tree"], "children", table=table)
    counts = ", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in found["counts"].items())
    out.print(f"reached: {counts or 'nothing'}")
    for one in found.get("live") or ():
        out.print(f"[bold]live now:[/] {escape(one['model'])}@{escape(one['channel'])} names v{one['number']}")
    show_completeness(out, found)


def _given(**args: Any) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


def _drawn(found: Mapping[str, Any], below: str, *, mermaid: bool, svg: Path | None, as_json: bool) -> bool:
    """Print or write what is not for reading; False when text is wanted."""
    if svg is not None:
        from forebay.cli.graph_svg import svg as draw  # noqa: PLC0415 only for pictures
        from forebay.cli.graphs import graph_of  # noqa: PLC0415
        from forebay.sdk.errors import ForebayError  # noqa: PLC0415

        graph = graph_of(found["tree"], below)
        try:
            svg.write_text(draw(graph, str(found["id"])), encoding="utf-8")
        except OSError as error:
            msg = f"{svg} cannot be written: {error.strerror or error}"
            raise ForebayError(msg, "name another file with --svg") from error
        if not as_json and not mermaid:
            out = console()
            out.print(f"drew {len(graph.boxes)} things and {len(graph.arrows)} arrows into {escape(str(svg))}")
            show_completeness(out, found)
            return True
    if mermaid:
        from forebay.cli.graphs import graph_of  # noqa: PLC0415
        from forebay.cli.graphs import mermaid as text_of  # noqa: PLC0415

        print_document(text_of(graph_of(found["tree"], below)))
    elif as_json:
        print_json(found)
    return mermaid or as_json


def _show(out: Console, tree: Mapping[str, Any], below: str, *, table: bool) -> None:
    if table:
        from forebay.cli.graphs import table_of  # noqa: PLC0415

        out.print(table_of(tree, below))
    else:
        out.print(_tree(tree, below))


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
    if node.get("name"):
        parts.append(f"[dim]({escape(str(node['name']))})[/]")
    if node.get("placeholder"):
        parts.append("[red]no event has described it[/]")
    if node.get("contested"):
        parts.append(f"[red]contested: {escape(', '.join(node['contested']))}[/]")
    if node.get("repeated"):
        parts.append("[dim](shown above)[/]")
    if node.get("possible"):
        parts.append("[yellow]possibly[/]")
    return "  ".join(parts)


def show_completeness(out: Console, found: Mapping[str, Any]) -> None:
    """The last lines of every answer: contradictions, what is missing, and up to where it is true."""
    for one in found.get("contradictions") or ():
        out.print(f"[red]contradiction:[/] {escape(str(one.get('message', one)))}")
    if found["complete"]:
        out.print("[green]complete[/]: nothing is missing from this answer")
    else:
        out.print(f"[yellow]not complete[/]: {len(found['missing'])} things are missing")
        for one in found["missing"][:10]:
            out.print(f"  {escape(str(one['id']))}: {escape(str(one['reason']))}")
    if "as_of_seq" in found:
        out.print(f"[dim]{escape(until(found))}[/]")


def until(found: Mapping[str, Any]) -> str:
    """Up to which event an answer is true, in words."""
    moment, seq, lag = found.get("as_of"), found["as_of_seq"], found["lag"]
    said = f"true as of message {seq} of the log"
    if moment:
        asked = moment.get("seq")
        said = f"as the log was at {moment.get('time') or f'message {asked}'} (read up to {seq})"
        if asked is not None and asked > seq:
            said += f"; message {asked} is not read yet, so this is not its state"
    return said + (f"; {lag} newer messages are not in it" if lag else "")
