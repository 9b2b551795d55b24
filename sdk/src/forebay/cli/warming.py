"""`forebay warm`: have the bytes of a version in the cache before a job needs them."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from forebay.cli.output import AsJson, Project, console, errors, print_json, seconds, size
from forebay.cli.place import Place, find_place, person, run_async

if TYPE_CHECKING:
    from forebay.runtime.client import Client

CACHE = "cache"
WARM_EXAMPLE = "Example: forebay warm pick-place@train-ready --columns action,observation.state --wait"
_LOOK_EVERY_S = 0.4
_UNREACHABLE_FOR_S = 60.0
_ENDED = frozenset({"warm", "failed", "cancelled"})


def warm(
    name: Annotated[str | None, typer.Argument(help="NAME@TAG or NAME@v17 of a dataset.")] = None,
    *,
    columns: Annotated[str, typer.Option(help="Columns and cameras, separated by commas; empty: everything.")] = "",
    episodes: Annotated[str | None, typer.Option(help="FIRST:LAST, the last one excluded.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is warm; exit 1 when that fails.")] = False,
    cancel_on_interrupt: Annotated[
        bool, typer.Option("--cancel-on-interrupt", help="Ctrl-C stops the warm-up, not only the waiting.")
    ] = False,
    cancel: Annotated[str | None, typer.Option(help="Take a request back instead.", metavar="REQUEST")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Warm a dataset version. Equal requests, and jobs that read the same bytes, share one warm-up.

    With --wait, Ctrl-C ends the waiting and leaves the warm-up going.
    """
    if (name is None) == (cancel is None):
        msg = "name a version to warm, or a request with --cancel"
        raise typer.BadParameter(msg)
    place = find_place(project)
    if cancel is not None:
        _cancel(place, cancel, reason, as_json=as_json)
        return
    wanted = [one.strip() for one in columns.split(",") if one.strip()]
    args = {"name": name, "columns": wanted, "episodes": _span(episodes), "reason": reason}
    asked = place.ask(CACHE, "warm", args, request_id=uuid.uuid4().hex)
    if not as_json:
        how = "is asked for already" if asked["joined"] else "is being warmed"
        console().print(
            f"{escape(asked['name'])}@v{asked['number']} {how}; request [bold]{escape(asked['request'])}[/]"
        )
    if not wait:
        if as_json:
            print_json(asked)
        return
    try:
        end = run_async(_follow(place, str(asked["request"]), quiet=as_json))
    except KeyboardInterrupt:
        _interrupted(place, str(asked["request"]), cancel=cancel_on_interrupt)
        raise typer.Exit(130) from None
    if as_json:
        print_json(asked | end)
    elif end["state"] == "warm":
        console().print(_sentence(end["plan"]))
    else:
        errors().print(f"[bold red]✗[/] {escape(str(end['message'] or 'the request was taken back'))}")
    if end["state"] != "warm":
        raise typer.Exit(1)


def _span(episodes: str | None) -> list[int] | None:
    if episodes is None:
        return None
    first, colon, last = episodes.partition(":")
    if not colon or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        msg = f"--episodes {episodes!r}: write FIRST:LAST with FIRST below LAST, for example 0:10"
        raise typer.BadParameter(msg)
    return [int(first), int(last)]


def _cancel(place: Place, request: str, reason: str | None, *, as_json: bool) -> None:
    args = {"request": request, "reason": reason}
    result = place.ask(CACHE, "warm-cancel", args, request_id=uuid.uuid4().hex)
    if as_json:
        print_json(result)
    elif result["already"]:
        console().print(f"{escape(request)} has ended before: {escape(result['state'])}")
    else:
        console().print(f"{escape(request)} is taken back; warming stops unless a job needs it")


def _interrupted(place: Place, request: str, *, cancel: bool) -> None:
    """Say what becomes of the warm-up."""
    if cancel:
        place.ask(CACHE, "warm-cancel", {"request": request, "reason": "interrupted"}, request_id=uuid.uuid4().hex)
        errors().print(f"{escape(request)} is taken back; warming stops unless a job needs it")
    else:
        errors().print(f"the warm-up goes on without you; stop it with: forebay warm --cancel {escape(request)}")


def _sentence(plan: Mapping[str, Any]) -> str:
    """What was done, in bytes."""
    text = (
        f"[green]ready[/]: {size(plan['verified_bytes'])} verified, {size(plan['origin_bytes'])} read from the origin"
    )
    if plan["reused_bytes"]:
        text += f", {size(plan['reused_bytes'])} were there already"
    if plan["shared_bytes"]:
        text += f"; {size(plan['shared_bytes'])} are shared with a plan made earlier"
    return text + (f" ({escape(plan['cannot_prove'])})" if plan["cannot_prove"] else "")


async def _follow(place: Place, request: str, *, quiet: bool) -> dict[str, Any]:
    """Show progress until the request has ended. A short outage of the bus is waited out."""
    from forebay.runtime.errors import Unreachable  # noqa: PLC0415 help must not pay for it

    loop = asyncio.get_running_loop()
    heard = loop.time()
    with _Bar(quiet=quiet) as bar:
        async with place.client() as client:
            await client.on_progress(bar.progress, service=CACHE)
            while True:
                try:
                    answer = await _ask(client, place, request)
                    heard = loop.time()
                    bar.state(answer)
                    if answer["state"] in _ENDED:
                        return answer
                except Unreachable:
                    if loop.time() - heard > _UNREACHABLE_FOR_S:
                        raise
                await asyncio.sleep(_LOOK_EVERY_S)


async def _ask(client: Client, place: Place, request: str) -> dict[str, Any]:
    return dict((await client.ask(CACHE, place.project, "wish", {"request": request}, by=person())).result)


class _Bar:
    """Verified bytes of one plan; they never go back."""

    def __init__(self, *, quiet: bool) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TextColumn("{task.fields[more]}", markup=False),
            console=errors(), disable=quiet or not sys.stderr.isatty(),
        )  # fmt: skip
        self._task: TaskID | None = None
        self._plan: str | None = None
        self._quiet = quiet
        self._said = ""

    def __enter__(self) -> _Bar:  # noqa: PYI034 private
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def state(self, answer: Mapping[str, Any]) -> None:
        """What the cache answered about the request."""
        plan = answer["plan"]
        if plan is None:
            return
        if self._plan is None:
            self._plan = str(plan["id"])
            self._task = self._bar.add_task("looking", total=plan["total_bytes"], more="")
        text = plan["message"] or ""
        if text and text != self._said and not self._quiet:
            self._said = text
            errors().print(f"{escape(plan['state'])}: {escape(text)}")

    def progress(self, _subject: str, told: Mapping[str, Any]) -> None:
        """Live progress of any plan; only ours is shown."""
        if self._task is None or told.get("plan") != self._plan:
            return
        failed = f"{told['failed_blocks']} blocks failed, " if told.get("failed_blocks") else ""
        more = f"{failed}{size(told['bytes_per_s'])}/s, {size(told['origin_bytes'])} from the origin"
        if told.get("eta_s") is not None:
            more += f", {seconds(told['eta_s'])} left"
        self._bar.update(self._task, completed=told["verified_bytes"], description=str(told["stage"]), more=more)
