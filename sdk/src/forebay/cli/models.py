"""`forebay model register|evaluate|policy|release|fetch|list`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.metrics import evidence_of, read_metrics, read_policy
from forebay.cli.model_files import fetch, wait_until_kept
from forebay.cli.output import AsJson, Project, console, plain_table, print_json
from forebay.cli.place import Place, find_place

_PENDING_FOR_S = 30.0
_PENDING = frozenset({"verification-pending", "not-stored-yet", "catching-up", "no-checkpoint"})


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Register, evaluate, release, fetch and list models; what a release must meet.", no_args_is_help=True
    )
    group.command("register", epilog="Example: forebay model register reach-policy --job reach")(register_model)
    group.command("evaluate", epilog="Example: forebay model evaluate reach-policy@v1 --metrics eval.json")(evaluate)
    group.command("policy", epilog="Example: forebay model policy --channel production --set gate.yaml --reason pilot")(
        policy
    )
    group.command("release", epilog="Example: forebay model release reach-policy@v1 --channel production")(release)
    group.command("fetch", epilog="Example: forebay model fetch reach-policy@production ./policy")(fetch)
    group.command("list", epilog="Example: forebay model list")(list_models)
    app.add_typer(group, name="model")


def register_model(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    job: Annotated[str, typer.Option("--job", "-j", help="The job that made it.")],
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint id or step; default: the latest complete one.")
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Make a verified checkpoint of a job a version of a model, and keep its files.

    They are copied into the model store, each content once, and compared with their digests. Exit code 1: they
    could not be kept.
    """
    args = {"model": model, "job": job, "checkpoint": checkpoint}
    place = find_place(project)
    result = command(place, "model-register", args)
    files = wait_until_kept(place, result["model"], result["number"])
    result |= {"kept": files["kept"], "store": files["store"], "problem": files["problem"]}
    if as_json:
        print_json(result)
    else:
        _show_registered(result, files["files"])
    if not files["kept"]:
        raise typer.Exit(1)


def _show_registered(result: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> None:
    was = "is registered already" if result["already"] else "registered"
    console().print(
        f"[bold]{escape(result['model'])}@v{result['number']}[/] {was}: step {result['step']} of {escape(result['job'])},"
        f" artefact {escape(result['artefact_sha256'][:12])}"
    )
    if result["kept"]:
        from forebay.runtime.disk_room import bytes_in_words  # noqa: PLC0415 help must not pay for it

        amount = bytes_in_words(sum(one["bytes"] for one in files))
        console().print(
            f"  {len(files)} files, {amount}, kept and verified; the checkpoint's folder is not needed any more"
        )
    else:
        why = result["problem"] or "still being copied; see: forebay audit " + result["model"]
        console().print(f"  [red]its files are not kept[/]: {escape(why)}")


def evaluate(
    model: Annotated[str, typer.Argument(help="NAME or NAME@v3.")],
    *,
    metrics: Annotated[
        Path | None, typer.Option(help="JSON file with numbers, or lerobot-eval's eval_info.json.")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, marked as typed by hand; repeatable.")] = None,
    job: Annotated[str | None, typer.Option("--job", "-j", help="The job that wrote the file.")] = None,
    number: Annotated[int | None, typer.Option(help="Version number; default: the latest.")] = None,
    source: Annotated[str | None, typer.Option(help="Where the metrics come from.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Record metrics of a model version, bound to the digest of its artefact, with where they come from.

    The file's digest is recorded; with --job also that the job wrote it. Numbers given with --metric are marked as
    typed by hand everywhere, and a policy may refuse them (evidence: file, or job).
    """
    if job is not None and metrics is None:
        msg = "--job needs --metrics FILE, a file that the job wrote"
        raise typer.BadParameter(msg)
    name, at = _split(model, number)
    values = read_metrics(metrics, metric or [])
    origin = source or (str(metrics) if metrics else "command line")
    evidence = evidence_of(metrics, metric or [], job)
    args = {"model": name, "number": at, "metrics": values, "source": origin, "evidence": evidence}
    result = command(find_place(project), "model-evaluate", args)
    if as_json:
        print_json(result)
        return
    shown = ", ".join(f"{key} {value:.4g}" for key, value in sorted(result["metrics"].items()))
    console().print(f"[bold]{escape(result['model'])}@v{result['number']}[/] evaluated: {escape(shown)}")
    colour = "yellow" if result.get("typed") else "green"
    console().print(f"  [{colour}]{escape(str(result.get('evidence')))}[/]")


def release(
    model: Annotated[str, typer.Argument(help="NAME or NAME@v3.")],
    *,
    channel: Annotated[str, typer.Option("--channel", "-c", help="candidate, canary, production or retired.")],
    number: Annotated[int | None, typer.Option(help="Version number; default: the latest.")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="YAML file of rules that its metrics must meet, beside those that are kept.")
    ] = None,
    expect: Annotated[str | None, typer.Option(help="Only if the channel names this version now (v3, none).")] = None,
    force: Annotated[str | None, typer.Option(help="Release without evaluation or against the policy; why.")] = None,
    rollback: Annotated[bool, typer.Option("--rollback", help="Go back to what the channel named before.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why it is rolled back.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Let a channel name a model version, or roll it back. Needs an evaluation of exactly that artefact."""
    if rollback and not reason:
        msg = "--rollback needs --reason"
        raise typer.BadParameter(msg)
    name, at = _split(model, number)
    args: dict[str, Any] = {"model": name, "channel": channel, "number": at}
    args |= {"rollback": True, "reason": reason} if rollback else {"forced_reason": force}
    args |= {"policy": None if policy is None else read_policy(policy)}
    result = command(find_place(project), "model-release", args, keep=_expected(expect))
    if as_json:
        print_json(result)
        return
    before = f" (before: v{result['previous']})" if result.get("previous") else ""
    out = console()
    out.print(f"[bold]{escape(name)}@{escape(channel)}[/] names v{result['number']}{before}")
    if result.get("evidence"):
        colour = "yellow" if result["typed"] else "green"
        out.print(f"  metrics: [{colour}]{escape(result['evidence'])}[/]")
    for one in result.get("gate") or ():
        mark = "[green]✓[/]" if one["passed"] else "[red]✗[/]"
        out.print(f"  {mark} {escape(one['metric'])} {escape(one['rule'])}: {escape(one['message'])}")


def policy(
    model: Annotated[str | None, typer.Argument(help="NAME of a model; default: every model of the project.")] = None,
    *,
    channel: Annotated[
        str | None, typer.Option("--channel", "-c", help="candidate, canary or production; to set or remove one.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--set", help="YAML file of rules.", metavar="FILE")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Ask for nothing any more.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why; kept with who did it.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what channels ask of a release, or set it. Every later release must meet it, without --policy."""
    place = find_place(project)
    if file is not None or remove:
        if channel is None or not reason or (file is not None and remove):
            msg = "to change a policy write --channel, --reason and one of --set FILE and --remove"
            raise typer.BadParameter(msg)
        args: dict[str, Any] = {"channel": channel, "reason": reason}
        args |= {"remove": True} if file is None else {"policy": read_policy(file)}
        command(place, "model-policy", args, keep={} if model is None else {"model": model})
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = place.ask("registry", "policies", {"after": after} if after else {})
        found += [
            one for one in page["policies"] if model in {None, one["model"]} and channel in {None, one["channel"]}
        ]
        after = page["after"]
    if as_json:
        print_json({"project": place.project, "policies": found})
        return
    table = plain_table("model", "channel", "rules", "by", "reason")
    for one in found:
        asked = [f"evidence from a {one['evidence']}"] if one.get("evidence") else []
        rules = "; ".join([*asked, *(f"{rule['metric']} {rule['words']}" for rule in one["rules"])]) or "none"
        cells = (one["model"] or "every model", one["channel"], rules, one["by"], one["reason"])
        table.add_row(*(escape(cell) for cell in cells))
    console().print(
        table if found else "no channel asks for anything; forebay model policy --channel production --set FILE"
    )


def list_models(project: Project = None, as_json: AsJson = False) -> None:
    """List the models of a project and where their channels point."""
    place = find_place(project)
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = place.ask("registry", "models", {"after": after} if after else {})
        found += page["models"]
        after = page["after"]
    if as_json:
        print_json({"project": place.project, "models": found})
        return
    table = plain_table("model", "latest", "job", "step", "channels")
    for one in found:
        channels = ", ".join(f"{name}→v{number}" for name, number in one["channels"].items()) or "-"
        cells = (one["model"], f"v{one['latest']}", str(one["job"]), str(one["step"]), channels)
        table.add_row(*(escape(cell) for cell in cells))
    console().print(
        table if found else f"project {place.project} has no model yet; forebay model register NAME --job JOB"
    )


def _expected(expect: str | None) -> dict[str, Any]:
    """`--expect` as the registry's compare-and-set: a number, or null for a channel that names nothing."""
    from forebay.contracts.identifiers import version_number  # noqa: PLC0415

    if expect is None:
        return {}
    number = None if expect == "none" else version_number(expect)
    if number is None and expect != "none":
        msg = f"--expect {expect!r}: write v3, or none"
        raise typer.BadParameter(msg)
    return {"previous": number}


def command(
    place: Place, question: str, args: Mapping[str, Any], *, keep: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Ask; what passes in a moment (a checkpoint being verified) is waited for. Raises `Refused`."""
    from forebay.runtime.errors import Refused  # noqa: PLC0415 help must not pay for it

    given = {name: value for name, value in args.items() if value is not None} | dict(keep or {})
    end = time.monotonic() + _PENDING_FOR_S
    while True:
        try:
            found = dict(place.ask("registry", question, given, request_id=uuid.uuid4().hex))
            if not found.get("pending"):
                return found
            # The registry reads every byte of the version first; that takes as long as it takes.
            given["check"] = found["check"]
            end = time.monotonic() + _PENDING_FOR_S
        except Refused as refused:
            if refused.code not in _PENDING or time.monotonic() > end:
                raise
        time.sleep(0.5)


def _split(model: str, number: int | None) -> tuple[str, int | None]:
    """`reach-policy@v3` -> name and 3. A channel stays part of the name: the registry looks it up."""
    from forebay.contracts.identifiers import version_number  # noqa: PLC0415

    name, at, selector = model.partition("@")
    found = version_number(selector) if at else None
    if found is None:
        return model, number
    if number is not None and number != found:
        msg = f"{model} and --number {number} name two versions"
        raise typer.BadParameter(msg)
    return name, found
