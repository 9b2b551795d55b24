"""`forebay submit|retry|jobs|job|why|cancel`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.job_files import offline_answer, show_schema
from forebay.cli.output import AsJson, Project, ago, coloured, console, errors, moment, plain_table, print_json, seconds
from forebay.cli.place import Place, find_place, person, run_async

BRIDGE = "scheduler-bridge"
_ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
_LOOK_EVERY_S = 0.5
_UNREACHABLE_FOR_S = 60.0


Wait = Annotated[bool, typer.Option("--wait", help="Wait for its end; exit 0 only when it succeeded.")]
Timeout = Annotated[
    float | None,
    typer.Option(help="With --wait: seconds; then exit 1, and the job goes on.", min=0, show_default="none"),
]

_SUBMIT_EXAMPLES = (
    "Examples: forebay submit examples/reach.yaml --wait · forebay submit --check job.yaml --project-file project.yaml"
    " · forebay submit --render job.yaml"
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("submit", epilog=_SUBMIT_EXAMPLES)(submit)
    app.command("retry", epilog="Example: forebay retry reach --wait --timeout 3600")(retry)
    app.command("jobs", epilog="Example: forebay jobs")(jobs)
    app.command("job", epilog="Example: forebay job reach --json")(job)
    app.command("why", epilog="Example: forebay why reach")(why)
    app.command("cancel", epilog="Example: forebay cancel reach-2 --reason 'wrong dataset'")(cancel)


def submit(  # noqa: PLR0917 typer passes arguments by name
    file: Annotated[Path | None, typer.Argument(help="The job as YAML.", metavar="JOB.yaml")] = None,
    wait: Wait = False,
    timeout: Timeout = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Start at step 0 although an earlier run of this name left checkpoints."),
    ] = False,
    wait_for_dataset: Annotated[
        bool, typer.Option("--wait-for-dataset", help="Accept a dataset name or tag that does not exist yet.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check the file, offline; exit 1 for a problem.")] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Only print the Kubernetes objects as YAML, offline.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Only print the JSON schema of a job file.")] = False,
    project_file: Annotated[
        Path | None, typer.Option(help="With --check and --render: what the project may use of a cluster.")
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Submit a training job. The same file again, while the job lives, is the same job.

    When an earlier run of the same name has failed or was cancelled and left checkpoints, nothing is submitted until you say
    how to go on: `forebay retry JOB`, `restart: {start_from: JOB}` in the file, or --fresh.
    """
    if schema:
        show_schema()
        return
    if file is None:
        msg = "name a job file: forebay submit JOB.yaml"
        raise typer.BadParameter(msg)
    spec = read_job(file)
    if check or render:
        offline_answer(spec, render=render, project=project, project_file=project_file, as_json=as_json)
        return
    from forebay.runtime.disk_room import ATTEMPT_BYTES  # noqa: PLC0415 help must not load it

    refuse_secrets(spec, file)
    place = find_place(project or spec.get("project"))
    place.require_room("the job", {"home": ATTEMPT_BYTES})
    args = {"spec": spec, "wait_for_dataset": wait_for_dataset, "fresh": fresh}
    result = place.ask(BRIDGE, "submit", args, request_id=uuid.uuid4().hex)
    _submitted(place, result, wait=wait, timeout=timeout, as_json=as_json)


def retry(
    job: Annotated[str, typer.Argument(help="A job that has failed or was cancelled; its name means the newest run.")],
    wait: Wait = False,
    timeout: Timeout = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Run a failed or cancelled job once more: the same request and dataset versions, from its last good checkpoint.

    The new run is a job of its own; `forebay why` shows from which checkpoint it continues, and why.
    """
    place = find_place(project)
    result = place.ask(BRIDGE, "retry", {"job": job}, request_id=uuid.uuid4().hex)
    _submitted(place, result, wait=wait, timeout=timeout, as_json=as_json)


def _submitted(place: Place, result: dict[str, Any], *, wait: bool, timeout: float | None, as_json: bool) -> None:
    """Say what became of a request, and wait for its end where that is wanted."""
    job_id = str(result["job"])
    if not as_json:
        how = "is the same job, which is under way" if result.get("adopted") else "submitted"
        console().print(f"[bold]{escape(job_id)}[/] {how}; see why it waits with: forebay why {escape(job_id)}")
        if starts := result.get("starts"):
            console().print(f"  {escape(starts)}")
        for warning in result.get("warnings", ()):
            errors().print(f"[yellow]![/] {escape(warning)}")
    if not wait:
        if as_json:
            print_json(result)
        return
    end = run_async(_follow(place, job_id, quiet=as_json, within=timeout))
    over = end["state"] in _ENDED
    if as_json:
        print_json(result | {"state": end["state"], "sentence": end["sentence"], "timed_out": not over})
    elif not over:
        errors().print(
            f"{escape(job_id)} has not ended within {timeout:g} s; it goes on. Look again with: forebay why {escape(job_id)}"
        )
    if end["state"] != "SUCCEEDED":
        raise typer.Exit(1)


def refuse_secrets(spec: Mapping[str, Any], file: Path) -> None:
    """A secret does not leave this machine. Raises `typer.BadParameter` that names the places, not the secrets."""
    from forebay.contracts.masking import HOW_TO_NAME_IT, mask, secrets_in  # noqa: PLC0415 only here

    found = [f"{mask(where)}: {what}" for where, what in secrets_in(spec)]
    if found:
        msg = f"{file}: {'; '.join(found)}. Nothing was sent. Next: {HOW_TO_NAME_IT}"
        raise typer.BadParameter(msg)


def read_job(file: Path) -> dict[str, Any]:
    """Read a job file; a relative working directory means: beside the file.

    Raises `typer.BadParameter` that says what is wrong with the file.
    """
    import yaml  # noqa: PLC0415 only here

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}"
        raise typer.BadParameter(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        msg = f"{file} is no YAML: {error}"
        raise typer.BadParameter(msg) from error
    if not isinstance(found, dict):
        msg = f"{file} holds no job: expected name, command, datasets, …"
        raise typer.BadParameter(msg)
    folder = found.get("working_directory")
    if isinstance(folder, str) and not Path(folder).is_absolute() and not found.get("image"):
        found["working_directory"] = str((file.parent / folder).resolve())
    return {str(name): value for name, value in found.items()}


async def _follow(place: Place, job_id: str, *, quiet: bool, within: float | None) -> dict[str, Any]:
    """Print what changes until the job has ended or the time is over. A short outage of the bus is waited out."""
    from forebay.runtime.errors import Unreachable  # noqa: PLC0415

    out, said = console(), ""
    loop = asyncio.get_running_loop()
    started = heard = loop.time()
    async with place.client() as client:
        while True:
            try:
                answer = (await client.ask(BRIDGE, place.project, "why", {"job": job_id}, by=person())).result
                heard = loop.time()
            except Unreachable:
                if loop.time() - heard > _UNREACHABLE_FOR_S:
                    raise
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            if answer["sentence"] != said and not quiet:
                said = answer["sentence"]
                out.print(f"{coloured(answer['state'])} {escape(said)}")
            if answer["state"] in _ENDED or (within is not None and loop.time() - started >= within):
                return dict(answer)
            await asyncio.sleep(_LOOK_EVERY_S)


def jobs(project: Project = None, as_json: AsJson = False) -> None:
    """List the jobs of a project, each with its state and cause."""
    place = find_place(project)
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = place.ask(BRIDGE, "jobs", {"after": after})
        found += page["jobs"]
        after = page["next"]
    if as_json:
        print_json({"project": place.project, "jobs": found})
        return
    table = plain_table("job", "state", "waits for", "attempts", "age", "cause")
    for one in found:
        table.add_row(
            escape(one["job"]), coloured(one["state"]), escape(one["queued_for"] or "-"), str(one["attempts"]),
            ago(one["submitted_at"]), escape(one["message"]),
        )  # fmt: skip
    console().print(table if found else f"project {place.project} has no job yet; forebay submit JOB.yaml")


def job(
    job: Annotated[str, typer.Argument(help="The job's id, or its name for the newest run.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show everything on record about a job: inputs, attempts, history."""
    place = find_place(project)
    found = place.ask(BRIDGE, "job", {"job": job})
    while found["next"] is not None:
        page = place.ask(BRIDGE, "job", {"job": job, "after": found["next"]})
        found["history"] += page["history"]
        found["next"] = page["next"]
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(
        f"[bold]{escape(found['job'])}[/] {coloured(found['state'])} submitted by {escape(found['submitted_by'])}"
    )
    for one in found["inputs"]:
        out.print(f"  input {escape(one['logical'])} = v{one['number']}")
    _show_attempts(found["attempt_list"])
    table = plain_table("time", "event", "attempt", "what")
    for one in found["history"]:
        text = one.get("message") or one.get("reason") or ""
        table.add_row(moment(one["at"]), escape(one["event"]), str(one.get("attempt") or "-"), escape(text))
    out.print(table)


def why(
    job: Annotated[str, typer.Argument(help="The job's id, or its name for the newest run.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Say why a job is where it is: one sentence, the conditions with numbers, where its time went."""
    place = find_place(project)
    found = place.ask(BRIDGE, "why", {"job": job})
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(f"{coloured(found['state'])} [bold]{escape(found['sentence'])}[/]")
    table = plain_table("condition", "status", "reason", "what", "since")
    for one in found["conditions"]:
        table.add_row(
            escape(one["type"]),
            coloured(one["status"]),
            escape(one["reason"]),
            escape(one["message"]),
            moment(one.get("since")),
        )
    out.print(table)
    _show_attempts(found["attempts"])
    waited = ", ".join(f"{layer} {seconds(count)}" for layer, count in found["waited_seconds"].items() if count >= 0.1)
    if waited:
        out.print(f"time spent: {escape(waited)}")
    if output := found.get("output"):
        out.print(f"last output of attempt {output['attempt']}:")
        for line in output["lines"]:
            out.print(f"  {escape(line)}", highlight=False)
    for one in found.get("heartbeats", ()):
        out.print(f"last heartbeat of node {escape(one['node'])}: {seconds(one['age_s'])} ago, {moment(one['at'])}")
    for one in found.get("unseen", ()):
        out.print(f"not seen: {escape(one['object'])} is {escape(one['message'])}")


def _show_attempts(attempts: list[dict[str, Any]]) -> None:
    for one in attempts:
        console().print(f"  attempt {one['attempt']}: {escape(attempt_line(one))}")


def attempt_line(attempt: Mapping[str, Any]) -> str:
    """One attempt in words; process recovery and training recovery apart."""
    parts = [str(attempt["state"])]
    process, training, ending = attempt.get("process"), attempt.get("training"), attempt.get("ending")
    if process:
        back = f" (the process came back after attempt {process['recovers']})" if process.get("recovers") else ""
        parts.append(f"process {process['process']} on {process['host']}{back}")
    if training:
        step = f" at step {training['step']}" if training.get("step") is not None else ""
        why = next(iter(training.get("reasons") or ()), "")
        said = f": {why}" if why.startswith("continues ") or training["mode"] == "warm-start" else ""
        parts.append(f"training {training['mode']}{step}{said}")
    if ending:
        parts.append(str(ending.get("message") or ending.get("reason") or ""))
    return "; ".join(part for part in parts if part)


def cancel(
    job: Annotated[str, typer.Argument(help="The job's id, or its name for the newest run.")],
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a job. Its process is stopped, its lease given back."""
    place = find_place(project)
    result = place.ask(BRIDGE, "cancel", {"job": job, "reason": reason}, request_id=uuid.uuid4().hex)
    if as_json:
        print_json(result)
    else:
        was = "was cancelled before" if result.get("already") else "cancelled"
        console().print(f"{escape(result['job'])} {was}")
