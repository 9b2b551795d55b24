"""`forebay plan`: which bytes a job would read. Offline for folders; asks ingest where a named version lies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from forebay.cache.domain.plan import ReadPlan, plan_from_json
from forebay.cache.domain.plan_difference import Difference, difference
from forebay.cache.domain.warm_list import read_list
from forebay.cache.plan_output import plan_as_json, show_plan, warm_lines
from forebay.runtime.escaping import visible
from forebay.runtime.terminal import console, print_json, print_line

if TYPE_CHECKING:
    from forebay.cache.adapters.origin import Origin
    from forebay.cache.settings import AskSettings

_EXAMPLES = """
Examples:

  forebay plan pick-place@train-ready --columns observation.state,action

  forebay plan --lance frames.lance --version 7 --columns action --episodes 0:10

  forebay plan --lerobot DIR --columns action,observation.images.front --episodes 0:10 --json

  forebay plan --lance frames.lance --columns action --since 6 --juicefs > new.list
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is planned: one of the four ways to say it."""

    folder: str
    kind: Literal["any", "lance", "lerobot"] = "any"
    source: str = ""


def register(app: typer.Typer) -> None:
    """Add the command to the CLI."""
    app.command("plan", epilog=_EXAMPLES)(plan)


def plan(  # noqa: PLR0917 typer passes arguments by name
    name: Annotated[str | None, typer.Argument(help="NAME@TAG or NAME@v17 of a dataset.")] = None,
    root: Annotated[str | None, typer.Option(help="Folder of a dataset version, or of a model.")] = None,
    lance: Annotated[str | None, typer.Option(help="One Lance table.")] = None,
    lerobot: Annotated[str | None, typer.Option(help="A folder of LeRobot's own files (v3.0, v2.1, v2.0).")] = None,
    version: Annotated[str | None, typer.Option(help="Version or tag of the Lance table; else the latest.")] = None,
    columns: Annotated[str, typer.Option(help="Columns and cameras, separated by commas; empty: everything.")] = "",
    episodes: Annotated[str | None, typer.Option(help="FIRST:LAST, the last one excluded.")] = None,
    rows: Annotated[str | None, typer.Option("--filter", help="SQL condition on rows of a Lance table.")] = None,
    since: Annotated[
        str | None, typer.Option(help="What is new against this: a plan kept from --json, or a --version of the table.")
    ] = None,
    check_list: Annotated[
        Path | None, typer.Option("--check-list", help="Check a list for 'juicefs warmup -f' instead, line by line.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Project of the dataset.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    juicefs: Annotated[bool, typer.Option("--juicefs", help="Print lines for 'juicefs warmup -f'.")] = False,
) -> None:
    """Work out which bytes reading some columns of a version takes, without reading more than its metadata."""
    if check_list is not None:
        _check_list(check_list, as_json=as_json)
        return
    given = [one for one in (name, root, lance, lerobot) if one is not None]
    if len(given) != 1:
        _stop(2, "give exactly one of NAME@TAG, --root DIR, --lance DIR and --lerobot DIR")
    if version is not None and lance is None:
        _stop(2, "--version belongs to --lance; a dataset's version is written NAME@v17")
    request: dict[str, Any] = {
        "columns": tuple(one.strip() for one in columns.split(",") if one.strip()),
        "episodes": _window(episodes),
        "rows": rows,
        "version": version,
    }
    place = _place(name, root, lance, lerobot, project)
    found = _plan(place, request)
    compared = None if since is None else difference(found, _older(since, place, request))
    _print(found, compared, as_json=as_json, juicefs=juicefs)


def _place(name: str | None, root: str | None, lance: str | None, lerobot: str | None, project: str | None) -> Place:
    if name is not None:
        folder, source = _ask(name, project)
        return Place(folder=folder, source=source)
    if lance is not None:
        return Place(folder=_absolute(lance), kind="lance")
    if lerobot is not None:
        return Place(folder=_absolute(lerobot), kind="lerobot")
    return Place(folder=_absolute(str(root)))


def _absolute(folder: str) -> str:
    return folder if "://" in folder else str(Path(folder).absolute())


def _print(found: ReadPlan, compared: Difference | None, *, as_json: bool, juicefs: bool) -> None:
    if as_json:
        print_json(plan_as_json(found, compared))
    elif juicefs:
        try:
            lines = warm_lines(found.root, found.files if compared is None else compared.new_files)
        except ValueError as error:
            _stop(1, str(error))
        if odd := [line for line in lines if visible(line) != line]:
            _stop(1, f"{odd[0]!r} cannot be printed as it is; rename the file")
        for line in lines:
            print_line(line)
    else:
        show_plan(found, compared, console(wrap=True))


def _older(since: str, place: Place, request: dict[str, Any]) -> ReadPlan:
    """The plan to compare with: kept in a file, or made now of another version of the table."""
    if Path(since).is_file():
        try:
            return plan_from_json(json.loads(Path(since).read_bytes()))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            _stop(2, f"--since {since}: no plan as 'forebay plan --json' prints it ({error})")
    if place.kind != "lance":
        _stop(2, f"--since {since!r}: there is no such file; keep a plan with --json, or use --lance with a version")
    return _plan(place, request | {"version": since})


def _check_list(path: Path, *, as_json: bool) -> None:
    """Exit code 1 when a line of the list would be skipped by JuiceFS."""
    try:
        good, bad = read_list(path.read_text("utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        _stop(2, f"{path} cannot be read: {error}")
    if as_json:
        lines = [{"path": line.path, "bytes": line.bytes, "ranges": line.ranges} for line in good]
        told = {"lines": lines, "bad_lines": [{"line": one.number, "reason": one.reason} for one in bad]}
        print_json(told)
    else:
        for line in good:
            print_line(f"{line.path}: {'whole' if line.bytes is None else f'{line.bytes:,} bytes'}")
    for one in bad:
        print_line(f"{path}, line {one.number}: {one.reason}", stderr=True)
    if bad:
        _stop(
            1,
            f"{len(bad)} of {len(good) + len(bad)} lines would be skipped, so a part would stay cold: nothing started",
        )


def _window(episodes: str | None) -> tuple[int, int] | None:
    if episodes is None:
        return None
    first, colon, last = episodes.partition(":")
    if not colon or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        _stop(2, f"--episodes {episodes!r}: write FIRST:LAST with FIRST below LAST, for example 0:10")
    return int(first), int(last)


def _plan(place: Place, request: dict[str, Any]) -> ReadPlan:
    from forebay.cache.adapters.version_root import plan_folder  # noqa: PLC0415 would slow every command's start
    from forebay.cache.errors import CacheError  # noqa: PLC0415

    try:
        origin = _origin(place.folder)
        return plan_folder(place.folder, source=place.source, kind=place.kind, origin=origin, **request)
    except CacheError as error:
        _stop(1, f"{error.reason.value}: {error}")


def _origin(folder: str) -> Origin | None:
    """What the folder is read from; None: the disk."""
    if "://" not in folder:
        return None
    from forebay.cache.adapters.object_store import ObjectOrigin, ObjectStores  # noqa: PLC0415 rarely needed
    from forebay.cache.settings import load_ask  # noqa: PLC0415

    return ObjectOrigin(ObjectStores(load_ask().home))


def _ask(name: str, project: str | None) -> tuple[str, str]:
    """Folder and manifest digest of a named version, from ingest."""
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
    return _local(str(found["root"])), str(found.get("manifest_sha256", ""))


def _local(root: str) -> str:
    from forebay.cache.adapters.locations import local_folder  # noqa: PLC0415

    return root if root.startswith("s3://") else str(local_folder(root))


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


def _stop(code: int, message: str) -> NoReturn:
    print_line(message, stderr=True)
    raise typer.Exit(code)
