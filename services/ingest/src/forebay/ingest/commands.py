"""Offline commands of ingest: `validate` and `rules`. The CLI finds `register` by its entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from forebay.ingest import convert_command
from forebay.ingest.domain.breach import REPORT_TEXT, printable
from forebay.ingest.domain.rules import RULES, RULES_VERSION
from forebay.runtime.terminal import Terminal, console, plain_table, print_document, print_json, print_line
from forebay.runtime.wording import counted

if TYPE_CHECKING:
    from forebay.ingest.adapters.dataset_folder import DatasetFolder
    from forebay.ingest.domain.breach import Breach
    from forebay.ingest.domain.collection_request import CollectionRequest
    from forebay.ingest.domain.policy import Policy
    from forebay.ingest.domain.report import Report
    from forebay.ingest.domain.rule import Rule
    from forebay.ingest.inspection import Inspection

_COLOURS = {"error": "red", "hold": "magenta", "warning": "yellow", "info": "cyan"}
_WORDS = {
    "accept": "[green]accept[/]: every episode may enter a dataset version",
    "accept_with_warning": "[green]accept[/], with warnings",
    "hold": "[magenta]hold[/]: a person has to look before it may be used",
    "reject": "[red]reject[/]: see the findings",
    "incomplete": "[yellow]incomplete[/]: files are missing in our copy",
    "empty": "[yellow]empty[/]: 0 episodes recorded yet",
    "truncated": "[red]truncated[/]: files were cut off and nothing usable is left; upload them again",
    "partial": "[yellow]partial[/]: the good episodes go on, the bad ones stay where they are",
}
_SHOWN = 12
_MORE_RULES = "forebay.commands.rules"
"""Entry point group of further subcommands of `forebay rules`."""


def register(app: typer.Typer) -> None:
    """Add the commands to the CLI."""
    app.command("validate", epilog="Example: forebay validate s3://robots/pick-place --endpoint http://minio:9000")(
        validate
    )
    group = typer.Typer(help="List the validation rules, or waive one.", invoke_without_command=True)
    group.callback(epilog="Example: forebay rules --markdown > RULES.md")(list_rules)
    for point in entry_points(group=_MORE_RULES):  # what needs the bus comes from the package that knows it
        point.load()(group)
    app.add_typer(group, name="rules")
    convert_command.register(app)


def validate(
    path: Annotated[str, typer.Argument(help="Folder of a LeRobot dataset (v3.0, v2.1, v2.0), or s3://BUCKET/PREFIX.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 server; default: AWS_ENDPOINT_URL. Keys: AWS_ACCESS_KEY_ID, …")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="YAML file: rules raised, lowered or waived, thresholds.")] = None,
    request: Annotated[Path | None, typer.Option(help="JSON file: what was ordered, to compare with.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report with pictures and curves into this file.")] = None,
) -> None:
    """Check a dataset against every rule, where it lies. Needs no Forebay server; changes nothing."""
    terms = _terms(policy, request)
    report = _inspect(path, endpoint, terms, html)
    if as_json:
        print_json(report.to_json())
    else:
        _show(path, report, console(wrap=True))
    raise typer.Exit(0 if report.good else 1)


def _terms(policy: Path | None, request: Path | None) -> tuple[Policy, CollectionRequest | None]:
    """What the files say; wrong use when they cannot be followed."""
    from forebay.ingest.adapters.policy_file import read_policy  # noqa: PLC0415 most calls have none
    from forebay.ingest.domain.collection_request import RequestError, parse_request  # noqa: PLC0415
    from forebay.ingest.domain.policy import NO_POLICY  # noqa: PLC0415
    from forebay.ingest.errors import PolicyRefusedError  # noqa: PLC0415

    try:
        return (
            NO_POLICY if policy is None else read_policy(policy),
            None if request is None else parse_request(request.read_bytes()),
        )
    except (PolicyRefusedError, RequestError) as error:
        message = str(error)
    except OSError as error:
        message = f"{request} cannot be read: {error.strerror}"
    raise typer.BadParameter(message)


def _write_html(target: Path, path: str, inspection: Inspection, folder: DatasetFolder) -> None:
    from forebay.ingest.picturing import html_of  # noqa: PLC0415 most calls write none

    try:
        target.write_text(html_of(path, inspection, folder), encoding="utf-8")
    except OSError as error:
        msg = f"the report {target} cannot be written: {error.strerror}"
        raise typer.BadParameter(msg) from error


def _inspect(
    path: str, endpoint: str | None, terms: tuple[Policy, CollectionRequest | None], html: Path | None
) -> Report:
    from forebay.ingest.adapters import decoders  # noqa: PLC0415 other commands do without

    decoders.warm_up()
    from forebay.ingest.domain.place_uri import parse_place  # noqa: PLC0415 NumPy would slow every command's start
    from forebay.ingest.errors import ObjectStoreError, PlaceUnknownError, SourceChangedError  # noqa: PLC0415
    from forebay.ingest.inspection import inspect  # noqa: PLC0415
    from forebay.ingest.places import open_place  # noqa: PLC0415
    from forebay.ingest.settings import s3_settings  # noqa: PLC0415

    bars: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task({"rows": "reading rows", "frames": "decoding video"}.get(stage, stage))
            progress.update(bars[stage], completed=done, total=max(total, done))

        try:
            with open_place(parse_place(path, endpoint), s3_settings()) as folder:
                inspection = inspect(folder, advance, policy=terms[0], request=terms[1])
                if html is not None:
                    _write_html(html, path, inspection, folder)
                return inspection.report
        except PlaceUnknownError as error:
            message, code = str(error), 2
        except (ObjectStoreError, SourceChangedError) as error:
            message, code = str(error), 3
    print_line(message, stderr=True)
    raise typer.Exit(code)


def _show(path: str, report: Report, out: Terminal) -> None:
    counts: dict[str, Any] = report.to_json()["counts"]
    out.print(f"[bold]{escape(path)}[/]  {report.format}, {counts['files']} files, {counts['bytes']:,} bytes")
    groups: dict[tuple[Rule, str], list[Breach]] = {}
    for breach in report.breaches:
        groups.setdefault((breach.rule, breach.severity), []).append(breach)
    for (rule, severity), breaches in groups.items():
        colour = _COLOURS[severity]
        out.print()
        out.print(f"[{colour}]{severity:<8}[/] [bold]{rule.id}[/]  {escape(rule.title)}")
        for breach in breaches[:_SHOWN]:
            out.print(Padding(Text(printable(breach.message, REPORT_TEXT)), (0, 0, 0, 9)))
        if len(breaches) > _SHOWN:
            out.print(f"         … and {len(breaches) - _SHOWN} more; --json prints all of them")
        if severity in {"error", "hold"}:
            for advice in dict.fromkeys(breach.what_to_do for breach in breaches):
                out.print(Padding(Text(f"→ {advice}", style="dim"), (0, 0, 0, 9)))
    if groups:
        out.print()
    good = counts["accepted"]
    out.print(
        f"{counts['episodes']} episodes, {counts['frames']:,} frames: {good} accepted, {counts['held']} held, {counts['rejected']} rejected"
    )
    usable = (
        f"; the {counted(good, 'accepted episode')} may still be used" if report.outcome == "reject" and good else ""
    )
    out.print(f"{_WORDS.get(report.outcome, report.outcome)}{usable}")


def list_rules(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page of documentation.")] = False,
) -> None:
    """List the validation rules, each with why it exists and how to mend what breaks it; or waive one."""
    if context.invoked_subcommand is not None:
        return
    if markdown:
        from forebay.ingest.rule_pages import markdown as page  # noqa: PLC0415 most calls print none

        print_document(page())
        return
    if as_json:
        keys = ("id", "title", "severity", "question", "why", "fix")
        entries = [{key: getattr(rule, key) for key in keys} for rule in RULES.values()]
        print_json({"version": RULES_VERSION, "rules": entries})
        return
    table = plain_table("rule", "severity", "question", "fix")
    for rule in RULES.values():
        table.add_row(
            rule.id, f"[{_COLOURS[rule.severity]}]{rule.severity}[/]", escape(rule.question), escape(rule.fix)
        )
    console(wrap=True).print(table)
