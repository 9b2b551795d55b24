"""What a job's mounts become for one user of one project: permitted, placed, without clashes.

The user comes from the authenticated request, never from the job file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from forebay.contracts.identifiers import slug
from forebay.contracts.quantities import parse_bytes
from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.mounts import (
    CLAIMS,
    Mount,
    MountProblem,
    MountType,
    is_below,
    normal_path,
    parse_mounts,
    point_at,
)
from forebay.scheduler_bridge.domain.project import MountPermissions, ProjectFile

_PLAIN_USER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@-]{0,61}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMount:
    """One mount as the pod gets it."""

    mount: Mount
    target: str
    """Where it appears in the container."""
    sub_path: str | None = None
    read_only: bool = False
    by_default: bool = False
    """The project adds it to every job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The mounts of a job, defaults first, and everything that is wrong."""

    mounts: tuple[PlacedMount, ...]
    problems: tuple[MountProblem, ...]


def user_folder(user: str) -> str:
    """The name of a user's own folder: the name as it stands, or its slug when that is no folder name."""
    return user if _PLAIN_USER.fullmatch(user) and ".." not in user else slug(user)


def place_mounts(text: str, *, user: str, project: ProjectFile | None) -> Placed:
    """Parse, judge and place. Without a project only grammar and clashes are judged."""
    parsed = parse_mounts(text)
    defaults = parse_mounts(project.mounts.default).mounts if project else ()
    placed = [_place(mount, user, by_default=True) for mount in defaults]
    problems = list(parsed.problems)
    for mount in parsed.mounts:
        if project is not None:
            problems += _forbidden(mount, project)
        placed.append(_place(mount, user, by_default=False))
    problems += _clashes(placed)
    ordered = sorted(problems, key=lambda problem: problem.span.start if problem.span else -1)
    return Placed(mounts=tuple(placed), problems=tuple(ordered))


def as_field_problems(text: str, problems: Iterable[MountProblem]) -> tuple[Problem, ...]:
    """The problems as those of the job's field `mounts`, each with its caret line."""
    found = []
    for problem in problems:
        where = f"character {problem.span.start + 1}: " if problem.span else ""
        drawn = "\n" + point_at(text, problem) if problem.span else ""
        found.append(Problem(field="mounts", message=f"{where}{problem.message}{drawn}"))
    return tuple(found)


def _place(mount: Mount, user: str, *, by_default: bool) -> PlacedMount:
    own = user_folder(user) if mount.type is MountType.PVC else None
    target = f"{mount.directory}/{own}" if own else mount.directory
    return PlacedMount(mount=mount, target=target, sub_path=own, read_only=mount.read_only, by_default=by_default)


def _clashes(placed: list[PlacedMount]) -> Iterator[MountProblem]:
    first: dict[str, PlacedMount] = {}
    for item in placed:
        earlier = first.setdefault(item.target, item)
        if earlier is item:
            continue
        who = "the project mounts" if earlier.by_default else "the job mounts"
        what = f"{earlier.mount.source}({earlier.mount.type})"
        yield MountProblem(
            span=None if item.by_default else item.mount.directory_span,
            message=f"{item.target} is taken: {who} {what} there; choose another target",
        )


def _forbidden(mount: Mount, project: ProjectFile) -> Iterator[MountProblem]:
    rules = project.mounts
    if project.data is not None and mount.type in CLAIMS and mount.source == project.data.pvc and not mount.read_only:
        message = f"{mount.source} holds the datasets, which are read-only; add ':ro', or list the dataset as an input"
        yield MountProblem(span=mount.span, message=message)
        return
    if mount.type is MountType.MEMORY:
        if parse_bytes(mount.source) > parse_bytes(rules.max_memory):
            message = (
                f"{mount.source} of memory; project {project.project} allows {rules.max_memory} (mounts.max_memory)"
            )
            yield MountProblem(span=mount.source_span, message=message)
        return
    allowed = [_Rule.of(text) for text in _listed(mount.type, rules)]
    fitting = [rule for rule in allowed if rule.covers(mount)]
    field = _FIELDS[mount.type]
    if not fitting:
        names = ", ".join(rule.name for rule in allowed) or "none"
        message = (
            f"{mount.source} ({mount.type}) is not allowed for project {project.project}; allowed: {names}"
            f" (mounts.{field} of the project file)"
        )
        yield MountProblem(span=mount.source_span, message=message)
    elif not mount.read_only and all(rule.read_only for rule in fitting):
        message = f"{mount.source} may only be read in project {project.project}; add ':ro'"
        yield MountProblem(span=mount.span, message=message)


_FIELDS = {
    MountType.PVC: "pvcs", MountType.PVC_SHARE: "pvcs", MountType.STORAGE: "pvcs", MountType.NFS: "nfs",
    MountType.HOSTPATH: "host_paths", MountType.CONFIGMAP: "configmaps", MountType.SECRET: "secrets",
}  # fmt: skip


def _listed(kind: MountType, rules: MountPermissions) -> tuple[str, ...]:
    return tuple(getattr(rules, _FIELDS[kind]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    name: str
    read_only: bool

    @classmethod
    def of(cls, text: str) -> _Rule:
        return cls(name=text.removesuffix(":ro"), read_only=text.endswith(":ro"))

    def covers(self, mount: Mount) -> bool:
        if mount.type is MountType.HOSTPATH:
            return is_below(mount.source, self.name)
        if mount.type is MountType.NFS:
            host, _, path = self.name.partition("/")
            folder = normal_path("/" + path) or "/"
            here = normal_path(mount.nfs_path) or "/"
            return mount.nfs_server == host.strip("[]") and is_below(here, folder)
        return self.name in {"*", mount.source}
