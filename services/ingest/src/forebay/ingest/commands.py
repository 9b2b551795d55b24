"""Offline commands of ingest: `validate` and `rules`. The CLI finds `register` by its entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from forebay.ingest.domain.breach import REPORT_TEXT, printable
from forebay.ingest.domain.rules import RULES, RULES_VERSION

if TYPE_CHECKING:
    from forebay.ingest.domain.report import Report

_COLOURS = {"error": "red", "hold": "magenta", "warning": "yellow", "info": "cyan"}
_WORDS = {
    "accept": "[green]accept[/]: every episode may enter a dataset version",
    "accept_with_warning": "[green]accept[/], with warnings",
    "hold": "[magenta]hold[/]: a person has to look before it may be used",
    "reject": "[red]reject[/]: see the findings; episodes without one may still be used",
    "incomplete": "[yellow]incomplete[/]: files are missing in our copy",
    "empty": "[yellow]empty[/]: 0 episodes recorded yet",
}
_SHOWN = 40


def register(app: typer.Typer) -> None:
    """Add the commands to the CLI."""
    app.command("validate")(validate)
    app.command("rules")(list_rules)


def validate(
    path: Annotated[Path, typer.Argument(help="Folder of a LeRobot dataset.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a dataset folder against every rule. Needs no server; changes nothing."""
    if not path.exists():
        typer.echo(f"{path} does not exist; give the folder that contains meta/info.json", err=True)
        raise typer.Exit(2)
    report = _inspect(path)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False))
    else:
        _show(path, report, Console())
    raise typer.Exit(0 if report.good else 1)


def _inspect(path: Path) -> Report:
    from forebay.ingest.adapters import decoders  # noqa: PLC0415 other commands do without

    decoders.warm_up()
    from forebay.ingest.inspection import inspect  # noqa: PLC0415 NumPy would slow every command's start

    bars: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task({"rows": "reading rows", "frames": "decoding video"}.get(stage, stage))
            progress.update(bars[stage], completed=done, total=max(total, done))

        return inspect(path, advance).report


def _show(path: Path, report: Report, console: Console) -> None:
    counts: dict[str, Any] = report.to_json()["counts"]
    console.print(
        f"[bold]{escape(printable(str(path)))}[/]  {report.format}, {counts['files']} files, {counts['bytes']:,} bytes"
    )
    if report.breaches:
        table = Table("rule", "severity", "episode", "what was found", box=None, pad_edge=False, show_edge=False)
        for breach in report.breaches[:_SHOWN]:
            episodes = "all" if breach.episodes is None else ", ".join(map(str, breach.episodes[:8])) or "-"
            colour = _COLOURS[breach.severity]
            message = escape(printable(breach.message, REPORT_TEXT))
            table.add_row(breach.rule.id, f"[{colour}]{breach.severity}[/]", episodes, message)
        console.print(table)
        if len(report.breaches) > _SHOWN:
            console.print(f"… and {len(report.breaches) - _SHOWN} more; --json prints all of them")
        for rule in dict.fromkeys(b.rule for b in report.breaches if b.severity in {"error", "hold"}):
            console.print(f"[bold]{rule.id}[/] {escape(rule.title)}: {escape(rule.fix)}")
    good = counts["accepted"]
    console.print(
        f"{counts['episodes']} episodes, {counts['frames']:,} frames: {good} accepted, {counts['held']} held, {counts['rejected']} rejected"
    )
    console.print(_WORDS.get(report.outcome, report.outcome))


def list_rules(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List the validation rules, each with why it exists and how to mend what breaks it."""
    if as_json:
        keys = ("id", "title", "severity", "question", "why", "fix")
        entries = [{key: getattr(rule, key) for key in keys} for rule in RULES.values()]
        typer.echo(json.dumps({"version": RULES_VERSION, "rules": entries}, ensure_ascii=False))
        return
    table = Table("rule", "severity", "question", "fix", box=None, pad_edge=False)
    for rule in RULES.values():
        table.add_row(
            rule.id, f"[{_COLOURS[rule.severity]}]{rule.severity}[/]", escape(rule.question), escape(rule.fix)
        )
    Console().print(table)
