"""`forebay dataset derive|compact|check|cleanup`: versions made of versions, looked at, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, coloured, console, plain_table, print_json, size
from forebay.cli.place import Place, find_place, person, run_async
from forebay.contracts.v1.datasets import MANIFEST_FILE

if TYPE_CHECKING:
    from forebay.runtime.client import Client

_LOOK_EVERY_S = 0.3
_FINAL = frozenset({"COMMITTED", "FAILED"})
DERIVE_EXAMPLE = "Example: forebay dataset derive reach@v3 --exclude-episodes 4,17 --reason 'gripper camera blocked'"
COMPACT_EXAMPLE = "Example: forebay dataset compact reach --dry-run"
CHECK_EXAMPLE = "Example: forebay dataset check reach@v3"
CLEANUP_EXAMPLE = "Example: forebay dataset cleanup reach --below 8 --dry-run"

Dataset = Annotated[str, typer.Argument(help="The dataset, or one version of it: reach, reach@v3, reach@train-ready.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for the result; 0: do not wait.")]


def derive(
    dataset: Dataset,
    *,
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude-episodes", help="Numbers (3,5-9), names (reach@v3/17) or ids (ep-…) to leave out."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Keep only episodes that meet this: length >= 60 AND task LIKE '%cup%'.")
    ] = None,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Encode videos anew, so that pixels of what is left out are gone.")
    ] = False,
    crf: Annotated[int | None, typer.Option(help="Quality with --rewrite: 0 best to 51; default 18.")] = None,
    dry_run: DryRun = False,
    timeout: Timeout = 600.0,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Make a new version with fewer episodes. The version it starts from stays as it is.

    Rows are numbered anew, stable ids stay. Videos are shared with the old version,
    so they still hold the pixels of what is left out, unless --rewrite. The new
    version gets no tag: look at it, then tag it. Exit 1: it could not be made.
    """
    place = find_place(project)
    args = {
        "dataset": dataset,
        "exclude": _episodes(exclude or []),
        "where": where,
        "rewrite": rewrite,
        "crf": crf,
        "reason": reason,
        "dry_run": dry_run,
    }
    result = run_async(_derive(place, "derive", args, timeout))
    if as_json:
        print_json(result)
    else:
        _show_derived(result)
    if result.get("state") == "FAILED":
        raise typer.Exit(1)


def _episodes(texts: list[str]) -> list[str]:
    """`3,5-7` -> 3, 5, 6, 7; stable ids stay as they are."""
    found: list[str] = []
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        first, dash, last = text.partition("-")
        if dash and first.isdigit() and last.isdigit() and int(first) <= int(last) < 10_000_000:
            found += [str(number) for number in range(int(first), int(last) + 1)]
        elif text:
            found.append(text)
    return found


def compact(
    dataset: Dataset,
    *,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    dry_run: DryRun = False,
    timeout: Timeout = 600.0,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Make a version with the same episodes whose rows lie in one file. Every upload adds a file; many slow readers down.

    No version is changed: tags and leases keep theirs, and the old rows are freed when
    `cleanup` removes the versions that nobody uses any more.
    """
    place = find_place(project)
    result = run_async(_derive(place, "compact", {"dataset": dataset, "reason": reason, "dry_run": dry_run}, timeout))
    rows = [path for path in (Path(result["root"]) / "frames.lance" / "data").glob("*.lance") if path.is_file()]
    result |= {"row_files": len(rows), "row_bytes": sum(path.stat().st_size for path in rows)}
    if as_json:
        print_json(result)
    else:
        _show_derived(result)
        verb = "would be" if dry_run else "were"
        console().print(
            f"  {result['row_files']} row files with {size(result['row_bytes'])} {verb} written as one; this frees nothing"
            " by itself: forebay dataset cleanup"
        )
    if result.get("state") == "FAILED":
        raise typer.Exit(1)


async def _derive(place: Place, command: str, args: dict[str, Any], within_s: float) -> dict[str, Any]:
    async with place.client() as client:
        asked = dict((await client.ask("ingest", place.project, command, args, by=person())).result)
        if "derivation" not in asked:
            return {**asked, "dry_run": True}
        question = {"derivation": asked["derivation"]}
        return {**asked, **await _wait(client, place.project, question, within_s)}


async def _wait(client: Client, project: str, question: dict[str, Any], within_s: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while True:
        found = dict((await client.ask("ingest", project, "derivation", question)).result)
        if found["state"] in _FINAL or loop.time() >= end:
            return found
        await asyncio.sleep(_LOOK_EVERY_S)


def _show_derived(result: dict[str, Any]) -> None:
    out = console()
    name = escape(result["dataset"])
    counts = f"{result['kept']} episodes kept, {result['left_out']} left out, {result['frames']:,} frames"
    if result.get("dry_run"):
        out.print(f"{name}@v{result['base']}: {counts}; nothing was made")
    elif result["state"] == "COMMITTED":
        made = f"{name}@v{result['version']}"
        out.print(f"made [bold]{made}[/] of v{result['base']}: {counts}")
        out.print(
            f"  to use it: forebay dataset tag {name} train-ready v{result['version']} --expect v{result['base']}"
        )
    elif result["state"] == "FAILED":
        out.print(f"not made: {escape(result['message'] or '')}")
    else:
        out.print(f"{escape(result['derivation'])} is {coloured(result['state'])}; see: forebay dataset show {name}")


def check(dataset: Dataset, *, timeout: Timeout = 60.0, project: Project = None, as_json: AsJson = False) -> None:
    """Compare a version's files with what was committed: there, same sizes, every table opens. Exit 1: not whole."""
    place = find_place(project)
    found = run_async(checked(place, dataset, timeout))
    if as_json:
        print_json(found)
    elif found["whole"] is None:
        console().print(f"{escape(found['dataset'])}@v{found['number']}: no answer yet; ask again")
    else:
        text = "[green]whole[/]" if found["whole"] else f"[red]not whole[/]: {escape(found['message'])}"
        console().print(f"{escape(found['dataset'])}@v{found['number']} is {text}")
    if not found["whole"]:
        raise typer.Exit(1)


async def checked(place: Place, dataset: str, within_s: float) -> dict[str, Any]:
    """Ask for a check and wait for its answer; `whole` is None when none came in time."""
    async with place.client() as client:
        asked = (await client.ask("ingest", place.project, "check", {"dataset": dataset}, by=person())).result
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while True:
            found = (await client.ask("ingest", place.project, "checked", {"check": asked["check"]})).result
            if found["whole"] is not None or loop.time() >= end:
                return {**asked, **found}
            await asyncio.sleep(_LOOK_EVERY_S)


def cleanup(
    dataset: Annotated[str, typer.Argument(help="The dataset's name.")],
    *,
    below: Annotated[int | None, typer.Option(help="Only versions below this number.")] = None,
    lineage: Annotated[bool, typer.Option("--even-lineage", help="Also versions that models were trained on.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    dry_run: DryRun = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Remove versions that nobody uses: no tag, no job, no model, not the newest. Says what each frees, and who keeps the rest."""
    place = find_place(project)
    args = {"dataset": dataset, "below": below, "lineage": lineage, "reason": reason}
    plan = place.ask("ingest", "cleanup", {**args, "dry_run": True})
    freed = freed_bytes([Path(one["root"]) for one in plan["removed"]])
    unnamed = [*_unnamed(place, str(plan["dataset"]))]  # before anything is deleted, which happens in the background
    result = plan if dry_run else place.ask("ingest", "cleanup", {**args, "dry_run": False})
    result = {**result, "frees_bytes": freed, "unnamed": unnamed}
    if as_json:
        print_json(result)
        return
    table = plain_table("version", "", "because")
    for one in result["removed"]:
        table.add_row(f"v{one['number']}", "[red]removed[/]" if not dry_run else "[red]to remove[/]", "nobody uses it")
    for one in result["kept"]:
        table.add_row(f"v{one['number']}", "kept", escape("; ".join(one["because"])))
    out = console()
    out.print(table)
    count = len(result["removed"])
    word = "would be removed" if dry_run else "removed"
    frees = f"this {'would free' if dry_run else 'frees'} {size(freed)}; files shared with others stay"
    out.print(f"{count} version{'' if count == 1 else 's'} {word}; {frees}")
    for one in result["unnamed"]:
        out.print(f"in no version: {escape(one['path'])} ({size(one['bytes'])}); it may be a version being written")


def freed_bytes(roots: list[Path]) -> int:
    """Bytes of the files whose every name lies in `roots`: a file that another version shares is not freed."""
    names: Counter[tuple[int, int]] = Counter()
    stats: dict[tuple[int, int], os.stat_result] = {}
    for root in roots:
        for _, status in _files(root):
            names[(status.st_dev, status.st_ino)] += 1
            stats[(status.st_dev, status.st_ino)] = status
    return sum(stats[key].st_size for key, count in names.items() if count >= stats[key].st_nlink)


def _files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every regular file below a folder, or the file itself; what somebody deletes meanwhile is passed over."""
    paths = [root] if root.is_file() else []
    paths += [Path(folder) / name for folder, _, files in os.walk(root) for name in files]
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield path, status


def _unnamed(place: Place, dataset: str) -> list[dict[str, Any]]:
    """What lies in the dataset's folder and is in no version: left by somebody else, or being written right now."""
    folder = place.home / "pool" / "datasets" / place.project / dataset
    shown = place.ask("ingest", "dataset", {"dataset": dataset})
    roots = [Path(one["root"]) for one in shown["versions"] if not one["removed"]]
    found = [path for path in sorted(folder.iterdir()) if path not in roots] if folder.is_dir() else []
    found += [path for root in roots if root.is_relative_to(folder) for path in orphans(root)]
    return [{"path": str(path), "bytes": freed_bytes([path])} for path in found if not _is_being_removed(path)]


def _is_being_removed(path: Path) -> bool:
    """What ingest renames a removed version to while it deletes it."""
    return path.name.startswith(".v") and path.name.endswith(".removed")


def orphans(root: Path) -> list[Path]:
    """Files in a version's folder that its list of files does not name. Tags of leases come and go, and are none."""
    try:
        entries = json.loads((root / MANIFEST_FILE).read_bytes())["files"]
        named = {str(entry["path"]) for entry in entries} | {MANIFEST_FILE}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    files = {path.relative_to(root).as_posix(): path for path, _ in sorted(_files(root))}
    return [path for name, path in files.items() if name not in named and "/_refs/" not in f"/{name}"]
