"""`forebay audit|diff|history|search`: what is wrong, what changed, what was live, what there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from forebay.cli.lineage import AsOf, show_completeness
from forebay.cli.output import AsJson, Project, console, plain_table, print_json
from forebay.cli.place import Place, find_place

_PAGES = 10_000
_EXIT_FOUND = 1


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("audit", epilog="Example: forebay audit reach-policy@production")(audit)
    app.command("diff", epilog="Example: forebay diff reach-policy@v1 reach-policy@v2")(diff)
    app.command("history", epilog="Example: forebay history reach-policy --as-of 2026-01-31")(history)
    app.command("search", epilog="Example: forebay search --task 'pick the cup' --metric 'success>=0.8'")(search)


def audit(
    id: Annotated[str | None, typer.Argument(help="One thing and all that made it; default: the project.")] = None,  # noqa: A002
    *,
    as_of: AsOf = None,
    contents: Annotated[
        bool, typer.Option("--contents", help="Read all files of live models; large ones are else compared by size.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when anything is found.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Look for contradictions, broken links, unevaluated releases and withdrawn episodes in live models."""
    place = find_place(project)
    found = _all_pages(place, "audit", {"id": id, "as_of": as_of, "contents": contents or None}, "findings")
    while contents and found["unread_bytes"]:
        before = found["unread_bytes"]
        found = _all_pages(place, "audit", {"id": id, "as_of": as_of, "contents": True}, "findings")
        if found["unread_bytes"] >= before:  # one file is larger than what an answer reads: it says so
            break
    if id is None and as_of is None:
        found["findings"] += _log_findings(place, found["as_of_seq"])
    if as_json:
        print_json(found)
    else:
        _show_audit(console(), found)
    if strict and found["findings"]:
        raise typer.Exit(_EXIT_FOUND)


def _show_audit(out: Console, found: Mapping[str, Any]) -> None:
    for settled, words in ((True, "cannot be true at once"), (False, "missing, weak or dangerous")):
        several = [one for one in found["findings"] if one["settled"] is settled]
        if several:
            out.print(f"[bold]{words}[/] ({len(several)})")
        for one in several:
            colour = "red" if settled else "yellow"
            out.print(f"  [{colour}]{escape(one['code'])}[/]  {escape(one['message'])}")
            if one["events"]:
                out.print(f"    [dim]{escape(', '.join(one['events'][:3]))}[/]")
    out.print(f"checked {found['checked']} things, found {len(found['findings'])}")
    show_completeness(out, found)


def _log_findings(place: Place, as_of_seq: int) -> list[dict[str, Any]]:
    """What only the log itself can show: that its beginning is gone, or that it was replaced."""
    from forebay.cli.place import run_async  # noqa: PLC0415
    from forebay.runtime.log import LogReader, lost  # noqa: PLC0415 help must not load the bus client

    async def asked() -> tuple[int, int]:
        async with place.client() as client:
            return await LogReader(client.nc).ends()

    first, last = run_async(asked())
    return [
        {"code": code, "subject": "log", "message": message, "values": [first, last], "events": [], "settled": True}
        for code, message in lost(first, last, as_of_seq)
    ]


def _all_pages(place: Place, question: str, args: Mapping[str, Any], listed: str) -> dict[str, Any]:
    """Every page of one answer as one; what is listed is joined, the rest is the last page's."""
    given = {name: value for name, value in args.items() if value is not None}
    together: list[Any] = []
    missing: list[Any] = []
    checked = unread = 0
    after: object = None
    for _ in range(_PAGES):
        page = place.answer("registry", question, given | ({} if after is None else {"after": after}))
        result = page.result
        together += [one for one in result[listed] if one not in together[-50:]]
        missing += [one for one in result["missing"] if one not in missing and not result.get("after")]
        checked += result.get("checked", 0)
        unread += result.get("unread_bytes", 0)
        after = result.get("after")
        if after is None:
            return {
                **result,
                listed: together,
                "missing": missing,
                "checked": checked,
                **({"unread_bytes": unread} if "unread_bytes" in result else {}),
                "complete": not missing,
                "as_of_seq": page.as_of_seq,
                "lag": page.lag,
            }
    msg = f"{question} did not end after {_PAGES} pages"
    raise RuntimeError(msg)


def diff(
    a: Annotated[str, typer.Argument(help="A model version: reach-policy@v1, reach-policy@production.")],
    b: Annotated[str, typer.Argument(help="The other one.")],
    *,
    as_of: AsOf = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two models: data, base models, code, image, parameters, result."""
    args = {"a": a, "b": b} | ({} if as_of is None else {"as_of": as_of})
    answer = find_place(project).answer("registry", "diff", args)
    found: dict[str, Any] = {**answer.result, "as_of_seq": answer.as_of_seq, "lag": answer.lag}
    if as_json:
        print_json(found)
        return
    out = console()
    table = plain_table("", "what", escape(_short(found["a"])), escape(_short(found["b"])))
    group = ""
    for one in found["differences"]:
        table.add_row(
            "" if one["group"] == group else escape(one["group"]), escape(one["what"]), _cell(one["a"]), _cell(one["b"])
        )
        group = one["group"]
    out.print(table if found["differences"] else "no difference that any event tells of")
    if found["same"]:
        out.print(f"the same: {escape(', '.join(found['same']))}")
    if found["unknown"]:
        out.print(f"[yellow]no event says:[/] {escape(', '.join(found['unknown']))}")
    show_completeness(out, found)


def _short(node_id: str) -> str:
    return node_id.partition(":")[2]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict) and "only_here" in value:
        return f"{value['total']}, {value['only_here']} only here"
    if isinstance(value, dict):
        value = {name: one for name, one in value.items() if one is not None}
        if set(value) == {"manifest"}:
            return f"manifest {value['manifest'][:12]}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape(text if len(text) <= 60 else f"{text[:57]}…")


def history(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    *,
    channel: Annotated[str | None, typer.Option("--channel", "-c", help="Only this channel.")] = None,
    as_of: AsOf = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show every move of a model's channels, and what was live then."""
    args = {"model": model, "channel": channel, "as_of": as_of}
    found = _all_pages(find_place(project), "history", args, "moves")
    if as_json:
        print_json(found)
        return
    out = console()
    table = plain_table("at (UTC)", "channel", "version", "before", "by", "on", "until (UTC)")
    for one in found["moves"]:
        typed = " (typed by hand)" if one.get("typed") else ""
        grounds = f"{one['evaluation']}{typed}" if one["evaluation"] else "no evaluation"
        if one["action"] == "rollback":
            grounds = "rollback"
        said = f"{grounds}: {one['reason']}" if one["reason"] else grounds
        before = "-" if one["previous"] is None else f"v{one['previous']}"
        at = _at(one["at"]) + (f" (its writer's clock: {_at(one['at_writer'])})" if one.get("at_writer") else "")
        cells = (at, one["channel"], f"v{one['number']}", before, str(one["by"]), said, _at(one["until"]))
        table.add_row(*(escape(cell) for cell in cells))
    out.print(table if found["moves"] else f"{escape(model)} was never released")
    live = ", ".join(f"{name} → v{number}" for name, number in found["channels"].items())
    when = "then" if found["as_of"] else "now"
    out.print(f"[bold]{when}:[/] {escape(live) or 'no channel names a version'}")
    show_completeness(out, found)


def _at(value: str | None) -> str:
    return "-" if value is None else value[:19].replace("T", " ")


def search(
    *,
    task: Annotated[str | None, typer.Option(help="Part of a task.")] = None,
    robot: Annotated[str | None, typer.Option(help="Part of a robot's name.")] = None,
    dataset: Annotated[str | None, typer.Option(help="pick, or pick@v3 for that version only.")] = None,
    metric: Annotated[str | None, typer.Option(help="success, or a condition such as 'success>=0.8'.")] = None,
    as_of: AsOf = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Find models and datasets by task, robot, dataset and metric; every condition has to hold."""
    if task is None and robot is None and dataset is None and metric is None:
        msg = "give --task, --robot, --dataset or --metric"
        raise typer.BadParameter(msg)
    args = {"task": task, "robot": robot, "dataset": dataset, "metric": metric, "as_of": as_of}
    place = find_place(project)
    first = place.answer("registry", "search", {name: value for name, value in args.items() if value is not None})
    found = first.result
    if found["after"] is not None:
        found = {**_all_pages(place, "search", args, "models"), "datasets": found["datasets"]}
    found |= {"as_of_seq": first.as_of_seq, "lag": first.lag}
    if as_json:
        print_json(found)
        return
    out = console()
    table = plain_table("model", "made of", "job", "step", "metrics", "channels")
    for one in found["models"]:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(one["metrics"].items())[:4]) or "-"
        metrics += " (typed by hand)" if one.get("typed") else ""
        made_of = ", ".join(_short(name) for name in one["datasets"]) or "unknown"
        cells = (f"{one['model']}@v{one['number']}", made_of, str(one["job"]), str(one["step"]), metrics)
        table.add_row(*(escape(cell) for cell in cells), escape(", ".join(one["channels"]) or "-"))
    out.print(table if found["models"] else "no model fits")
    for one in found["datasets"]:
        facets = "; ".join(", ".join(one[name]) for name in ("tasks", "robots") if one.get(name))
        latest = "no version yet" if one["latest"] is None else f"v{one['latest']}"
        out.print(f"dataset [cyan]{escape(one['dataset'])}[/] {latest}  {escape(facets)}")
    show_completeness(out, found)
