"""`forebay up`, `down`, `status`, `bus init`, `bus apply`: the installation on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from forebay.contracts.parts import Part
from forebay.local import launch
from forebay.local.bus import Bus, acknowledged
from forebay.local.disks import disks, problems, warnings
from forebay.local.disks import shown as disk_in_json
from forebay.local.errors import LocalError, StartError
from forebay.local.home import ChildRecord, Home, Record, free_port, read_record
from forebay.local.identities import check_projects, known_projects
from forebay.local.log_room import LogRoom, look
from forebay.local.settings import LocalSettings, load
from forebay.runtime.disk_room import DiskRoom
from forebay.runtime.terminal import console, print_json, print_line

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Projects = Annotated[list[str] | None, typer.Option("--project", "-p", help="A project to make keys for; repeatable.")]
_SIGNS = {"healthy": "[green]✓[/]", "starting": "[yellow]…[/]", "backoff": "[red]↻[/]", "unhealthy": "[red]![/]"}
_PROBLEM = "[red]✗[/]"
_PHASES = {
    "bus": "starting the bus",
    "streams": "making streams and durable consumers",
    "pool": "mounting the data pool",
    "services": "starting the services",
    "stopping": "stopping the services, then the pool, then the bus",
}
DEFAULT_PROJECT = "default"


def register(app: typer.Typer) -> None:
    """Entry point `forebay.commands`: adds the commands to the CLI."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    bus = typer.Typer(help="Keys, configuration and streams of the bus.", no_args_is_help=True)
    bus.command("init")(bus_init)
    bus.command("apply")(bus_apply)
    app.add_typer(bus, name="bus")


def up(
    project: Projects = None,
    no_juicefs: Annotated[bool, typer.Option("--no-juicefs", help="Use a plain folder as the data pool.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait until everything is healthy.")] = 120,
    as_json: Json = False,
) -> None:
    """Start the bus, the data pool and the services on this machine, and wait until they are healthy."""
    home, settings = _place()
    projects = check_projects(tuple(project or ())) or known_projects(home) or (DEFAULT_PROJECT,)
    os.umask(settings.umask_bits)
    home.make()
    console = _console(as_json)
    began = time.monotonic()
    if launch.running(home) is None and (left := launch.clear_remains(home, ending_attempts=False)):
        console.print(f"[yellow]the last run ended without 'forebay down'; ended what it left: {escape(str(left))}[/]")
    supervisor = launch.start(home, projects, juicefs=not no_juicefs)
    with _following(console) as seen:
        record = launch.wait_until_ready(home, supervisor, within=timeout, seen=seen)
    if as_json:
        print_json(record.to_json())
        return
    console.print(
        f"[bold green]up[/] in {time.monotonic() - began:.1f} s · bus {escape(record.nats_url)} · home {escape(str(home.root))}"
    )
    console.print(f"projects {', '.join(record.projects)} · pool {record.pool_kind} at {escape(record.pool_dir)}")
    console.print(f"bus: {acknowledged(home)}")
    if record.pool_note:
        console.print(f"[yellow]pool: {escape(record.pool_note)}[/]")
    _show_disks(console, disks(home, record))


def down(as_json: Json = False) -> None:
    """Stop everything that `up` started, and training attempts that still run. Fine when nothing runs."""
    home, _ = _place()
    console = _console(as_json)
    with _following(console, arrivals=False) as seen:
        cleared = launch.stop(home, seen=seen)
    if as_json:
        print_json(asdict(cleared))
    elif cleared:
        console.print(f"[bold]down[/] · ended {escape(str(cleared))}")
    else:
        console.print(f"nothing runs in {escape(str(home.root))}")


def status(as_json: Json = False) -> None:
    """Show what runs, since when, and what is wrong with it. Exit 0 only when everything is healthy."""
    home, _ = _place()
    record = read_record(home)
    alive = record is not None and record.supervisor.process() is not None
    room = asyncio.run(look(record.nats_url, home.key(Part.OPERATOR))) if record and alive else None
    rooms = disks(home, record) if record else []
    parts_are_fine = record is not None and record.phase == "ready" and all(_fine(c) for c in record.children)
    healthy = alive and parts_are_fine and not problems(rooms)
    if as_json:
        shown: dict[str, Any] = record.to_json() if record else {}
        print_json(
            {
                "home": str(home.root),
                "running": alive,
                "healthy": healthy,
                "log": asdict(room) if room else None,
                "disks": [disk_in_json(one) for one in rooms],
                "acknowledged": acknowledged(home),
                **shown,
            }
        )
    elif record is None or not alive:
        why = f": {record.message}" if record and record.phase == "failed" else ""
        print_line(f"nothing runs in {home.root}{why}")
        print_line("start it with: forebay up")
    else:
        _show(record, room, acknowledged(home))
        _show_disks(_console(False), rooms)
    if not healthy:
        raise typer.Exit(1)


def bus_init(project: Projects = None, as_json: Json = False) -> None:
    """Make missing keys and the server's configuration. Old keys stay; a running server takes in new projects."""
    home, settings = _place()
    projects = check_projects(tuple(project or ())) or known_projects(home) or (DEFAULT_PROJECT,)
    os.umask(settings.umask_bits)
    bus = Bus(home, settings)
    before = known_projects(home)
    record = read_record(home)
    port = record.nats_port if record else free_port(4222)
    made = bus.init(projects, port=port)
    new = [name for name in made.projects if name not in before]
    reloaded = False
    running = launch.running(home)
    server = running.child("nats-server") if running else None
    if running and server and made.changed:
        asyncio.run(bus.reload(running.nats_url, server.identity, new or made.projects))
        supervisor = running.supervisor.process()
        if supervisor is not None:
            supervisor.send_signal(signal.SIGHUP)
        reloaded = True
    if as_json:
        print_json({**asdict(made), "config": str(home.nats_config), "reloaded": reloaded})
        return
    print_line(f"{len(made.new_identities)} new keys in {home.keys}, configuration in {home.nats_config}")
    if reloaded:
        print_line("the running server has taken it in")


def bus_apply(
    update: Annotated[bool, typer.Option("--update", help="Also change what differs.")] = False,
    url: Annotated[str | None, typer.Option(help="The bus; default: the one of this home.")] = None,
    as_json: Json = False,
) -> None:
    """Make missing streams and durable consumers and compare the rest. Exit 1 when something differs."""
    home, settings = _place()
    record = read_record(home)
    if url is None and record is None:
        msg = f"no bus is known in {home.root}"
        raise StartError(msg, "start one with: forebay up, or name it with --url")
    done = asyncio.run(Bus(home, settings).apply(url or (record.nats_url if record else ""), update=update))
    if as_json:
        print_json([asdict(item) for item in done])
    else:
        for item in done:
            print_line(f"{item.action:10} {item.name}")
            for line in item.differences:
                print_line(f"           {line}")
    if any(item.action == "differs" for item in done):
        msg = "the bus is not as contracts say"
        raise LocalError(msg, "change it with: forebay bus apply --update", code="differs")


def _place() -> tuple[Home, LocalSettings]:
    settings = load()
    return Home(settings.home), settings


def _console(as_json: bool) -> Console:
    return console(stderr=as_json, wrap=True, highlight=False)


@contextlib.contextmanager
def _following(console: Console, *, arrivals: bool = True) -> Iterator[Callable[[Record], None]]:
    """Say each step once, and each part when it is healthy; on a terminal also show what is being waited for."""
    said: set[str] = set()
    with console.status("") as spinner:

        def seen(record: Record) -> None:
            step = _PHASES.get(record.phase, "")
            if step and step not in said:
                said.add(step)
                console.print(f"[dim]{step}[/]")
            for child in record.children:
                if arrivals and child.state == "healthy" and child.name not in said:
                    said.add(child.name)
                    console.print(f"  {_SIGNS['healthy']} {child.name}")
            waiting = [
                f"{c.name} ({c.note or c.state})" for c in record.children if c.state not in {"healthy", "stopped"}
            ]
            spinner.update(escape(", ".join(waiting) or step))

        yield seen


def _fine(child: ChildRecord) -> bool:
    return child.state == "healthy" and child.identity.process() is not None and not child.problems


def _show_disks(console: Console, rooms: list[DiskRoom]) -> None:
    for sentence in problems(rooms):
        console.print(f"[bold red]✗ {escape(sentence)}; new uploads and jobs are refused until then[/]", soft_wrap=True)
    for sentence in warnings(rooms):
        console.print(f"[bold yellow]{escape(sentence)}[/]", soft_wrap=True)


def _show(record: Record, room: LogRoom | None, acknowledged_means: str) -> None:
    console = _console(False)
    table = Table(box=None, pad_edge=False)
    for column in ("", "part", "state", "pid", "up", "restarts", ""):
        table.add_column(column)
    for child in record.children:
        up_for = f"{time.time() - child.start:.0f} s" if child.start else ""
        state = child.state if child.identity.process() or child.state != "healthy" else "gone"
        table.add_row(
            _PROBLEM if child.problems else _SIGNS.get(state, "·"),
            child.name,
            state,
            str(child.pid or ""),
            up_for,
            str(child.restarts),
            escape(child.note),
        )
    console.print(f"{record.phase} · bus {escape(record.nats_url)} · projects {', '.join(record.projects)}")
    console.print(f"bus: {acknowledged_means}")
    console.print(
        f"pool {record.pool_kind} at {escape(record.pool_dir)}"
        + (f" · {escape(record.pool_note)}" if record.pool_note else "")
    )
    console.print(table)
    for child in record.children:
        for problem in child.problems:
            console.print(f"[bold red]✗ {child.name}: {escape(problem)}[/]", soft_wrap=True)
    console.print(f"log {escape(str(room or 'does not answer'))}")
    if room and room.warning:
        console.print(f"[bold yellow]{escape(room.warning)}[/]")
