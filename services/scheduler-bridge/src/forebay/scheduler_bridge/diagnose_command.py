"""`forebay diagnose`: the one reason for each message or job in a file, offline."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape

from forebay.contracts.reasons import Layer
from forebay.runtime.terminal import Terminal, console, print_json, print_line
from forebay.scheduler_bridge.diagnose_input import Broken, Given, Line, read_parts
from forebay.scheduler_bridge.domain.cluster.patience import aged_diagnosis
from forebay.scheduler_bridge.domain.kubernetes.classify import classify
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import Diagnosis, diagnose_all
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Finding, Message
from forebay.scheduler_bridge.domain.masking import mask

_KUBECTL = "kubectl get pod,job,workload,events -o json | forebay diagnose -"
_EXAMPLES = f"Example: {_KUBECTL}  ·  forebay diagnose messages.jsonl --json"
_COLOURS = {Layer.NONE: "cyan", Layer.PROCESS: "red", Layer.NOT_EVALUATED: "cyan"}
_SHOWN = 400


def register(app: typer.Typer) -> None:
    """Add the command to the CLI."""
    app.command("diagnose", epilog=_EXAMPLES)(diagnose)


def diagnose(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE|-", help="JSON lines of messages, or objects of kubectl; - is standard input."),
    ],
    *,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Judge as of this time (ISO 8601); default: now.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Say the one reason why each job in a file waits or ended, without any server.

    Reads lines with `reason`, `message`, `where`, `exit_code` (one verdict each), or Kubernetes objects as
    `kubectl get pod,job,workload,events,nodes,pvc -o json` prints them (one verdict for each job; the more kinds there are,
    the more it can say). Exit 0: everything was judged; 1: some lines could not be read, they are named
    and the rest is judged; 2: wrong use.
    """
    now = _moment(at)
    broken: list[Broken] = []
    objects: list[Any] = []
    said = 0
    out = console()
    for part in read_parts(_read(file)):
        if isinstance(part, Broken):
            broken.append(part)
        elif isinstance(part, Given):
            objects.append(part.value)
        else:
            said += 1
            _tell(out, line_json(part), as_json=as_json)
    facts = facts_from_objects(objects)
    judged = diagnose_all(facts, now) if objects else ()
    for found in judged:
        said += 1
        _tell(out, object_json(aged_diagnosis(found, now, facts.all("Node"))), as_json=as_json)
    for one in broken:
        print_line(f"{file}, line {one.number}: {one.why}", stderr=True)
    if broken:
        print_line(
            f"{len(broken)} part{'s' if len(broken) > 1 else ''} of {file} could not be read; {said} judged"
            + (f"; JSON is read, as it comes from: {_KUBECTL}" if not said else ""),
            stderr=True,
        )
        raise typer.Exit(1)
    if not said:
        _stop(
            f"{file} holds nothing to judge; give messages, or objects: {_KUBECTL}",
            1,
        )


def line_json(line: Line) -> dict[str, Any]:
    """The answer for one message."""
    message = line.message
    return {"line": line.number, **_verdict(classify(message), (message,))}


def object_json(found: Diagnosis) -> dict[str, Any]:
    """The answer for one job."""
    return {"subject": found.subject, **_verdict(found, found.evidence), "since": found.since.isoformat()}


def _verdict(found: Finding | Diagnosis, evidence: tuple[Message, ...]) -> dict[str, Any]:
    return {
        "cause": found.cause.value,
        "layer": found.layer.value,
        "code": found.reason.value,
        "sentence": mask(found.sentence),
        "next_action": mask(found.next_action),
        "need": mask(found.need) if found.need else None,
        "have": mask(found.have) if found.have else None,
        "where": found.where,
        "fits": found.fits,
        "rule": found.rule,
        "evidence": [_raw(message) for message in evidence],
    }


def _raw(message: Message) -> dict[str, Any]:
    raw = {
        "source": message.source,
        "where": message.where,
        "object": message.object,
        "reason": message.reason,
        "message": mask(message.text),
        "exit_code": message.exit_code,
    }
    return {name: value for name, value in raw.items() if value is not None and value != ""}


def _tell(out: Terminal, answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    about = answer.get("subject") or f"line {answer['line']}"
    colour = _COLOURS.get(Layer(answer["layer"]), "yellow")
    never = " [red]will never fit[/]" if answer["fits"] == "never" else ""
    out.print(
        f"[bold]{escape(about)}[/]  [{colour}]{answer['cause']}[/]{never}  {escape(answer['sentence'])}",
        highlight=False,
    )
    out.print(f"  do: {escape(answer['next_action'])}", highlight=False)
    numbers = [f"{name} {answer[name]}" for name in ("need", "have", "where") if answer[name]]
    out.print(f"  [dim]{escape(' · '.join([*numbers, answer['layer'], answer['rule']]))}[/]", highlight=False)
    for raw in answer["evidence"]:
        told = " ".join(str(raw[name]) for name in ("object", "reason", "message") if raw.get(name))
        if told:
            out.print(f"  [dim]{escape(told[:_SHOWN])}[/]", highlight=False)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        _stop(f"{file} cannot be read: {error.strerror}", 2)


def _moment(at: str | None) -> datetime:
    if at is None:
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        _stop(f"--at {at!r} is no time; write it like 2026-01-10T08:15:00Z", 2)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _stop(message: str, code: int) -> NoReturn:
    print_line(message, stderr=True)
    raise typer.Exit(code)
