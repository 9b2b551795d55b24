"""`forebay cache …`: what is warm, who needs it, why it is as it is, and how to make room."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, ago, coloured, console, plain_table, print_json, seconds, size
from forebay.cli.place import Place, find_place, person, run_async
from forebay.cli.warming import WARM_EXAMPLE, warm

CACHE = "cache"
_ID = 12
_LOOK_EVERY_S = 0.2
_EVICT_WITHIN_S = 60.0
_SHOWN_COLUMNS = 3
Plan = Annotated[str, typer.Argument(help="A plan's id, or the beginning of it (see: forebay cache list).")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="See what is warm and why, evict, set the project's policy.", no_args_is_help=True)
    group.command("list", epilog="Example: forebay cache list")(list_plans)
    group.command("show", epilog="Example: forebay cache show 64879f7d6b96")(show)
    group.command("why", epilog="Example: forebay cache why 64879f7d6b96")(why)
    group.command("evict", epilog="Example: forebay cache evict --dataset pick-place@v3")(evict)
    group.command("policy", epilog="Example: forebay cache policy --set policy.yaml")(policy)
    app.add_typer(group, name="cache")
    app.command("warm", epilog=WARM_EXAMPLE)(warm)


def list_plans(
    *,
    project: Project = None,
    everything: Annotated[bool, typer.Option("--all", help="Plans too of which nothing is cached.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the plans of a project: size, warmth, who leases them, when they go; and how much room there is."""
    place = find_place(project)
    found: list[dict[str, Any]] = []
    after: str | None = ""
    answer: dict[str, Any] = {}
    while after is not None:
        answer = place.ask(CACHE, "list", {"after": after, "all": everything})
        found += answer["plans"]
        after = answer["next"]
    warnings = _warnings(place, answer["room"])
    if as_json:
        requests = answer["open_requests"]
        print_json(
            {
                "project": place.project,
                "plans": found,
                "room": answer["room"],
                "requests": requests,
                "warnings": warnings,
            }
        )
        return
    table = plain_table(
        "plan", "of", "columns", "state", "verified", "size", "leased by", "age", "last used", "goes in"
    )
    for one in found:
        table.add_row(
            escape(one["id"][:_ID]), escape(_label(one)), escape(_columns(one["columns"])), coloured(one["state"]),
            size(one["verified_bytes"]), size(one["total_bytes"]), escape(_holders(one)), ago(one["since"]),
            ago(one["used_at"]), _left(one),
        )  # fmt: skip
    out = console()
    nothing = f"nothing is warm in project {place.project}; forebay warm NAME@TAG --columns …, or submit a job"
    out.print(table if found else nothing)
    out.print(room_line(answer["room"]))
    for text in warnings:
        out.print(f"[yellow]warning:[/] {escape(text)}")


def _warnings(place: Place, room: Mapping[str, Any]) -> list[str]:
    """What hurts or will: as the cache sees it now, else as it is on record."""
    now = place.ask(CACHE, "health", {}).get("warnings")
    return [str(one) for one in (room["warnings"] if now is None else now)]


def room_line(room: Mapping[str, Any]) -> str:
    """The budget in one line."""
    whole = "no budget is set" if room["budget_bytes"] is None else f"of {size(room['budget_bytes'])}"
    line = f"held {size(room['held_bytes'])} {whole}; leased {size(room['leased_bytes'])}, could go {size(room['evictable_bytes'])}"
    if room["project_budget_bytes"] is not None:
        line += f"; this project holds {size(room['project_held_bytes'])} of {size(room['project_budget_bytes'])}"
    pool = room["pool"]
    if pool is not None and pool["free_bytes"] is not None:
        line += f"; {size(pool['free_bytes'])} free on the disk"
    return line


def _label(one: Mapping[str, Any]) -> str:
    return f"{one['name']}@v{one['number']}"


def _columns(columns: list[str]) -> str:
    more = f" +{len(columns) - _SHOWN_COLUMNS}" if len(columns) > _SHOWN_COLUMNS else ""
    return ", ".join(columns[:_SHOWN_COLUMNS]) + more or "all"


def _holders(one: Mapping[str, Any]) -> str:
    return ", ".join([*one["jobs"], *one["wishes"]]) or "-"


def _left(one: Mapping[str, Any]) -> str:
    if one["jobs"] or one["wishes"]:
        return "leased"
    left = one["ttl_left_s"]
    if left is None:
        return "-"
    if one["state"] == "expired" or left == 0:
        return "expired"
    days, rest = divmod(int(left), 86_400)
    return f"{days} d {rest // 3600} h" if days else seconds(left)


def show(plan: Plan, project: Project = None, as_json: AsJson = False) -> None:
    """Show one plan: bytes, where it is warm, who wants it, where its list of ranges lies."""
    place = find_place(project)
    found = place.ask(CACHE, "plan", {"plan": plan})
    found["on"] = place.ask(CACHE, "nodes", {"plan": found["id"]})["nodes"]
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(f"[bold]{escape(found['id'])}[/] {coloured(found['state'])} {escape(_label(found))}")
    rows = {
        "columns": ", ".join(found["columns"]) or "all",
        "episodes": "all" if not found["episodes"] else f"{found['episodes'][0]}:{found['episodes'][1]}",
        "planned": f"{size(found['total_bytes'])} of {size(found['whole_bytes'])} in {found['files']} files",
        "room": size(found["aligned_bytes"]),
        "verified": size(found["verified_bytes"]),
        "from origin": size(found["origin_bytes"]),
        "was there": size(found["reused_bytes"]),
        "leased by": _holders(found),
        "place": found["place"] or found["root"],
        "proof": found["proof"] or "-",
        "ranges": found["ranges_uri"],
    }
    for name, value in rows.items():
        out.print(f"  {name:<12} {escape(str(value))}")
    for node, one in found["on"].items():
        text = f": {escape(one['message'])}" if one["message"] else ""
        out.print(
            f"  node {escape(f'{node:<7}')} {coloured(one['state'])} {size(one['verified_bytes'])} verified{text}"
        )


def why(plan: Plan, project: Project = None, as_json: AsJson = False) -> None:
    """Say why a plan is as it is: what it waits for, what is missing, who keeps it, when it goes."""
    found = find_place(project).ask(CACHE, "why", {"plan": plan})
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(
        f"[bold]{escape(_label(found))}[/] ({escape(_columns(found['columns']))}), plan {escape(found['id'][:_ID])}"
    )
    for sentence in found["sentences"]:
        out.print(f"  {escape(sentence)}")


def evict(
    plan: Annotated[str | None, typer.Argument(help="A plan's id, or the beginning of it.")] = None,
    *,
    dataset: Annotated[str | None, typer.Option(help="Every plan of NAME or NAME@v3.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="What nobody used for its time to live.")] = False,
    unused: Annotated[bool, typer.Option("--unused", help="Everything that no job leases.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Take plans out of the cache. What a job leases is never evicted; the data itself stays where it is."""
    named = {"plan": plan, "dataset": dataset, "expired": expired or None, "unused": unused or None}
    given = {name: value for name, value in named.items() if value is not None}
    if len(given) != 1:
        msg = "name exactly one of PLAN, --dataset, --expired and --unused"
        raise typer.BadParameter(msg)
    place = find_place(project)
    result = place.ask(CACHE, "evict", given | {"reason": reason}, request_id=uuid.uuid4().hex)
    gone = run_async(_gone(place, [str(one["plan"]) for one in result["evicting"]]))
    if as_json:
        print_json(result | {"evicted": gone})
        return
    out = console()
    for one in gone:
        plan_id = one["id"][:_ID]
        if one["state"] == "evicted":
            text = f"freed {size(one['freed_bytes'])} of {_label(one)} ({plan_id})"
        else:
            text = f"{_label(one)} ({plan_id}) is {one['state']}; see: forebay cache why {plan_id}"
        out.print(escape(text + (f": {one['message']}" if one["message"] else "")))
    if result["kept"]:
        out.print(f"{result['kept']} more stay, because jobs lease them")


async def _gone(place: Place, plans: list[str]) -> list[dict[str, Any]]:
    """The plans once they are evicted; those that take longer as they are."""
    until = asyncio.get_running_loop().time() + _EVICT_WITHIN_S
    found: list[dict[str, Any]] = []
    async with place.client() as client:
        for plan in plans:
            while True:
                one = dict((await client.ask(CACHE, place.project, "plan", {"plan": plan}, by=person())).result)
                if one["state"] == "evicted" or asyncio.get_running_loop().time() > until:
                    break
                await asyncio.sleep(_LOOK_EVERY_S)
            found.append(one)
    return found


def policy(
    *,
    file: Annotated[Path | None, typer.Option("--set", help="YAML file with the new policy.", metavar="FILE")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show the project's cache policy, or replace it.

    The file has up to three keys: `budget` ("500 GB"), `ttl_days` (8; without it, from use so far) and `warm`, a list of
    {when: tag, tag: train-ready, datasets: ["pick-*"], columns: [action]}, or {when: commit, …} for every upload.
    """
    place = find_place(project)
    if file is not None:
        args = {"policy": read_policy(file)}
        place.ask(CACHE, "policy-set", args, request_id=uuid.uuid4().hex)
    found = place.ask(CACHE, "policy", {})
    if as_json:
        print_json(found)
        return
    known, out = found["policy"], console()
    budget = "no budget of its own" if known is None or known["budget_bytes"] is None else size(known["budget_bytes"])
    source = "set" if known is not None and known["ttl_days"] is not None else f"from {found['uses']} uses on record"
    out.print(f"project {place.project}: {budget}; unused data stays {found['ttl_days']} days ({source})")
    for rule in (known or {}).get("warm", ()):
        when = f"{escape(rule['tag'])} is put on a version" if rule["on"] == "tag" else "a version is committed"
        what = ", ".join(rule["columns"]) or "every column"
        out.print(f"  when {when} of {escape(', '.join(rule['datasets']))}: warm {escape(what)}")
    if file is not None:
        out.print(f"[dim]set by {escape(person())}[/]")


def read_policy(file: Path) -> dict[str, Any]:
    """The policy in a YAML file; sizes may be written as people write them."""
    import yaml  # noqa: PLC0415 only here

    from forebay.cli.amounts import parse_size  # noqa: PLC0415

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}"
        raise typer.BadParameter(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        msg = f"{file} is no YAML: {error}"
        raise typer.BadParameter(msg) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        msg = f"{file} holds no policy: expected budget, ttl_days, warm"
        raise typer.BadParameter(msg)
    policy = {str(name): value for name, value in found.items()}
    if (budget := policy.pop("budget", None)) is not None:
        policy["budget_bytes"] = parse_size(str(budget))
    if isinstance(rules := policy.get("warm"), list):
        policy["warm"] = [_rule(one) for one in rules]
    return policy


def _rule(written: Any) -> Any:
    """A rule as the cache knows it. YAML reads a bare `on` as a yes, so the file says `when`."""
    if not isinstance(written, dict):
        return written
    return {"on" if name in {"when", True} else str(name): value for name, value in written.items()}
