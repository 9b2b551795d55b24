"""Job files, project files and mounts without any server: what `forebay submit --check` and `--render` answer.

Loaded by the command line through the entry point group `forebay.submit`; also adds
`forebay mounts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.contracts.identifiers import parse_logical_name
from forebay.contracts.v1.datasets import PinnedInput
from forebay.contracts.v1.jobs import JobSpec
from forebay.runtime.terminal import print_json, print_line
from forebay.scheduler_bridge.domain.cluster_review import review
from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.local_limits import local_refusals
from forebay.scheduler_bridge.domain.manifest import Site, Submission, render
from forebay.scheduler_bridge.domain.mount_rules import PlacedMount, place_mounts
from forebay.scheduler_bridge.domain.mounts import MountType, parse_mounts, point_at
from forebay.scheduler_bridge.domain.pod_overlay import DANGEROUS
from forebay.scheduler_bridge.domain.pod_parts import AgentImage
from forebay.scheduler_bridge.domain.project import ProjectFile, parse_project, project_schema
from forebay.scheduler_bridge.domain.specification import parse_spec

Json = dict[str, Any]
_UNDECIDED = "not decided without a project file (--project-file): which of this the project allows"
_PREVIEW_DIGEST = "0" * 64


def check(data: Any, *, project: str, user: str, project_file: Path | None = None) -> Json:
    """Every problem and warning of a job file. With a project file as a cluster sees it, else in itself."""
    spec = parse_spec(data, project=project)
    if not isinstance(spec, JobSpec):
        return _answer(spec, ())
    if project_file is None:
        on_cluster = bool(spec.image or spec.mounts or spec.pod or (spec.nodes or 1) > 1)
        if not on_cluster:
            return _answer(tuple(local_refusals(spec)), ())
        found = review(spec, user=user, project=permissive(spec))
        return _answer(found.problems, (*found.warnings, _UNDECIDED))
    site = _project(project_file)
    if not isinstance(site, ProjectFile):
        return _answer(site, ())
    found = review(spec, user=user, project=site)
    return _answer(found.problems, found.warnings)


def manifests(
    data: Any, *, project: str, user: str, agent_image: str, project_file: Path | None = None, pins: Mapping[str, str]
) -> Json:
    """The objects of the job's first run, as `{"ok", "problems", "warnings", "objects"}`.

    `pins` says where a dataset lies in the pool, by name; without it the pod carries
    the mark of a job whose gate is shut.
    """
    checked = check(data, project=project, user=user, project_file=project_file)
    if not checked["ok"]:
        return {**checked, "objects": []}
    spec = parse_spec(data, project=project)
    if not isinstance(spec, JobSpec):  # was checked
        return {**checked, "objects": []}
    file = _project(project_file) if project_file else permissive(spec)
    if not isinstance(file, ProjectFile):
        return {**checked, "objects": []}
    if project_file is None and (found := review(spec, user=user, project=file)).problems:
        return {**_answer(found.problems, found.warnings), "objects": []}
    site = Site(project=file, agent=AgentImage(image=agent_image, nats_url="nats://forebay-nats:4222"))
    submission = Submission(spec=spec, job=f"{spec.name}-1", run=1, user=user)
    return {**checked, "objects": render(submission, _pinned(spec, pins), site)}


def permissive(spec: JobSpec) -> ProjectFile:
    """A project that allows what this job asks for, for looking at a job where no project file is at hand."""
    mounts = parse_mounts(spec.mounts or "").mounts
    hosts = [item.source for item in mounts if item.type is MountType.HOSTPATH and item.source != "/"]
    return ProjectFile.model_validate(
        {
            "project": spec.project,
            "namespace": "default",
            "queues": [] if spec.queue == "default" else [spec.queue],
            "priority_classes": [spec.priority_class] if spec.priority_class else [],
            "gpu_types": {spec.resources.gpu_type: {}} if spec.resources.gpu_type else {},
            "data": {"pvc": "forebay-pool", "root": "/"},
            "mounts": {
                "pvcs": ["*"],
                "configmaps": ["*"],
                "secrets": ["*"],
                "host_paths": hosts,
                "nfs": [item.source for item in mounts if item.type is MountType.NFS],
                "max_memory": "1Pi",
            },
            "pod": {
                "allow": list(DANGEROUS),
                "secrets": ["*"],
                "configmaps": ["*"],
                "image_pull_secrets": ["*"],
                "tolerations": ["*"],
                "labels": ["*"],
                "annotations": ["*"],
                "runtime_classes": ["*"],
                "schedulers": ["*"],
                "service_accounts": ["*"],
            },
        }
    )


def _pinned(spec: JobSpec, pins: Mapping[str, str]) -> list[PinnedInput]:
    found = []
    for item in spec.datasets:
        name = parse_logical_name(item.name, kind="dataset").name
        if name in pins:
            found.append(
                PinnedInput(
                    kind="dataset", logical=item.name, name=name, number=1, root=pins[name],
                    manifest_sha256=_PREVIEW_DIGEST,
                )
            )  # fmt: skip
    return found


def _answer(problems: tuple[Problem, ...], warnings: tuple[str, ...]) -> Json:
    return {"ok": not problems, "problems": [item.to_json() for item in problems], "warnings": list(warnings)}


def _project(file: Path) -> ProjectFile | tuple[Problem, ...]:
    """Read a project file. Raises `typer.BadParameter` when it is no YAML."""
    import yaml  # noqa: PLC0415 only here

    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}"
        raise typer.BadParameter(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        msg = f"{file} is no YAML: {error}"
        raise typer.BadParameter(msg) from error
    found = parse_project(data)
    if isinstance(found, ProjectFile):
        return found
    return tuple(Problem(field=f"{file.name}: {item.field}", message=item.message) for item in found)


def register(app: typer.Typer) -> None:
    """Add `forebay mounts`."""
    mounts = typer.Typer(no_args_is_help=True, help="Check the `mounts` of a job, offline.")
    example = "Example: forebay mounts check 'team(pvc):/work, 4G(memory):/dev/shm' --user alice"
    mounts.command("check", epilog=example)(check_mounts)
    mounts.command("schema", epilog="Example: forebay mounts schema > project.schema.json")(show_schema)
    app.add_typer(mounts, name="mounts")


def check_mounts(
    text: Annotated[str, typer.Argument(help="source(type):dir[:ro], comma separated.", metavar="MOUNTS")],
    *,
    user: Annotated[str, typer.Option(help="Whose folders; at submit it is who is logged in.")] = "someone",
    project_file: Annotated[Path | None, typer.Option(help="The project file that says what is allowed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Say what is mounted where, or what is wrong and at which character. Exit code 0, or 1 for a problem."""
    project = _project(project_file) if project_file else None
    if project is not None and not isinstance(project, ProjectFile):
        lines = "; ".join(f"{item.field}: {item.message}" for item in project)
        raise typer.BadParameter(lines)
    found = place_mounts(text, user=user, project=project)
    if as_json:
        problems = [
            {
                "message": item.message,
                "start": item.span.start if item.span else None,
                "stop": item.span.stop if item.span else None,
            }
            for item in found.problems
        ]
        shown = [_shown(item) for item in found.mounts]
        print_json({"ok": not problems, "mounts": shown, "problems": problems})
    else:
        for item in found.mounts:
            one = _shown(item)
            mode = "read-only" if one["read_only"] else "read-write"
            own = f", folder {one['sub_path']}" if one["sub_path"] else ""
            by = ", by the project" if one["by_default"] else ""
            print_line(f"{one['target']}  {one['type']} {one['source']}{own} ({mode}{by})")
        for problem in found.problems:
            where = f"character {problem.span.start + 1}: " if problem.span else ""
            print_line(f"✗ {where}{problem.message}", stderr=True)
            if problem.span:
                for line in point_at(text, problem).split("\n"):
                    print_line(f"    {line}", stderr=True)
    if found.problems:
        raise typer.Exit(1)


def _shown(item: PlacedMount) -> Json:
    return {
        "type": item.mount.type.value,
        "source": item.mount.source,
        "target": item.target,
        "sub_path": item.sub_path,
        "read_only": item.read_only,
        "by_default": item.by_default,
    }


def show_schema() -> None:
    """Print the JSON schema of a project file, for editors."""
    print_json(project_schema(), indent=2)
