"""`forebay convert`: a LeRobot folder becomes a verified version root, offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from forebay.runtime.escaping import shell_word
from forebay.runtime.terminal import Terminal, console, print_json, print_line

if TYPE_CHECKING:
    from forebay.ingest.offline_conversion import Converted

_STAGES = {
    "rows": "rows",
    "frames": "decoding video",
    "hashed": "hashing video",
    "videos": "writing video",
    "compared": "reading back",
}
_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command to the CLI."""
    app.command("convert", epilog="Example: forebay convert ./recordings/pick-place ./pick-place-lance")(convert)


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Folder of a LeRobot dataset (v3.0, v2.1, v2.0).")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to make; it must not exist.")],
    *,
    partial: Annotated[
        bool, typer.Option("--partial", help="Take the accepted episodes over when others are not accepted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Convert a dataset into the Lance layout of LeRobot, and read it back bit by bit before it gets its name.

    Needs no server, and changes nothing in SRC. Exit 0: converted and verified; 1: not every
    episode is accepted, or what was read back differs; 2: a wrong path; 3: the disk did not do its part.
    """
    if not source.is_dir():
        _give_up({"outcome": "refused", "message": _not_a_folder(source)}, 2, as_json=as_json)
    try:
        found = _convert(source, target, partial=partial)
    except _Stopped as stopped:
        _give_up(stopped.answer, stopped.code, as_json=as_json)
    if as_json:
        print_json(found.to_json())
        return
    _show(found, console(wrap=True))


def _not_a_folder(source: Path) -> str:
    from forebay.ingest.adapters.other_kinds import describe_other  # noqa: PLC0415 most calls do without

    try:
        other = describe_other(source)
    except OSError as error:
        return f"{source} cannot be opened: {error.strerror}"
    what, advice = other or ("not a folder", "Give the folder that contains meta/info.json.")
    return f"{source} is {what}. {advice}"


class _Stopped(Exception):  # noqa: N818 it carries an answer, and is no error of the program
    def __init__(self, code: int, **answer: Any) -> None:
        self.code, self.answer = code, answer
        super().__init__(answer["message"])


def _give_up(answer: dict[str, Any], code: int, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    print_line(str(answer["message"]), stderr=True)
    raise typer.Exit(code)


def _convert(source: Path, target: Path, *, partial: bool) -> Converted:
    from forebay.ingest.adapters import decoders  # noqa: PLC0415 other commands do without

    decoders.warm_up()
    from forebay.ingest import offline_conversion as offline  # noqa: PLC0415 Lance would slow every command's start
    from forebay.ingest.errors import IngestError, StorageUnavailableError  # noqa: PLC0415

    bars: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(_STAGES.get(stage, stage))
            progress.update(bars[stage], completed=done, total=max(total, done))

        try:
            return offline.convert_folder(source, target, advance, partial=partial)
        except offline.TargetTakenError as error:
            raise _Stopped(2, outcome="refused", message=str(error)) from error
        except offline.NotAcceptedError as error:
            raise _not_accepted(error, source) from error
        except (StorageUnavailableError, OSError) as error:
            text = f"{target} was not made: {error}; make room or mend the disk, then run it again"
            raise _Stopped(3, outcome="failed", message=text) from error
        except IngestError as error:
            raise _Stopped(1, outcome="failed", message=f"{target} was not made: {error}") from error


def _not_accepted(error: Any, source: Path) -> _Stopped:
    from forebay.ingest.offline_conversion import skipped_episodes  # noqa: PLC0415 it is loaded already

    report = error.report
    skipped = skipped_episodes(report)
    good = len(report.episodes) - len(skipped)
    first = ", ".join(f"{line['id']} ({', '.join(line['rules'][:3]) or line['outcome']})" for line in skipped[:_SHOWN])
    more = f" and {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
    reasons = list(dict.fromkeys(b.rule.id for b in report.breaches if b.severity in {"error", "hold"}))
    worst = next((b for b in report.breaches if b.severity in {"error", "hold"}), None)
    if skipped:
        what = f"episodes {first}{more} are not accepted"
    else:
        why = f": {worst.message}. {worst.what_to_do}" if worst is not None else ""
        what = f"the dataset is not accepted ({', '.join(reasons)}){why}"
    take = f"; --partial takes the other {good} over" if good else ""
    return _Stopped(
        1,
        outcome="refused",
        message=(
            f"{source}: {what.rstrip('.')}. Nothing was written. See why with:"
            f" forebay validate {shell_word(str(source))}{take}"
        ),
        validation=report.outcome,
        rules=reasons,
        source_episodes=len(report.episodes),
        source_frames=sum(episode.frames for episode in report.episodes),
        episodes=0,
        frames=0,
        skipped=skipped,
    )


def _show(found: Converted, out: Terminal) -> None:
    answer = found.to_json()
    out.print(
        f"[green]{answer['outcome']}[/]  {answer['episodes']} episodes, {answer['frames']:,} frames, "
        f"{answer['videos']} videos, {answer['bytes']:,} bytes -> {escape(answer['root'])}"
    )
    for line in answer["skipped"][:_SHOWN]:
        out.print(f"  left out: episode {line['id']}, {line['outcome']} by {', '.join(line['rules'])}")
    if len(answer["skipped"]) > _SHOWN:
        out.print(f"  … and {len(answer['skipped']) - _SHOWN} more; --json lists all of them")
    for name in answer["carried"][:_SHOWN]:
        out.print(f"  carried along: {escape(name)}")
    if len(answer["carried"]) > _SHOWN:
        out.print(f"  … and {len(answer['carried']) - _SHOWN} more files; --json lists all of them")
    for note in answer["notes"]:
        out.print(f"  note: {escape(note)}")
    out.print(f"read back bit by bit; manifest {answer['manifest_sha256'][:12]}")
