"""`forebay dataset …`: list, show, tag, untag; what else there is to do with versions is in modules of its own."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.dataset_diff import DIFF_EXAMPLE, diff
from forebay.cli.dataset_versions import (
    CHECK_EXAMPLE,
    CLEANUP_EXAMPLE,
    COMPACT_EXAMPLE,
    DERIVE_EXAMPLE,
    check,
    checked,
    cleanup,
    compact,
    derive,
)
from forebay.cli.output import AsJson, Project, coloured, console, day, plain_table, print_json, size
from forebay.cli.place import find_place, run_async
from forebay.cli.placing import EXAMPLE as PLACE_EXAMPLE
from forebay.cli.placing import place_dataset
from forebay.cli.registering import EXAMPLE, register_dataset
from forebay.runtime.terminal import Terminal

_SHOWN = 15


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List, show, tag, register, derive, compare and clean up datasets.", no_args_is_help=True)
    group.command("list", epilog="Example: forebay dataset list")(list_datasets)
    group.command("show", epilog="Example: forebay dataset show pick-place")(show)
    group.command("episodes", epilog="Example: forebay dataset episodes pick-place@v3")(episodes)
    group.command("tag", epilog="Example: forebay dataset tag pick-place golden v3 --reason 'checked by hand'")(tag)
    group.command("untag", epilog="Example: forebay dataset untag pick-place golden --reason 'calibration was wrong'")(
        untag
    )
    group.command("register", epilog=EXAMPLE)(register_dataset)
    group.command("place", epilog=PLACE_EXAMPLE)(place_dataset)
    group.command("derive", epilog=DERIVE_EXAMPLE)(derive)
    group.command("diff", epilog=DIFF_EXAMPLE)(diff)
    group.command("compact", epilog=COMPACT_EXAMPLE)(compact)
    group.command("check", epilog=CHECK_EXAMPLE)(check)
    group.command("cleanup", epilog=CLEANUP_EXAMPLE)(cleanup)
    app.add_typer(group, name="dataset")


def list_datasets(project: Project = None, as_json: AsJson = False) -> None:
    """List the datasets of a project."""
    place = find_place(project)
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = place.ask("ingest", "datasets", {"after": after})
        found += page["datasets"]
        after = page["next"]
    if as_json:
        print_json({"project": place.project, "datasets": found})
        return
    table = plain_table("dataset", "latest", "tags", "episodes", "frames", "size", "last checked")
    for one in found:
        tags = ", ".join(f"{name}→v{number}" for name, number in one["tags"].items()) or "-"
        latest = f"v{one['latest']}" if one["latest"] else "-"
        table.add_row(
            escape(one["dataset"]),
            latest,
            escape(tags),
            str(one["episodes"]),
            f"{one['frames']:,}",
            size(one["bytes"]),
            "[red]damaged[/]" if one["broken"] else day(one["checked_at"]),
        )
    console().print(table if found else f"project {place.project} has no dataset yet; forebay upload FOLDER")


def _usable(version: dict[str, Any]) -> str:
    """Whether jobs may use a version, and if not, why."""
    if version["removed"]:
        return "removed"
    if version["withdrawn"]:
        return f"[red]no: {len(version['withdrawn'])} withdrawn[/]"
    if version["broken"]:
        return "[red]no: damaged[/]"
    return "yes" if version["accepted"] else "no"


def show(
    dataset: Annotated[str, typer.Argument(help="The dataset's name.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show versions, tags and uploads of a dataset, and the episodes that were not accepted."""
    place = find_place(project)
    found = place.ask("ingest", "dataset", {"dataset": dataset})
    bad: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = place.ask("ingest", "episodes", {"dataset": dataset, "after": after, "limit": 1000})
        bad += [one for one in page["episodes"] if one["state"] != "ACCEPTED"]
        after = page["next"]
    if as_json:
        print_json({**found, "not_accepted": bad})
        return
    out = console()
    out.print(f"[bold]{escape(found['dataset'])}[/]{'' if found['tagged'] else '  no tags'}")
    for one in found["tagged"]:
        why = f": {escape(one['reason'])}" if one["reason"] else ""
        out.print(f"  {escape(one['tag'])} → v{one['number']}  by {escape(one['by'])}, {day(one['at'])}{why}")
    _show_versions(found["versions"])
    for one in found["versions"]:
        _tell_kept(out, one)
    for one in found["uploads"]:
        out.print(
            f"{escape(one['upload'])}  {escape(one['state'])}: {one['accepted']} accepted, {one['held']} held,"
            f" {one['rejected']} rejected of {one['expected']}  from {escape(one['source'])}"
        )
    for one in found["registrations"]:
        made = f" → v{one['version']}" if one["version"] else f": {escape(one['message'])}" if one["message"] else ""
        out.print(f"{escape(one['registration'])}  {coloured(one['state'])}  stays at {escape(one['uri'])}{made}")
    _show_bad(bad)


def episodes(
    dataset: Annotated[str, typer.Argument(help="A version: reach@v3, reach@golden; reach: the newest.")],
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many to list.")] = 100,
    after: Annotated[int, typer.Option(min=-1, help="List those after this number.")] = -1,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the episodes of a version with both of their names: number in the version, and stable id."""
    place = find_place(project)
    found: list[dict[str, Any]] = []
    more: int | None = after
    while more is not None and len(found) < limit:
        args = {"dataset": dataset, "after": more, "limit": min(1000, limit - len(found))}
        page = place.ask("ingest", "members", args)
        found, more = [*found, *page["episodes"]], page["next"]
    if as_json:
        print_json({**page, "episodes": found})
        return
    out = console()
    name = f"{escape(page['dataset'])}@v{page['number']}"
    if page["registered"]:
        out.print(f"{name} was registered where it lies; its episodes: forebay lineage {name}")
        return
    table = plain_table("name", "id", "frames", "state", "from", "task")
    for one in found:
        source = f"{escape(one['upload'])} episode {one['source_index']}"
        tasks = escape("; ".join(one["tasks"]))
        table.add_row(
            escape(one["name"]), escape(one["episode"]), str(one["length"]), coloured(one["state"]), source, tasks
        )
    out.print(table)
    if more is not None:
        out.print(f"… {page['total'] - 1 - more} more: --after {more}")


def _show_versions(versions: list[dict[str, Any]]) -> None:
    out = console()
    table = plain_table("version", "episodes", "frames", "size", "accepted", "plan", "manifest", "last checked")
    for one in versions:
        table.add_row(
            f"v{one['number']}", str(one["episodes"]), f"{one['frames']:,}", size(one["bytes"]),
            _usable(one), escape(one["access_plan"]), escape(one["manifest_sha256"][:12]), day(one["checked_at"]),
        )  # fmt: skip
    out.print(table)
    for one in versions:
        if one["withheld"] and not one["accepted"] and not one["removed"]:
            out.print(f"  v{one['number']} is not train-ready: {escape(one['withheld'])}")


def _show_bad(bad: list[dict[str, Any]]) -> None:
    out = console()
    for one in bad[:_SHOWN]:
        message = escape(one["message"] or "")
        rules = escape(", ".join(one["rules"]))
        name = f"episode {one['source_index']} of {escape(one['upload'])}"
        by = f" by {rules}" if rules else ""
        out.print(f"  {escape(one['episode'])} ({name}) {coloured(one['state'])}{by}: {message}")
    if len(bad) > _SHOWN:
        out.print(f"  … and {len(bad) - _SHOWN} more; --json prints all of them")


def _tell_kept(out: Terminal, version: dict[str, Any]) -> None:
    """What a version carries along, and what it does not have as its sources had it."""
    carried = version.get("carried", [])
    if carried:
        more = f" and {len(carried) - _SHOWN} more" if len(carried) > _SHOWN else ""
        out.print(f"  v{version['number']} carries along: {escape(', '.join(carried[:_SHOWN]))}{more}")
    for note in version.get("notes", []):
        out.print(f"  v{version['number']}: {escape(note)}")


_CHECK_WITHIN_S = 60.0
_TagName = Annotated[str, typer.Argument(help="The tag, for example train-ready.")]
_Reason = Annotated[str | None, typer.Option(help="Why, for the record.")]


def tag(
    dataset: Annotated[str, typer.Argument(help="The dataset's name.")],
    tag: _TagName,
    version: Annotated[str, typer.Argument(help="The version that it shall point at, for example v3.")],
    *,
    expect: Annotated[
        str | None,
        typer.Option(help="Move the tag: the version that it points at now, for example v2. none: create it."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Move the tag wherever it points now, or create it; needs --reason.")
    ] = False,
    reason: _Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Create a tag for a version, or move one with --expect. Jobs that pinned it before keep their version.

    The version's files are opened first. A tag that exists already, or that points
    elsewhere than expected, stays as it is; the error names who set it. Exit 1: conflict.
    """
    from forebay.runtime.errors import Refused  # noqa: PLC0415 help must not pay for it

    number, expected = _number(version), _expected(expect)
    if force and (expected is not None or not reason):
        msg = "--force needs --reason, and no --expect: it moves the tag wherever it points now"
        raise typer.BadParameter(msg)
    place = find_place(project)
    found = run_async(checked(place, f"{dataset}@v{number}", _CHECK_WITHIN_S))
    if not found["whole"]:
        why = found["message"] or f"v{number} was not opened within {_CHECK_WITHIN_S:.0f} s"
        raise Refused("version-unusable", f"{why}; the tag was not changed", "see: forebay dataset show")
    args = {"dataset": dataset, "tag": tag, "number": number, "reason": reason, "check": found["check"]}
    if force or expected:
        result = place.ask("ingest", "move-tag", {**args, "force": force, "expect": expected})
    else:
        result = place.ask("ingest", "tag", args)
    if as_json:
        print_json(result)
        return
    before = f" (before: v{result['previous']})" if result["previous"] else ""
    verb = "points at" if result["changed"] else "already points at"
    console().print(f"{escape(result['dataset'])}@{escape(tag)} {verb} v{number}{before if result['changed'] else ''}")


def untag(
    dataset: Annotated[str, typer.Argument(help="The dataset's name.")],
    tag: _TagName,
    *,
    expect: Annotated[
        str | None, typer.Option(help="Only if the tag points at this version now, for example v3.")
    ] = None,
    reason: _Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Delete a tag. Without train-ready its version is not accepted any more, and jobs that wait for it are held."""
    args = {"dataset": dataset, "tag": tag, "reason": reason, "expect": _expected(expect)}
    result = find_place(project).ask("ingest", "untag", args)
    if as_json:
        print_json(result)
    else:
        console().print(f"{escape(dataset)}@{escape(tag)} is deleted (it pointed at v{result['number']})")


def _number(version: str) -> int:
    from forebay.contracts.identifiers import version_number  # noqa: PLC0415 help must not pay for it

    number = version_number(version) or (int(version) if version.isdigit() else None)
    if number is None:
        msg = f"{version!r} is not a version; write for example v3"
        raise typer.BadParameter(msg)
    return number


def _expected(text: str | None) -> int | None:
    if text is None:
        return None
    return 0 if text == "none" else _number(text)
