"""`forebay watch`: events and live progress as they happen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, print_json
from forebay.cli.place import Place, find_place, run_async

if TYPE_CHECKING:
    from forebay.contracts.body import EventBody
    from forebay.contracts.envelope import Recorded

_LOOK_EVERY_S = 0.4
_TELLING = (
    "dataset", "number", "tag", "attempt", "step", "status", "mode", "reason", "message", "model", "channel",
    "source_index", "episodes", "episode_count", "verified_bytes", "aligned_bytes",
)  # fmt: skip
_LONGEST = 150


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch", epilog="Example: forebay watch --job reach")(watch)


def watch(
    *,
    project: Project = None,
    job: Annotated[str | None, typer.Option(help="Only what is about this job.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Begin with the first event on record.")] = False,
    for_seconds: Annotated[float | None, typer.Option("--for", help="Stop after so many seconds.")] = None,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Only events, no live progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow what happens, one line per event. With --json one JSON object per line. Ctrl-C ends it."""
    place = find_place(project)
    view = _View(place=place, only=project, job=job, as_json=as_json)
    follow = _follow(place, view, everything=everything, progress=not no_progress)
    run_async(_at_most(follow, for_seconds))


async def _at_most(follow: Coroutine[Any, Any, None], limit_s: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await follow


async def _follow(place: Place, view: _View, *, everything: bool, progress: bool) -> None:
    """Read the log by position; a subscription would need rights that no person has."""
    from forebay.runtime.errors import Unreachable  # noqa: PLC0415 help must not pay for it

    async with place.client() as client:
        if progress:
            await client.on_progress(view.progress)
        after = 0 if everything else (await client.log_reader.ends())[1]
        lost = False
        while True:
            try:
                async for batch in client.batches(after=after):
                    for message in batch:
                        view.message(message)
                    after = batch[-1].seq
            except Unreachable:
                if not lost:
                    view.note("the bus does not answer; waiting for it")
                lost = True
            else:
                if lost:
                    view.note("the bus answers again")
                lost = False
            await asyncio.sleep(_LOOK_EVERY_S)


class _View:
    """What is shown of an event or of progress."""

    def __init__(self, *, place: Place, only: str | None, job: str | None, as_json: bool) -> None:
        self._place = place
        self._only = only
        self._job = job
        self._as_json = as_json
        self._console = console()
        self._progress: dict[str, str] = {}

    def message(self, message: Any) -> None:
        from forebay.contracts.errors import ContractError  # noqa: PLC0415

        try:
            recorded: Recorded[EventBody] = message.decode()
        except ContractError as error:
            self.note(f"message {message.seq} on {message.subject} is no event: {error}")
            return
        if self._only and recorded.project != self._only:
            return
        body = recorded.body.to_json()
        if self._job and not self._is_about(str(body.get("job", ""))):
            return
        if self._as_json:
            print_json(_as_json(message.seq, recorded, body))
            return
        clock = recorded.stored_at.astimezone().strftime("%H:%M:%S")
        self._console.print(
            f"[dim]{clock} {message.seq:>5}[/] [bold]{recorded.body.event}[/] {_key(body)}"
            f" [dim]{recorded.event.source.part}[/] {escape(_telling(body))}"
        )

    def progress(self, subject: str, payload: dict[str, Any]) -> None:
        """Live progress; only what changed is printed."""
        _, service, project, key = subject.split(".", 3)
        if self._only and project != self._only:
            return
        if self._as_json:
            print_json({"progress": subject, **payload})
            return
        text = ", ".join(f"{name} {_short(value)}" for name, value in payload.items())
        if self._progress.get(subject) != text:
            self._progress[subject] = text
            self._console.print(f"[dim]         … {escape(f'{service} {key}: {text}')}[/]")

    def note(self, text: str) -> None:
        if self._as_json:
            print_json({"note": text})
        else:
            self._console.print(f"[yellow]{escape(text)}[/]")

    def _is_about(self, job: str) -> bool:
        return job == self._job or job.rpartition("-")[0] == self._job


def _as_json(seq: int, recorded: Recorded[EventBody], body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seq": seq,
        "stored_at": recorded.stored_at.isoformat(),
        "time": recorded.event.time.isoformat(),
        "project": recorded.project,
        "event": recorded.body.event,
        "source": str(recorded.event.source),
        "id": recorded.event.id,
        "body": body,
    }


def _key(body: Mapping[str, Any]) -> str:
    for name in ("job", "episode", "checkpoint", "plan", "dataset", "model", "upload"):
        if name in body:
            return escape(str(body[name]))
    return ""


def _telling(body: Mapping[str, Any]) -> str:
    parts = [f"{name}={_short(body[name])}" for name in _TELLING if name in body]
    findings = body.get("findings") or ()
    parts += [f"{one['rule']}: {one['message']}" for one in findings[:2]]
    verdict = body.get("verdict")
    if isinstance(verdict, Mapping):
        parts.append(str(verdict.get("message", "")))
    text = " ".join(parts)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
