"""`forebay upload`: bring a LeRobot folder into a dataset."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from forebay.cli.output import AsJson, Project, coloured, console, errors, print_json, size
from forebay.cli.place import Place, find_place, run_async
from forebay.cli.time_limit import ends_within, in_daemon_thread

if TYPE_CHECKING:
    from forebay.runtime.client import Client
    from forebay.sdk.collector import Collector, Uploaded

_DELIVER_WITHIN_S = 20.0
_VERDICT_WITHIN_S = 600.0
_LOOK_EVERY_S = 0.4
_REQUEST_CHARACTERS = 16_384
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the person asks for beside the folder."""

    revision: str | None
    request: str | None
    """What was ordered, as JSON text."""
    replace: bool


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("upload", epilog="Example: forebay upload ./recordings --dataset pick-place --wait")(upload)


def upload(
    path: Annotated[Path, typer.Argument(help="Folder of a LeRobot dataset: v3.0, v2.1 or v2.0.")],
    *,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Its name; default: the folder's.")] = None,
    project: Project = None,
    revision: Annotated[str | None, typer.Option(help="Revision at the source, for lineage.")] = None,
    request: Annotated[Path | None, typer.Option(help="JSON file: what was ordered, to compare with.")] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make a version of exactly this folder, instead of adding to the last one."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the verdict on each episode.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, help="Seconds for everything; default: no limit for copying, 600 for the verdict."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Upload a folder: every file whole, with its digest. The same folder again is the same upload.

    A kill or an outage loses nothing: run the same command again.

    With --replace the next version holds exactly this folder, for example after
    lerobot-edit-dataset or a pull from the Hub. Episodes whose rows are in the dataset
    already keep their ids; versions from before stay as they are.
    """
    late = f"the upload was not complete within {timeout} s"
    with ends_within(timeout, late, "run the same command again: what was copied is not copied twice", as_json=as_json):
        place = find_place(project)
        result = run_async(
            _upload(
                place,
                path,
                dataset,
                _Wish(revision, _read_request(request), replace),
                wait_s=_VERDICT_WITHIN_S if wait else None,
            )
        )
    if as_json:
        print_json(result)
    else:
        _show(result)
    if wait and (result["verdict"] or {}).get("state") == "REFUSED":
        raise typer.Exit(1)


async def _upload(
    place: Place, path: Path, dataset: str | None, wish: _Wish, *, wait_s: float | None
) -> dict[str, Any]:
    from forebay.contracts.identifiers import check_name, slug  # noqa: PLC0415 help must not pay for it
    from forebay.sdk.collector import Collector  # noqa: PLC0415
    from forebay.sdk.link import BusLink  # noqa: PLC0415

    name = check_name(slug(dataset or path.resolve().name))
    collector = Collector(
        home=place.home,
        project=place.project,
        require_room=lambda needed: place.require_room("the upload", {"pool": needed}),
    )
    place.require_key(collector.source)
    await in_daemon_thread(place.require_pool)  # a pool that hangs must not keep Ctrl-C from its handler
    async with BusLink(place.nats_url, place.key(collector.source), collector.outbox) as link:
        delivery = asyncio.create_task(link.deliver_for_ever())
        try:
            done = await _copy(collector, path, name, wish)
        finally:
            while not delivery.done():  # asyncio.wait_for of Python 3.11 can lose a cancellation
                delivery.cancel()
                await asyncio.wait({delivery}, timeout=1)
            if not delivery.cancelled():
                delivery.result()
        if done.repeated and not await _known(place, done.upload):
            done = await in_daemon_thread(lambda: collector.upload(path, name, replaces=wish.replace, again=True))
        left = await link.drain(_DELIVER_WITHIN_S)
        if left:
            await _say_what_waits(link, left)
    await in_daemon_thread(lambda: collector.delivered(done.upload))
    verdict = await _verdict(place, done.upload, wait_s) if wait_s is not None else None
    return {
        "upload": done.upload,
        "dataset": done.dataset,
        "project": place.project,
        "episodes": done.episodes,
        "files": done.files,
        "bytes": done.bytes,
        "repeated": done.repeated,
        "left_out": [{"path": one.path, "why": one.why} for one in done.left_out],
        "verdict": verdict,
    }


async def _say_what_waits(link: Any, left: int) -> None:
    """Files are safe, events are not delivered: an error that says where they wait."""
    from forebay.runtime.errors import Unreachable  # noqa: PLC0415

    try:
        await link.client()
        why = "the bus does not take them"
    except Unreachable as error:
        why = error.message
    message = f"every file was copied, but {left} events wait in {link.outbox.folder}: {why}"
    raise Unreachable(message, "start it with `forebay up`, then run the same upload again; nothing is copied twice")


def _read_request(path: Path | None) -> str | None:
    """The collection request's text, looked at before anything is copied."""
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, ValueError) as error:
        msg = f"the collection request {path} cannot be read as JSON: {error}"
        raise typer.BadParameter(msg) from error
    if not isinstance(document, dict) or len(text) > _REQUEST_CHARACTERS:
        msg = f"the collection request {path} is no JSON object of at most {_REQUEST_CHARACTERS} characters"
        raise typer.BadParameter(msg)
    return text


async def _copy(collector: Collector, path: Path, name: str, wish: _Wish) -> Uploaded:
    """Run the collector in a thread with a progress bar."""
    columns = (TextColumn("{task.description:<8}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors(), transient=True) as bars:
        return await in_daemon_thread(
            lambda: collector.upload(
                path,
                name,
                source_revision=wish.revision,
                collection_request=wish.request,
                replaces=wish.replace,
                progress=_Bar(bars),
            )
        )


class _Bar:
    """The collector's progress as a bar."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def stage(self, name: str, total_bytes: int) -> None:
        self._task = self._bars.add_task(name, total=total_bytes)

    def advance(self, done_bytes: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, done_bytes)


async def _known(place: Place, upload_id: str) -> bool:
    """Whether ingest has heard of this upload."""
    from forebay.runtime.errors import Refused, Unreachable  # noqa: PLC0415

    try:
        async with place.client() as client:
            await client.ask("ingest", place.project, "upload", {"upload": upload_id})
    except (Refused, Unreachable):
        return False
    return True


async def _verdict(place: Place, upload_id: str, within_s: float) -> dict[str, Any]:
    """Wait until ingest has judged every episode; raises `Unreachable` when it takes too long."""
    from forebay.runtime.errors import Refused, Unreachable  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    async with place.client() as client:
        while loop.time() < end:
            try:
                answer = await client.ask("ingest", place.project, "upload", {"upload": upload_id})
            except Refused:
                answer = None
            if answer is not None and answer.result["state"] in _FINAL:
                return {**answer.result, "not_accepted": await _not_accepted(client, place.project, upload_id)}
            await asyncio.sleep(_LOOK_EVERY_S)
    msg = f"ingest gave no verdict on {upload_id} within {within_s:.0f} s"
    raise Unreachable(msg, "look with: forebay dataset show, or forebay status")


async def _not_accepted(client: Client, project: str, upload_id: str) -> list[dict[str, Any]]:
    """Every episode of the upload that may not enter a version, with the rule that says so."""
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = (
            await client.ask("ingest", project, "episodes", {"upload": upload_id, "after": after, "limit": 1000})
        ).result
        found += [one for one in page["episodes"] if one["state"] != "ACCEPTED"]
        after = page["next"]
    return sorted(found, key=lambda one: int(one["source_index"]))


_FINAL = frozenset({"COMMITTED", "REFUSED"})


def _show(result: dict[str, Any]) -> None:
    out = console()
    if result["repeated"]:
        out.print(f"[bold]{result['upload']}[/] is uploaded already: the same files, the same upload")
    else:
        out.print(
            f"uploaded [bold]{escape(result['dataset'])}[/]: {result['episodes']} episodes, {result['files']} files,"
            f" {size(result['bytes'])} as {result['upload']}"
        )
    for one in result["left_out"][:_SHOWN]:
        out.print(f"  left out: {escape(one['path'])}: {escape(one['why'])}")
    if len(result["left_out"]) > _SHOWN:
        out.print(f"  left out: {len(result['left_out']) - _SHOWN} more; --json prints all of them")
    verdict = result["verdict"]
    if verdict is None:
        return
    made = f" → version v{verdict['version']}" if verdict.get("version") else ""
    out.print(f"ingest: {verdict['accepted']} accepted, {verdict['held']} held, {verdict['rejected']} rejected{made}")
    if verdict.get("withheld"):
        name = escape(result["dataset"])
        out.print(f"  [yellow]not train-ready[/]: {escape(verdict['withheld'])}")
        out.print(
            f"  to use it all the same: forebay dataset tag {name} train-ready v{verdict['version']} --force --reason …"
        )
    for one in verdict["not_accepted"]:
        rules = ", ".join(one["rules"])
        out.print(
            f"  episode {one['source_index']} ({escape(one['episode'])}) {coloured(one['state'])} by {rules}:"
            f" {escape(one['message'] or '')}"
        )
