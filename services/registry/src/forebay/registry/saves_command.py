"""`forebay checkpoint verify DIR` and `forebay checkpoint resume-point DIR`: offline, by the registry's own rules.

The command line's group `checkpoint` finds `register` through the entry point group
`forebay.commands.checkpoint`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from forebay.runtime.terminal import console, plain_table, print_json

if TYPE_CHECKING:
    from forebay.registry.domain.resume import ResumePoint
    from forebay.registry.saves_offline import Found

Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="One checkpoint, or a folder of checkpoints.", exists=True),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
_COLOURS = {"complete": "green", "inexact": "yellow", "weights-only": "yellow", "in progress": "cyan"}
_NO = 1


def register(group: typer.Typer) -> None:
    """Add the subcommands."""
    group.command("verify", epilog="Example: forebay checkpoint verify outputs/train/checkpoints")(verify)
    group.command("resume-point", epilog="Example: forebay checkpoint resume-point outputs/train --checkpoint last")(
        resume_point
    )


def verify(folder: Folder, *, as_json: AsJson = False) -> None:
    """Say of each checkpoint whether it is whole, and which one a resume would take. Needs no server; changes nothing.

    Knows LeRobot, Hugging Face, adapters, shards, torch distributed, FSDP, DeepSpeed and Lightning by their files.
    States: complete, inexact (no scheduler or random state), weights-only, incomplete, in progress, corrupt,
    suspect. Every fault is listed. Headers are checked, tensors and pickles are not loaded.
    Exit code 1: one of them is not whole, or there is none.
    """
    from forebay.contracts.v1.models import Compatibility  # noqa: PLC0415 `--help` does without
    from forebay.registry.saves_offline import look_at, resume_in  # noqa: PLC0415

    found = look_at(folder, now=time.time())
    point = resume_in(found, named=None, compatibility=Compatibility(), steps=None)
    if as_json:
        print_json(_json(found) | {"resume": _point(point)})
    else:
        _show(found)
        _show_point(point)
    if not found.saves or not all(save.whole for save in found.saves):
        raise typer.Exit(_NO)


def resume_point(
    folder: Folder,
    *,
    checkpoint: Annotated[str | None, typer.Option(help="Ask for this one: a name, a step, or last.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Judge with these inputs: pick@v5; repeatable.")] = None,
    code: Annotated[str | None, typer.Option(help="Judge with this code revision.")] = None,
    steps: Annotated[int | None, typer.Option(help="Judge with this many steps in all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say which checkpoint of a folder a resume would take, and why not the others. Exit code 1: none can be taken."""
    from forebay.contracts.v1.models import Compatibility  # noqa: PLC0415 as above
    from forebay.registry.saves_offline import look_at, plain_code, resume_in  # noqa: PLC0415

    datasets = tuple(one if one.startswith("dataset:") else f"dataset:{one}" for one in dataset or ())
    wanted = Compatibility(datasets=datasets, code_revision=None if code is None else plain_code(code))
    found = look_at(folder, now=time.time())
    point = resume_in(found, named=checkpoint, compatibility=wanted, steps=steps)
    if as_json:
        print_json(_point(point) | _json(found))
    else:
        _show_point(point)
        _show(found)
    if point.mode != "resume":
        raise typer.Exit(_NO)


def _json(found: Found) -> dict[str, Any]:
    return {
        "checkpoints": [
            {
                "name": save.name,
                "step": save.step,
                "state": save.state,
                "kind": save.kind,
                "findings": list(save.findings),
                "folder": str(save.folder),
            }
            for save in found.saves
        ],
        "ignored": [{"name": one.name, "reason": one.reason} for one in found.passed],
        "links": [{"name": one.name, "target": one.target, "problem": one.problem} for one in found.links],
    }


def _point(point: ResumePoint) -> dict[str, Any]:
    return {
        "mode": point.mode,
        "checkpoint": None if point.save is None else point.save.id,
        "step": None if point.save is None else point.save.step,
        "reasons": list(point.reasons),
        "skipped": [{"checkpoint": one.checkpoint, "step": one.step, "reason": one.reason} for one in point.skipped],
        "conflicts": [
            {"what": one.what, "made": one.made, "wanted": one.wanted, "forbids": one.forbids, "message": one.message}
            for one in point.conflicts
        ],
    }


def _show(found: Found) -> None:
    out = console()
    table = plain_table("step", "checkpoint", "state", "kind")
    for save in found.saves:
        colour = _COLOURS.get(save.state, "red")
        table.add_row(str(save.step), escape(save.name), f"[{colour}]{save.state}[/]", escape(save.kind))
    if found.saves:
        out.print(table)
    for save in found.saves:
        for finding in save.findings:
            out.print(f"{escape(save.name)}: {escape(finding)}")
    for link in found.links:
        leads = f" → {escape(link.target)}" if link.target else ""
        problem = f" [yellow]{escape(link.problem)}[/]" if link.problem else ""
        out.print(f"{escape(link.name)}{leads}{problem}")
    for one in found.passed:
        out.print(f"[yellow]ignored[/] {escape(one.name)}: {escape(one.reason)}")


def _show_point(point: ResumePoint) -> None:
    out = console()
    for number, reason in enumerate(point.reasons):
        colour = "red" if point.mode == "refused" else "green"
        out.print(f"[{colour}]{escape(reason)}[/]" if number == 0 else f"  {escape(reason)}")
