"""`forebay dead list|show|retry|dismiss`: what services gave up on, and what to do with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, errors, moment, plain_table, print_json
from forebay.cli.place import Place, find_place, person, run_async
from forebay.contracts.parts import SERVICES

if TYPE_CHECKING:
    from forebay.runtime.client import Client
    from forebay.runtime.log import LogMessage

LOST_TAIL = "lost-tail"
Name = Annotated[str, typer.Argument(help="The name in `dead list`, for example ingest/123.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List, show, retry and dismiss what a service gave up on.", no_args_is_help=True)
    group.command("list", epilog="Example: forebay dead list")(list_dead)
    group.command("show", epilog="Example: forebay dead show ingest/123")(show)
    group.command("retry", epilog="Example: forebay dead retry ingest/123")(retry)
    group.command("dismiss", epilog="Example: forebay dead dismiss --all --project arm-lab")(dismiss)
    app.add_typer(group, name="dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """One thing that a service gave up on: a message of the log, or a piece of its own work."""

    name: str
    consumer: str
    what: str
    cause: str
    at: str
    seq: int | None = None
    subject: str | None = None
    stage: str | None = None
    work: str | None = None


def list_dead(
    history: Annotated[
        bool, typer.Option("--history", help="Show every dead letter ever told, also of what was retried since.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what is parked now, oldest first."""
    place = find_place(None)
    found, silent = run_async(_history(place)) if history else run_async(_parked(place))
    if as_json:
        print_json({"dead": [asdict(one) for one in found], "not_answering": silent})
    else:
        table = plain_table("name", "time", "what", "cause")
        for one in found:
            table.add_row(escape(one.name), moment(one.at), one.what, escape(one.cause))
        console().print(table if found else "nothing is parked")
        for service in silent:
            errors().print(f"{service} does not answer: what it parked is not listed; see: forebay status")
    if silent:
        raise typer.Exit(3)


def show(name: Name, as_json: AsJson = False) -> None:
    """Show one of them; a message with its headers and body as they lie in the log."""
    parked, message = run_async(_with_message(find_place(None), name))
    body = None if message is None else message.data.decode(errors="replace")
    headers = None if message is None else dict(message.headers)
    if as_json:
        print_json(asdict(parked) | {"headers": headers, "body": body})
        return
    out = console()
    out.print(f"[bold]{escape(parked.name)}[/]: {parked.consumer} gave up on this {parked.what} at {moment(parked.at)}")
    out.print(f"cause: {escape(parked.cause)}")
    for label, value in (("subject", parked.subject), ("stage", parked.stage), ("headers", headers), ("body", body)):
        if value is not None:
            out.print(f"{label}: {escape(str(value))}")


def retry(name: Name, project: Project = None, as_json: AsJson = False) -> None:
    """Hand that very message, or piece of work, to its service again. Exit 1 when it fails again."""
    place = find_place(project)
    result = run_async(_ask(place, name, "dead-retry"))
    if as_json:
        print_json(result)
    else:
        console().print(
            f"{escape(name)}: {'failed again and stays parked' if result.get('folded') is False else 'done'}"
        )
    if result.get("folded") is False:
        raise typer.Exit(1)


def dismiss(
    name: Annotated[str | None, typer.Argument(help="The name in `dead list`, for example ingest/123.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that the project has parked.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Stop counting it as a problem. It stays on record, and can still be retried."""
    place = find_place(project)
    if (name is None) != everything:
        raise typer.BadParameter("give one name, or --all with --project")
    if name is not None:
        result = run_async(_ask(place, name, "dead-dismiss"))
        said = f"dismissed {escape(name)}"
    else:
        result = {"dismissed": run_async(_dismiss_all(place))}
        said = f"dismissed {result['dismissed']} parked items of project {place.project}"
    if as_json:
        print_json(result)
    else:
        console().print(said)


async def _dismiss_all(place: Place) -> int:
    count = 0
    async with place.client() as client:
        for part in SERVICES:
            answer = await client.ask(str(part), place.project, "dead-dismiss", {"all": True}, by=person())
            count += int(answer.result["dismissed"])
    return count


async def _ask(place: Place, name: str, question: str) -> dict[str, Any]:
    service, about = _split(name)
    async with place.client() as client:
        return (await client.ask(service, place.project, question, about, by=person())).result


def _split(name: str) -> tuple[str, dict[str, Any]]:
    """`ingest/123` is a message, `ingest/validate/u-1` a piece of work. Raises `Refused`."""
    from forebay.runtime.errors import Refused  # noqa: PLC0415 help must not pay for it

    service, _, rest = name.partition("/")
    if service not in SERVICES or not rest:
        raise Refused("unknown-name", f"{name!r} names nothing that is parked", "see: forebay dead list")
    if rest == LOST_TAIL:
        return service, {"lost_tail": True}
    return service, {"seq": int(rest)} if rest.isascii() and rest.isdigit() else {"work": rest}


async def _parked(place: Place) -> tuple[list[Parked], list[str]]:
    """What each service has parked now, and the services that do not answer."""
    from forebay.runtime.errors import Unreachable  # noqa: PLC0415 help must not pay for it

    found: list[Parked] = []
    silent: list[str] = []
    async with place.client() as client:
        for part in SERVICES:
            try:
                found += await _parked_in(client, place, str(part))
            except Unreachable:
                silent.append(str(part))
    return found, silent


async def _parked_in(client: Client, place: Place, service: str) -> list[Parked]:
    answer = (await client.ask(service, place.project, "dead", {}, by=person(), timeout=5)).result
    found = [
        Parked(
            name=f"{service}/{one.get('seq') or one.get('work')}",
            consumer=service,
            at=_when(float(one.pop("at"))),
            **one,
        )
        for one in answer["dead"]
    ]
    if lost := answer.get("lost_tail"):
        found.append(
            Parked(
                name=f"{service}/{LOST_TAIL}",
                consumer=service,
                what="lost tail",
                cause=lost["text"],
                at=_when(lost["at"]),
            )
        )
    return found


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


async def _with_message(place: Place, name: str) -> tuple[Parked, LogMessage | None]:
    from forebay.runtime.errors import Refused  # noqa: PLC0415 help must not pay for it

    service, _ = _split(name)
    async with place.client() as client:
        found = next((one for one in await _parked_in(client, place, service) if one.name == name), None)
        if found is None:
            raise Refused("not-parked", f"{name} is not parked", "see: forebay dead list")
        return found, None if found.seq is None else await client.log_reader.one(found.seq)


async def _history(place: Place) -> tuple[list[Parked], list[str]]:
    """The letters in FOREBAY_DEAD; the oldest are dropped when it is full."""
    from forebay.contracts.subjects import DEAD_STREAM  # noqa: PLC0415 help must not pay for it
    from forebay.runtime.log import LogReader, read_all  # noqa: PLC0415

    async with place.client() as client:
        reader = LogReader(client.nc, DEAD_STREAM)
        state = await reader.state()
        letters = [
            _letter(message)
            async for batch in read_all(reader, after=state.first - 1, until=state.last)
            for message in batch
        ]
    return letters, []


def _letter(message: LogMessage) -> Parked:
    content: dict[str, Any] = json.loads(message.data)
    seq = content.get("seq", content.get("stream_seq"))
    cause = content.get("cause") or content.get("reason")
    return Parked(
        name=f"{content.get('consumer', '?')}/{seq if seq is not None else content.get('work')}",
        consumer=str(content.get("consumer", "?")),
        what=str(content.get("what", "delivery")),
        cause=str(cause or f"the bus stopped delivering it after {content.get('deliveries')} tries"),
        at=message.stored_at.isoformat(),
        seq=None if seq is None else int(seq),
        subject=content.get("subject"),
        stage=content.get("stage"),
        work=content.get("work"),
    )
