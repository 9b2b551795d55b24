"""`forebay resume-point JOB` and `forebay checkpoint import DIR`; what works offline comes from the registry's package."""

from __future__ import annotations

import shutil
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.deleting import delete_checkpoint
from forebay.cli.lineage import AsOf, show_completeness
from forebay.cli.models import command
from forebay.cli.output import AsJson, Project, coloured, console, plain_table, print_json
from forebay.cli.place import Place, find_place

if TYPE_CHECKING:
    from forebay.sdk.checkpoints import Save

_REFUSED = 1
_MORE = "forebay.commands.checkpoint"
"""Entry point group of further subcommands of `forebay checkpoint`."""
_ABOUT = "Judge checkpoints offline; bring in those of training that Forebay did not see; delete them."


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("resume-point", epilog="Example: forebay resume-point reach --checkpoint 1500")(resume_point)
    group = typer.Typer(help=_ABOUT, no_args_is_help=True)
    group.callback()(_checkpoint)
    group.command("import", epilog="Example: forebay checkpoint import outputs/train --name old-act")(import_saves)
    group.command("delete", epilog="Example: forebay checkpoint delete 1000 --job reach-7 --reason superseded")(
        delete_checkpoint
    )
    for point in entry_points(group=_MORE):
        point.load()(group)
    app.add_typer(group, name="checkpoint", help=_ABOUT)


def _checkpoint() -> None:
    """Judge checkpoints offline; bring in those of training that Forebay did not see; delete them."""


def resume_point(
    job: Annotated[str, typer.Argument(help="A job, reach-7, or its name for the latest run.")],
    *,
    attempt: Annotated[int | None, typer.Option(help="Which attempt asks; default: the next one.", min=1)] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Ask for this one: an id, a step or a folder.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Judge with these inputs: pick@v5; repeatable.")] = None,
    code: Annotated[str | None, typer.Option(help="Judge with this code revision.")] = None,
    steps: Annotated[int | None, typer.Option(help="Judge with this many steps in all.")] = None,
    allow_cold_start: Annotated[bool, typer.Option("--allow-cold-start", help="As if the job allowed it.")] = False,
    as_of: AsOf = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Say where an attempt would continue, and why. Decides and publishes nothing. Exit code 1: refused."""
    if "/" in job or job in {".", ".."}:
        msg = f"{job} is a folder, not a job; to judge what lies in it: forebay checkpoint resume-point {job}"
        raise typer.BadParameter(msg)
    datasets = [one if one.startswith("dataset:") else f"dataset:{one}" for one in dataset or ()]
    wanted: dict[str, Any] = {"datasets": datasets} if datasets else {}
    wanted |= {} if code is None else {"code_revision": code}
    args: dict[str, Any] = {"job": job, "attempt": attempt, "checkpoint": checkpoint, "as_of": as_of, "steps": steps}
    args = {name: value for name, value in args.items() if value is not None}
    args |= {"compatibility": wanted, "allow_cold_start": allow_cold_start}
    answer = find_place(project).answer("registry", "resume-preview", args)
    found: dict[str, Any] = {**answer.result, "as_of_seq": answer.as_of_seq, "lag": answer.lag}
    if as_json:
        print_json(found)
    else:
        _show(found)
    if found["mode"] == "refused":
        raise typer.Exit(_REFUSED)


def _show(found: dict[str, Any]) -> None:
    out = console()
    colour = {"refused": "red", "resume": "green"}.get(found["mode"], "yellow")
    step = "" if found["step"] is None else f" step {found['step']}, {found['checkpoint']}"
    head = (
        f"attempt {found['attempt']} of {escape(found['job'])}: [bold {colour}]{escape(found['mode'])}[/]{escape(step)}"
    )
    out.print(head)
    for reason in found["reasons"]:
        out.print(f"  {escape(reason)}")
    skipped = {one["checkpoint"]: one["reason"] for one in found["skipped"]}
    table = plain_table("step", "checkpoint", "attempt", "state", "")
    for save in found["saves"][:20]:
        said = "taken" if save["checkpoint"] == found["checkpoint"] else skipped.get(save["checkpoint"], "")
        number = "imported" if save["imported"] else str(save["attempt"])
        table.add_row(str(save["step"]), escape(save["checkpoint"]), number, coloured(save["status"]), escape(said))
    if found["saves"]:
        out.print(table)
    for one in found["attempts"]:
        if one["restarted"] and one["resumed"] is False:
            out.print(f"[red]attempt {one['attempt']} was restarted, but its training did not resume[/]")
    show_completeness(out, found)


def import_saves(
    folder: Annotated[Path, typer.Argument(help="One checkpoint, or a folder of checkpoints.", exists=True)],
    *,
    name: Annotated[str | None, typer.Option(help="Name of the old run; default: the folder's.")] = None,
    job: Annotated[str | None, typer.Option("--job", "-j", help="The job of Forebay they belong to.")] = None,
    use: Annotated[str, typer.Option("--as", help="warm-start or resume.")] = "warm-start",
    reason: Annotated[str | None, typer.Option(help="Why a resume from them is right; on record.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="What they were trained on: pick@v3; repeatable.")] = None,
    code: Annotated[str | None, typer.Option(help="Code revision they were trained with.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Bring in checkpoints of an old run. They are copied and checked; what is unknown stays unknown."""
    from forebay.contracts.identifiers import slug  # noqa: PLC0415
    from forebay.sdk.old_runs import saves_in  # noqa: PLC0415

    if name is not None and job is not None:
        msg = "--name is for an old run of its own, --job for a job of Forebay; give one of them"
        raise typer.BadParameter(msg)
    if use == "resume" and reason is None:
        msg = "--as resume needs --reason: Forebay did not see this training, so it is a person's word"
        raise typer.BadParameter(msg)
    place = find_place(project)
    owner = job or name or slug(folder.resolve().name)
    whole, passed = saves_in(folder)
    skipped = [{"folder": str(one.folder), "reason": one.reason} for one in passed]
    imported: list[dict[str, Any]] = []
    for save in whole:
        target, fresh = _copy(place, owner, save)
        traits = {"optimizer": save.optimizer, "scheduler": save.scheduler, "rng": save.rng}
        datasets = [one if one.startswith("dataset:") else f"dataset:{one}" for one in dataset or ()]
        args = {
            "job": job,
            "run": None if job else owner,
            "step": save.step,
            "uri": str(target),
            "source": str(save.folder.resolve()),
            "files": [file.model_dump(mode="json") for file in save.files],
            "compatibility": {**traits, "datasets": datasets, "code_revision": code},
            "use": use,
            "reason": reason,
        }
        imported.append(_import(place, args, fresh=fresh))
    if as_json:
        print_json({"project": place.project, "imported": imported, "skipped": skipped})
    else:
        _report(imported, skipped)
    if not imported:
        raise typer.Exit(_REFUSED)


def _report(imported: list[dict[str, Any]], skipped: list[dict[str, str]]) -> None:
    out = console()
    for one in imported:
        was = "is there already" if one["already"] else f"imported as {one['use']}"
        unknown = f"; unknown: {', '.join(one['unknown'])}" if one.get("unknown") else ""
        out.print(f"step {one['step']} of {escape(one['job'])} {was}: {escape(one['checkpoint'] + unknown)}")
    for skip in skipped:
        out.print(f"[yellow]skipped[/] {escape(skip['folder'])}: {escape(skip['reason'])}")
    if imported:
        out.print(f"use it with restart.start_from: {escape(imported[-1]['checkpoint'])}")


def _import(place: Place, args: dict[str, Any], *, fresh: bool) -> dict[str, Any]:
    """Tell the registry; a copy that it refuses is not left behind."""
    from forebay.runtime.errors import Refused  # noqa: PLC0415

    try:
        return command(place, "checkpoint-import", args)
    except Refused:
        if fresh:
            copied = Path(args["uri"])
            shutil.rmtree(copied.parent if copied.is_file() else copied, ignore_errors=True)
        raise


def _copy(place: Place, owner: str, save: Save) -> tuple[Path, bool]:
    """(a copy of our own, whether it is new): nobody overwrites it in place, and the registry may read it."""
    from forebay.sdk.errors import ForebayError  # noqa: PLC0415

    target = place.home / "imports" / place.project / owner / f"{save.step:06d}-{save.digest[:12]}"
    single = save.folder.is_file()
    uri = target / save.folder.name if single else target
    if target.is_dir():
        return uri, False
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        if single:
            part.mkdir(parents=True)
            shutil.copy2(save.folder, part)
        else:
            shutil.copytree(save.folder, part)
        part.rename(target)
    except OSError as error:
        msg = f"{save.folder} cannot be copied to {target}: {error.strerror or error}"
        raise ForebayError(msg, "make room, or choose another FOREBAY_HOME") from error
    return uri, True
