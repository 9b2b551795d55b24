"""`forebay dead list|show|retry`: what services gave up on, and how to hand it to them again."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, moment, plain_table, print_json
from forebay.cli.place import Place, find_place, person, run_async


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List, show and retry messages that a service gave up on.", no_args_is_help=True)
    group.command("list", epilog="Example: forebay dead list")(list_dead)
    group.command("show", epilog="Example: forebay dead show 3")(show)
    group.command("retry", epilog="Example: forebay dead retry 3")(retry)
    app.add_typer(group, name="dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter: which service gave up on what, and why."""

    number: int
    at: str
    consumer: str
    what: str
    seq: int | None
    work: str | None
    cause: str
    content: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number, "at": self.at, "consumer": self.consumer, "what": self.what, "seq": self.seq,
            "work": self.work, "cause": self.cause,
        }  # fmt: skip


async def _read(place: Place) -> list[Letter]:
    from forebay.contracts.subjects import DEAD_STREAM  # noqa: PLC0415 help must not pay for it
    from forebay.runtime.log import LogReader  # noqa: PLC0415

    letters: list[Letter] = []
    async with place.client() as client:
        reader = LogReader(client.nc, DEAD_STREAM)
        after = 0
        while batch := await reader.read(after):
            letters += [_letter(message) for message in batch]
            after = batch[-1].seq
    return letters


def _letter(message: Any) -> Letter:
    content: dict[str, Any] = json.loads(message.data)
    advisory = str(message.subject).startswith("$JS.")
    cause = content.get("cause") or content.get("reason") or ""
    if advisory and not cause:
        cause = f"the server gave up after {content.get('deliveries')} deliveries; the reader died of it"
    seq = content.get("seq", content.get("stream_seq"))
    return Letter(
        number=message.seq,
        at=message.stored_at.isoformat(),
        consumer=str(content.get("consumer", "?")),
        what=str(content.get("what", "delivery" if advisory else "?")),
        seq=int(seq) if seq is not None else None,
        work=content.get("work"),
        cause=str(cause),
        content=content,
    )


def list_dead(as_json: AsJson = False) -> None:
    """List the dead letters, newest last."""
    letters = run_async(_read(find_place(None)))
    if as_json:
        print_json({"dead": [one.to_json() for one in letters]})
        return
    table = plain_table("number", "time", "service", "what", "message", "cause")
    for one in letters:
        table.add_row(
            str(one.number), moment(one.at), one.consumer, one.what, str(one.seq or one.work or "-"), escape(one.cause)
        )
    console().print(table if letters else "no dead letters")


def show(
    number: Annotated[int, typer.Argument(help="The letter's number in `dead list`.")], as_json: AsJson = False
) -> None:
    """Show one dead letter with the message as it came."""
    letter = _find(find_place(None), number)
    body = letter.content.get("body_base64")
    text = base64.b64decode(body).decode(errors="replace") if body else None
    if as_json:
        print_json(letter.to_json() | {"content": letter.content, "body": text})
        return
    out = console()
    out.print(f"[bold]letter {letter.number}[/]: {letter.consumer} gave up on {letter.what} at {moment(letter.at)}")
    out.print(f"cause: {escape(letter.cause)}")
    for name in ("seq", "subject", "stage", "work", "payload", "headers"):
        if letter.content.get(name) is not None:
            out.print(f"{name}: {escape(str(letter.content[name]))}")
    if text is not None:
        out.print(f"body: {escape(text)}")


def retry(
    number: Annotated[int, typer.Argument(help="The letter's number in `dead list`.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Hand that very message, or piece of work, to that service again."""
    place = find_place(project)
    letter = _find(place, number)
    args = {"work": letter.work} if letter.work else {"seq": letter.seq}

    async def asked() -> dict[str, Any]:
        async with place.client() as client:
            return (await client.ask(letter.consumer, place.project, "dead-retry", args, by=person())).result

    result = run_async(asked())
    if as_json:
        print_json(result)
    else:
        console().print(f"{letter.consumer} has {letter.what} {letter.work or letter.seq} again: {escape(str(result))}")
    if result.get("folded") is False:
        raise typer.Exit(1)


def _find(place: Place, number: int) -> Letter:
    from forebay.runtime.errors import Refused  # noqa: PLC0415

    letters = run_async(_read(place))
    found = next((one for one in letters if one.number == number), None)
    if found is None:
        msg = f"there is no dead letter {number}"
        raise Refused("unknown-letter", msg, "see: forebay dead list")
    return found
