"""The project file: what the jobs of one project may use of a cluster. Written by operators, as YAML.

Values and their check only; reading the file is an adapter's work. An unknown field is
an error, because a permission that nobody reads protects nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from forebay.contracts.identifiers import Id
from forebay.contracts.quantities import parse_bytes
from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.mounts import is_below, normal_path, parse_mounts
from forebay.scheduler_bridge.domain.pod_forms import LABEL
from forebay.scheduler_bridge.domain.pod_overlay import Dangerous, OverlayRules

_RELATIVE = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")


def _sub_path(path: str) -> str:
    if path and (not _RELATIVE.fullmatch(path) or ".." in path.split("/")):
        msg = f"{path!r} is no relative path; write for example outputs/arm-lab"
        raise ValueError(msg)
    return path


def _host_folder(text: str) -> str:
    path = text.removesuffix(":ro")
    normal = normal_path(path)
    if normal is None:
        msg = f"{path!r} is not absolute or climbs with '..'; write for example /mnt/lab"
        raise ValueError(msg)
    if normal == "/":
        msg = "'/' would open the whole node; name the folder that is meant"
        raise ValueError(msg)
    return normal + text[len(path) :]


def _mounts(text: str) -> str:
    if problems := parse_mounts(text).problems:
        first = problems[0]
        where = f" (character {first.span.start + 1})" if first.span else ""
        msg = f"{first.message}{where}"
        raise ValueError(msg)
    return text


def _label_name(text: str) -> str:
    if text != "*" and not LABEL.fullmatch(text):
        msg = f"{text!r} is no name of a label; write for example nvidia.com/gpu"
        raise ValueError(msg)
    return text


def _amount(text: str) -> str:
    parse_bytes(text)
    return text


ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
Rule = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)(:ro)?$")]
"""A name, or '*' for every name; with ':ro' it may only be mounted read-only."""
LabelName = Annotated[str, AfterValidator(_label_name)]
"""The name of a label, annotation or taint, or '*' for every one."""
SubPath = Annotated[str, AfterValidator(_sub_path)]
HostFolder = Annotated[str, AfterValidator(_host_folder)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Claim(_File):
    """A folder of a PersistentVolumeClaim."""

    pvc: ObjectName
    sub_path: SubPath = ""
    root: str | None = None
    """The claim's own root as the services see it: a path, or `file:///…`. None: under the path of the container."""


class DataPool(Claim):
    """Where dataset versions lie; `root` is how the root of a pinned version begins."""

    root: str = "/"
    kinds: tuple[str, ...] = ()
    """File systems it may be mounted as (`fuse.juicefs`, `nfs4`); empty: any that holds data."""


class MountPermissions(_File):
    """What a job's `mounts` may name. What is not listed is refused."""

    pvcs: tuple[Rule, ...] = ()
    host_paths: tuple[HostFolder, ...] = ()
    """Folders of the node; what lies below is allowed too. With ':ro' only for reading."""
    nfs: tuple[str, ...] = ()
    """`host/path` prefixes, ':ro' as above."""
    configmaps: tuple[Rule, ...] = ()
    secrets: tuple[Rule, ...] = ()
    max_memory: Annotated[str, AfterValidator(_amount)] = "64Gi"
    default: Annotated[str, AfterValidator(_mounts)] = ""
    """Mounts that every job of the project gets."""


class GpuType(_File):
    """How a GPU type is asked for on this cluster."""

    resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = Field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


class PodPermissions(_File):
    """What the overlay `pod:` of a job may say beyond the harmless. Names; '*' allows every name."""

    allow: tuple[Dangerous, ...] = ()
    service_accounts: tuple[Rule, ...] = ()
    secrets: tuple[Rule, ...] = ()
    """Secrets that environment variables may come from."""
    configmaps: tuple[Rule, ...] = ()
    """ConfigMaps that environment variables may come from."""
    image_pull_secrets: tuple[Rule, ...] = ()
    tolerations: tuple[LabelName, ...] = ()
    """Keys of taints; those of the project's GPU resources are always allowed."""
    annotations: tuple[LabelName, ...] = ()
    labels: tuple[LabelName, ...] = ()
    """With a domain; without one a label is the job's own."""
    runtime_classes: tuple[Rule, ...] = ("nvidia",)
    schedulers: tuple[Rule, ...] = ()
    run_as_non_root: bool = False
    """Pods whose image runs as root are not started."""


class PreflightLimits(_File):
    """What the checks before the start ask for."""

    skip: tuple[Literal["gpu", "shm", "space", "data-mode"], ...] = ()
    """Checks that make no sense on this cluster, for example `gpu` where GPUs are only counted."""
    free_bytes: int = Field(default=64 << 20, ge=0)
    max_unsaved_minutes: float = Field(default=60, gt=0)
    """A job that may lose more work than this gets a warning at submit."""


class ProjectFile(_File):
    """One project on one cluster."""

    project: Id
    namespace: ObjectName
    queues: tuple[ObjectName, ...] = ()
    """LocalQueues; the first is taken when a job says `default`. None: Kueue is not used."""
    priority_classes: tuple[ObjectName, ...] = ()
    data: DataPool | None = None
    outputs: Claim | None = None
    checkpoints: Claim | None = None
    """None: below the outputs."""
    mounts: MountPermissions = MountPermissions()
    pod: PodPermissions = PodPermissions()
    gpu_resource: str = "nvidia.com/gpu"
    gpu_types: Mapping[str, GpuType] = Field(default_factory=dict)
    node_lost_seconds: int = Field(default=60, ge=0, le=86400)
    """How long a pod stays bound to a node that does not answer."""
    node_grace_minutes: float = Field(default=10, gt=0)
    """How long a node that does not answer may come back before the advice is to give it up."""
    contradiction_minutes: float = Field(default=5, gt=0)
    """How long objects may contradict each other, or a mount be lost, before the advice is to step in."""
    requeue_rounds: int = Field(default=5, ge=0, le=1000)
    """A job that lost its quota this often before its command ran is held and gives it back; 0: never."""
    preflight: PreflightLimits = PreflightLimits()

    def overlay_rules(self) -> OverlayRules:
        return OverlayRules(
            project=self.project,
            allow=self.pod.allow,
            service_accounts=self.pod.service_accounts,
            secrets=self.pod.secrets,
            configmaps=self.pod.configmaps,
            image_pull_secrets=self.pod.image_pull_secrets,
            tolerations=(
                self.gpu_resource,
                *(kind.resource for kind in self.gpu_types.values()),
                *self.pod.tolerations,
            ),
            annotations=self.pod.annotations,
            labels=self.pod.labels,
            runtime_classes=self.pod.runtime_classes,
            schedulers=self.pod.schedulers,
        )


def parse_project(data: Any) -> ProjectFile | tuple[Problem, ...]:
    """The file, or every problem with it."""
    if not isinstance(data, Mapping):
        return (Problem(field="project file", message="expected a mapping: project, namespace, queues, mounts, …"),)
    try:
        found = ProjectFile.model_validate(data)
    except ValidationError as error:
        return tuple(_problem(item) for item in error.errors(include_url=False))
    if found.data and found.data.pvc in {rule for rule in found.mounts.pvcs if not rule.endswith(":ro")}:
        message = f"{found.data.pvc} holds the datasets: jobs may only read it; write '{found.data.pvc}:ro'"
        return (Problem(field="mounts.pvcs", message=message),)
    return found


def project_schema() -> dict[str, Any]:
    """The JSON schema of a project file."""
    schema = ProjectFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Forebay project file"}


def pool_path(pool: DataPool, root: str) -> str | None:
    """Where a pinned version lies below the claim's root; None: not in this pool."""
    base, path = pool.root.removeprefix("file://"), root.removeprefix("file://")
    normal_base, normal = normal_path(base), normal_path(path)
    if normal_base is None or normal is None or normal == normal_base or not is_below(normal, normal_base):
        return None
    below = normal.removeprefix(normal_base.rstrip("/")).lstrip("/")
    return "/".join(part for part in (pool.sub_path, below) if part)


def _problem(item: Any) -> Problem:
    where = ""
    for part in item["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        message = "no such field"
    elif item["type"] == "missing":
        message = "missing"
    elif isinstance(item.get("input"), str | int | float):
        message = f"{message}, found {item['input']!r:.60}"
    return Problem(field=where or "project file", message=message)
