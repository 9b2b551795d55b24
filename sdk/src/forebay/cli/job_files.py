"""`forebay submit --check`, `--render` and `--schema`: a job file looked at without any server.

What a job means to a cluster is the scheduler bridge's knowledge; it answers through
the entry point group `forebay.submit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from forebay.cli.output import console, errors, print_document, print_json
from forebay.cli.place import person

GROUP = "forebay.submit"
_PROJECT = "default"
"""Stands for the project when neither the file nor an option names one."""


def show_schema() -> None:
    """Print the JSON schema of a job file."""
    from forebay.contracts.job_file import job_file_schema  # noqa: PLC0415

    print_json(job_file_schema(), indent=2)


def offline_answer(
    spec: Mapping[str, Any], *, render: bool, project: str | None, project_file: Path | None, as_json: bool
) -> None:
    """Check a job file, or show what becomes of it. Raises `typer.Exit` with 1 for a problem."""
    bridge = _bridge()
    asked: dict[str, Any] = {
        "project": project or spec.get("project") or _PROJECT,
        "user": person(),
        "project_file": project_file,
    }
    if render:
        image = f"forebay:{version('forebay')}"
        found = bridge.manifests(spec, **asked, agent_image=image, pins={})
    else:
        found = bridge.check(spec, **asked)
    if as_json:
        print_json(found)
    else:
        _show(found, render=render)
    if not found["ok"]:
        raise typer.Exit(1)


def _bridge() -> Any:
    points = list(entry_points(group=GROUP))
    if not points:
        msg = "the package forebay-scheduler-bridge is not installed, and it knows how jobs are checked"
        raise typer.BadParameter(msg)
    return points[0].load()


def _show(found: Mapping[str, Any], *, render: bool) -> None:
    """Objects on standard output, everything about them beside it."""
    err = errors()
    for problem in found["problems"]:
        first, *drawn = problem["message"].splitlines()
        err.print(f"[bold red]✗[/] {escape(problem['field'])}: {escape(first)}", highlight=False)
        for line in drawn:
            err.print(f"    {escape(line)}", highlight=False)
    for warning in found["warnings"]:
        err.print(f"[yellow]![/] {escape(warning)}", highlight=False)
    if render:
        for item in found["objects"]:
            print_document(_yaml(item))
    elif found["ok"]:
        console().print("[green]✓[/] nothing is wrong with it")


def _yaml(item: Mapping[str, Any]) -> str:
    """One document; what stands in two places is written twice, as people expect of a manifest."""
    import yaml  # noqa: PLC0415 only here

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 the library's signature
            return True

    return "---\n" + yaml.dump(item, Dumper=Plain, sort_keys=False, allow_unicode=False, width=120)
