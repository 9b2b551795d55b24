"""`forebay checkpoint delete` and `forebay delete JOB`: files that nothing needs any more."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.models import command
from forebay.cli.output import AsJson, Project, console, print_json
from forebay.cli.place import find_place

Reason = Annotated[str, typer.Option(help="Why; on record.")]
Force = Annotated[bool, typer.Option("--force", help="Also what models were made from, when their own files are kept.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted, or what needs it.")]


def register(app: typer.Typer) -> None:
    """Add `forebay delete`."""
    app.command("delete", epilog="Example: forebay delete reach-7 --reason 'experiment given up'")(delete_job)


def delete_checkpoint(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint's id, or its step with --job.")],
    *,
    reason: Reason,
    job: Annotated[str | None, typer.Option("--job", "-j", help="The job that wrote it.")] = None,
    force: Force = False,
    dry_run: DryRun = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Delete the files of a checkpoint; what is known about it stays.

    Refused, with their names, when a model or a release was made from it or a job may still start or continue from it.
    """
    args = {"checkpoint": checkpoint, "job": job, "reason": reason, "force": force, "dry_run": dry_run}
    _show(command(find_place(project), "checkpoint-delete", args), dry_run=dry_run, as_json=as_json)


def delete_job(
    job: Annotated[str, typer.Argument(help="A job that has ended: reach-7, or reach for its latest run.")],
    *,
    reason: Reason,
    force: Force = False,
    dry_run: DryRun = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Delete the files of a job: its checkpoints, output and logs; what is known about it stays.

    Refused, with their names, when a model, a release or another job needs one of its checkpoints.
    """
    args = {"job": job, "reason": reason, "force": force, "dry_run": dry_run}
    _show(command(find_place(project), "job-delete", args), dry_run=dry_run, as_json=as_json)


def _show(result: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from forebay.runtime.disk_room import bytes_in_words  # noqa: PLC0415 help must not pay for it

    if as_json:
        print_json(result | {"dry_run": dry_run})
        return
    saves = result["checkpoints"]
    word = "would be deleted" if dry_run else "deleted before" if result["already"] else "deleted"
    amount = f"{len(saves)} checkpoint{'' if len(saves) == 1 else 's'}, {bytes_in_words(result['bytes'])}"
    console().print(f"[bold]{escape(result['job'])}[/]: {amount} {word}; the record stays")
    for save in saves:
        console().print(f"  step {save['step']}  {escape(save['checkpoint'])}  {escape(save['uri'])}")
