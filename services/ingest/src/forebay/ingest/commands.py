"""Offline commands of ingest: `validate` and `rules`. The CLI finds `register` by its entry point."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from forebay.ingest import convert_command
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
    app.command("validate", epilog="Example: forebay validate s3://robots/pick-place --endpoint http://minio:9000")(
        validate
    )
    app.command("rules")(list_rules)
    convert_command.register(app)


def validate(
    path: Annotated[str, typer.Argument(help="Folder of a LeRobot dataset (v3.0, v2.1, v2.0), or s3://BUCKET/PREFIX.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 server; default: AWS_ENDPOINT_URL. Keys: AWS_ACCESS_KEY_ID, …")
    ] = None,
) -> None:
    """Check a dataset against every rule, where it lies. Needs no Forebay server; changes nothing."""
    report = _inspect(path, endpoint)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False))
    else:
        _show(path, report, Console())
    raise typer.Exit(0 if report.good else 1)


def _inspect(path: str, endpoint: str | None) -> Report:
    from forebay.ingest.adapters import decoders  # noqa: PLC0415 other commands do without

    decoders.warm_up()
    from forebay.ingest.domain.place_uri import parse_place  # noqa: PLC0415 NumPy would slow every command's start
    from forebay.ingest.errors import ObjectStoreError, PlaceUnknownError, SourceChangedError  # noqa: PLC0415
    from forebay.ingest.inspection import inspect  # noqa: PLC0415
    from forebay.ingest.places import open_place  # noqa: PLC0415
    from forebay.ingest.settings import s3_settings  # noqa: PLC0415

    bars: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task({"rows": "reading rows", "frames": "decoding video"}.get(stage, stage))
            progress.update(bars[stage], completed=done, total=max(total, done))

        try:
            with open_place(parse_place(path, endpoint), s3_settings()) as folder:
                return inspect(folder, advance).report
        except PlaceUnknownError as error:
            message, code = str(error), 2
        except (ObjectStoreError, SourceChangedError) as error:
            message, code = str(error), 3
    typer.echo(message, err=True)
    raise typer.Exit(code)


def _show(path: str, report: Report, console: Console) -> None:
    counts: dict[str, Any] = report.to_json()["counts"]
    console.print(
        f"[bold]{escape(printable(path))}[/]  {report.format}, {counts['files']} files, {counts['bytes']:,} bytes"
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
