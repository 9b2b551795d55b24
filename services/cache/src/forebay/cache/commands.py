"""`forebay plan`: which bytes a job would read. Offline for folders; asks ingest where a named version lies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from forebay.cache.domain.plan import DEFAULT_BLOCK_BYTES, PlannedFile, ReadPlan
from forebay.cache.domain.wording import show_bytes, show_share

if TYPE_CHECKING:
    from forebay.cache.settings import AskSettings

_SHOWN_FILES = 40


def register(app: typer.Typer) -> None:
    """Add the command to the CLI."""
    app.command("plan")(plan)


def plan(  # noqa: PLR0917 typer passes arguments by name
    name: Annotated[str | None, typer.Argument(help="NAME@TAG or NAME@v17 of a dataset.")] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of a dataset version, or of a model.")] = None,
    lance: Annotated[Path | None, typer.Option(help="One Lance table.")] = None,
    version: Annotated[int | None, typer.Option(help="Version of the Lance table; the latest one otherwise.")] = None,
    columns: Annotated[str, typer.Option(help="Columns and cameras, separated by commas; empty: everything.")] = "",
    episodes: Annotated[str | None, typer.Option(help="FIRST:LAST, the last one excluded.")] = None,
    project: Annotated[str | None, typer.Option(help="Project of the dataset.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    juicefs: Annotated[bool, typer.Option("--juicefs", help="Print lines for 'juicefs warmup -f'.")] = False,
) -> None:
    """Work out which bytes reading some columns of a version takes."""
    given = [one for one in (name, root, lance) if one is not None]
    if len(given) != 1:
        _stop(2, "give exactly one of NAME@TAG, --root DIR and --lance DIR")
    if version is not None and lance is None:
        _stop(2, "--version belongs to --lance; a dataset's version is written NAME@v17")
    window = _window(episodes)
    source = ""
    if name is not None:
        folder, source = _ask(name, project)
    else:
        folder = given[0] if isinstance(given[0], Path) else Path()
    wanted = tuple(one.strip() for one in columns.split(",") if one.strip())
    found = _plan(folder, wanted, window, source, version)
    if as_json:
        typer.echo(json.dumps(found.to_json(), separators=(",", ":")))
    elif juicefs:
        for file in found.files:
            typer.echo(warmup_line(Path(found.root), file))
    else:
        _show(found, Console())


def warmup_line(root: Path, file: PlannedFile) -> str:
    """`path` or `path [start-end;start-end]`, the end excluded."""
    path = root / file.path
    if file.ranges is None:
        return str(path)
    return f"{path} [{';'.join(f'{start}-{end}' for start, end in file.ranges)}]"


def _window(episodes: str | None) -> tuple[int, int] | None:
    if episodes is None:
        return None
    first, colon, last = episodes.partition(":")
    if not colon or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        _stop(2, f"--episodes {episodes!r}: write FIRST:LAST with FIRST below LAST, for example 0:10")
    return int(first), int(last)


def _plan(
    folder: Path, columns: tuple[str, ...], episodes: tuple[int, int] | None, source: str, version: int | None
) -> ReadPlan:
    from forebay.cache.adapters.version_root import plan_folder  # noqa: PLC0415 Lance would slow every command's start
    from forebay.cache.errors import PlanError  # noqa: PLC0415

    try:
        return plan_folder(folder, columns=columns, episodes=episodes, source=source, version=version)
    except PlanError as error:
        _stop(1, f"{error.reason.value}: {error}")


def _ask(name: str, project: str | None) -> tuple[Path, str]:
    """Folder and manifest digest of a named version, from ingest."""
    from forebay.cache.adapters.locations import local_folder  # noqa: PLC0415
    from forebay.cache.settings import load_ask  # noqa: PLC0415
    from forebay.contracts.errors import InvalidNameError  # noqa: PLC0415
    from forebay.runtime.errors import Refused, SettingsError, Unreachable  # noqa: PLC0415

    try:
        found = asyncio.run(_version(name, project, load_ask()))
    except (InvalidNameError, SettingsError) as error:
        _stop(2, str(error))
    except Refused as error:
        _stop(1, " ".join(part for part in (error.message, error.next_action) if part))
    except Unreachable as error:
        _stop(3, " ".join(part for part in (error.message, error.next_action) if part))
    return local_folder(str(found["root"])), str(found.get("manifest_sha256", ""))


async def _version(name: str, project: str | None, settings: AskSettings) -> dict[str, Any]:
    from forebay.contracts.identifiers import parse_logical_name  # noqa: PLC0415
    from forebay.contracts.parts import Part, Source  # noqa: PLC0415
    from forebay.runtime.client import Client  # noqa: PLC0415 only a name needs the bus
    from forebay.runtime.errors import Refused  # noqa: PLC0415

    logical = parse_logical_name(name)
    described = settings.home / "local.json"
    local: dict[str, Any] = json.loads(described.read_bytes()) if described.exists() else {}
    url = settings.nats_url or str(local.get("nats_url", "nats://127.0.0.1:4222"))
    key = settings.nkey_file or settings.home / "keys" / f"{Part.OPERATOR}.nk"
    chosen = project or settings.project or next(iter(local.get("projects", [])), "default")
    async with Client.connect(url, key if key.exists() else None, Source(Part.OPERATOR)) as client:
        answer = await client.ask("ingest", str(chosen), "dataset", {"dataset": logical.name})
    tags: dict[str, int] = answer.result["tags"]
    number = logical.version if logical.version is not None else tags.get(logical.selector)
    for version in answer.result["versions"]:
        if version["number"] == number:
            return dict(version)
    known = ", ".join(sorted(tags)) or "none"
    raise Refused(
        "version-unknown",
        f"dataset {logical.name} has no {logical.selector!r} in project {chosen} (tags: {known});",
        f"see: forebay dataset show {logical.name}",
    )


def _show(found: ReadPlan, console: Console) -> None:
    table = Table(title=f"{found.root}", title_justify="left")
    for heading, justify in (
        ("file", "left"),
        ("planned", "right"),
        ("of", "right"),
        ("share", "right"),
        ("ranges", "right"),
    ):
        table.add_column(heading, justify="right" if justify == "right" else "left", overflow="fold")
    largest = sorted(found.files, key=lambda file: -file.planned_bytes)
    for file in largest[:_SHOWN_FILES]:
        ranges = "whole" if file.ranges is None else str(len(file.ranges))
        share = show_share(file.planned_bytes, file.size)
        table.add_row(file.path, show_bytes(file.planned_bytes), show_bytes(file.size), share, ranges)
    if len(largest) > _SHOWN_FILES:
        rest = largest[_SHOWN_FILES:]
        planned = sum(file.planned_bytes for file in rest)
        table.add_row(f"… and {len(rest)} more files", show_bytes(planned), "", "", "")
    console.print(table)
    aligned = found.aligned_bytes(DEFAULT_BLOCK_BYTES)
    console.print(
        f"{show_bytes(found.total_bytes)} of {show_bytes(found.whole_bytes)} "
        f"({show_share(found.total_bytes, found.whole_bytes)}); a cache of {show_bytes(DEFAULT_BLOCK_BYTES)} blocks "
        f"fetches {show_bytes(aligned)}. Plan {found.id}",
        highlight=False,
    )


def _stop(code: int, message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)
