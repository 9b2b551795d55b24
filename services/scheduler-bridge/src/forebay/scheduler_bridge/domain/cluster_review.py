"""What a cluster would not do with a job, and what would lose work on it: problems and warnings at submit. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from forebay.contracts.quantities import QuantityError, parse_bytes, show_bytes_quantity
from forebay.contracts.v1.jobs import JobSpec
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.lerobot import LeRobotRun, lerobot_run
from forebay.scheduler_bridge.domain.manifest import checkpoint_folder, inputs_of
from forebay.scheduler_bridge.domain.mount_rules import Placed, as_field_problems, place_mounts
from forebay.scheduler_bridge.domain.mounts import SHM, MountType, is_below, normal_path
from forebay.scheduler_bridge.domain.pod_overlay import check_overlay
from forebay.scheduler_bridge.domain.project import ProjectFile
from forebay.scheduler_bridge.domain.shm import DEFAULT_SHM_BYTES, has_shm, shm_needed
from forebay.scheduler_bridge.domain.specification import words_of

ASSUMED_SECONDS_PER_STEP = 0.25
"""When nobody says how long a step takes: a small policy on one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Problems refuse a job; warnings are shown to whoever submits it."""

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


def review(spec: JobSpec, *, user: str, project: ProjectFile, mounted: Collection[str] = ()) -> Review:
    """Everything at once. `mounted`: where a Job of `kubectl apply` has volumes of its own."""
    placed = place_mounts(spec.mounts or "", user=user, project=project)
    problems = [
        *_request(spec, project),
        *as_field_problems(spec.mounts or "", placed.problems),
        *check_overlay(spec.pod or {}, project.overlay_rules()),
        *_storage(spec, project, placed),
    ]
    warnings = [*_kept(spec, project, placed, mounted), *_saves(spec, project), *_shared_memory(spec, placed, mounted)]
    return Review(problems=tuple(problems), warnings=tuple(warnings))


def _request(spec: JobSpec, project: ProjectFile) -> Iterator[Problem]:
    if spec.image is None:
        yield Problem(field="image", message="missing; write the container image that holds the command")
    if spec.project != project.project:
        message = f"{spec.project!r} is not the project of this file ({project.project!r})"
        yield Problem(field="project", message=message)
    if not project.queues and spec.queue != "default":
        message = f"{spec.queue!r}: project {project.project} uses no queues (Kueue); leave it out"
        yield Problem(field="queue", message=message)
    elif project.queues and spec.queue not in {"default", *project.queues}:
        yield Problem(field="queue", message=_unknown(spec.queue, project.queues, project))
    if spec.priority:
        message = "a cluster orders by class: write `priority_class` with one of the project's"
        yield Problem(field="priority", message=message)
    if spec.priority_class is not None and spec.priority_class not in project.priority_classes:
        yield Problem(field="priority_class", message=_unknown(spec.priority_class, project.priority_classes, project))
    kind = spec.resources.gpu_type
    if kind is not None and kind not in project.gpu_types:
        yield Problem(field="resources.gpu_type", message=_unknown(kind, tuple(project.gpu_types), project))
    elif kind is not None and not spec.resources.gpus:
        yield Problem(field="resources.gpu_type", message=f"{kind!r}, but no GPU is asked for; write gpus: 1")


def _unknown(name: str, known: tuple[str, ...], project: ProjectFile) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    allowed = ", ".join(known) or "none"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{name!r} is not allowed for project {project.project}; {hint}allowed: {allowed}"


def _storage(spec: JobSpec, project: ProjectFile, placed: Placed) -> Iterator[Problem]:
    if inputs_of(spec) and project.data is None:
        message = f"project {project.project} declares no data pool on this cluster (`data:` of the project file)"
        yield Problem(field="datasets", message=message)
    memory = any(item.target == SHM for item in placed.mounts)
    if spec.resources.shm_bytes is not None and memory:
        message = f"the mounts name {SHM} too; keep one of them"
        yield Problem(field="resources.shm", message=message)
    folder = spec.checkpoints.folder if spec.checkpoints else None
    if folder is not None and normal_path(folder) != folder:
        message = f"{folder!r} must be absolute, without '..' and without a '/' at its end"
        yield Problem(field="checkpoints.folder", message=message)
    run = lerobot_run(words_of(spec))
    if run is not None:
        yield from _lerobot(spec, run)


def _lerobot(spec: JobSpec, run: LeRobotRun) -> Iterator[Problem]:
    mounted = {layout.OUTPUT_DIR, layout.CHECKPOINT_DIR}
    if run.output_dir is not None and normal_path(run.output_dir) in mounted:
        message = (
            f"--output_dir={run.output_dir} exists before the start, and lerobot-train refuses a folder that exists;"
            f" write --output_dir={layout.OUTPUT_DIR}/train"
        )
        yield Problem(field="command", message=message)
    if run.resumes:
        message = "--resume=true is added by Forebay from the second attempt on; leave it out"
        yield Problem(field="command", message=message)
    folder = spec.checkpoints.folder if spec.checkpoints else None
    if folder is not None and run.checkpoints is not None and folder != run.checkpoints:
        message = f"lerobot-train saves in {run.checkpoints}, not in {folder}; leave it out"
        yield Problem(field="checkpoints.folder", message=message)


def _kept(spec: JobSpec, project: ProjectFile, placed: Placed, mounted: Collection[str]) -> Iterator[str]:
    """Whether what is saved outlives the container."""
    run = lerobot_run(words_of(spec))
    folder = checkpoint_folder(spec)
    if run is not None and run.output_dir is None and not (spec.checkpoints and spec.checkpoints.folder):
        yield (
            "no --output_dir is given: lerobot-train saves below its working directory, on the container's own disk,"
            f" and everything is lost with the pod; write --output_dir={layout.OUTPUT_DIR}/train"
        )
        return
    kept = [
        item.target
        for item in placed.mounts
        if not item.read_only and item.mount.type not in {MountType.MEMORY, MountType.HOSTPATH}
    ]
    claims = {layout.OUTPUT_DIR: project.outputs, layout.CHECKPOINT_DIR: project.checkpoints or project.outputs}
    kept += [target for target, claim in claims.items() if claim is not None]
    kept += mounted
    best = max((target for target in kept if is_below(folder, target)), key=len, default=None)
    if best is None:
        why = (
            f"project {project.project} declares no `outputs` claim"
            if is_below(folder, layout.OUTPUT_DIR)
            else "no claim is mounted there"
        )
        yield (
            f"checkpoints go to {folder}, which is the container's own disk ({why}):"
            " they are lost with the pod, and the next attempt starts from the beginning"
        )


def _saves(spec: JobSpec, project: ProjectFile) -> Iterator[str]:
    """How much work a lost node would cost."""
    policy, run = spec.checkpoints, lerobot_run(words_of(spec))
    if run is not None and not run.saves:
        yield "--save_checkpoint=false: nothing is saved, so a lost node costs the whole training"
        return
    steps = (policy.save_every_steps if policy else None) or (run.save_freq if run else None)
    if steps is None:
        return
    if run is not None and run.save_freq <= 0:
        yield f"--save_freq={run.save_freq} saves nothing before the end; write for example --save_freq=1000"
        return
    if run is not None and steps >= run.steps:
        yield f"a save every {steps:,} steps is none before the end at step {run.steps:,}: a lost node costs everything"
        return
    known = policy.seconds_per_step if policy else None
    minutes = steps * (known or ASSUMED_SECONDS_PER_STEP) / 60
    limit = project.preflight.max_unsaved_minutes
    if minutes > limit:
        basis = "" if known else f" at an assumed {ASSUMED_SECONDS_PER_STEP:g} s a step (checkpoints.seconds_per_step)"
        option = f"--save_freq={_suggested(steps, minutes, limit)}" if run else "a smaller checkpoints.save_every_steps"
        yield (
            f"a save every {steps:,} steps loses up to {_duration(minutes)} of work with a node{basis};"
            f" the project's limit is {_duration(limit)}: write {option}"
        )


def _suggested(steps: int, minutes: float, limit: float) -> int:
    """A round number of steps well within the limit."""
    fitting = int(steps * limit / minutes / 2) or 1
    digits = len(str(fitting)) - 1
    power = int(10**digits)
    return max(1, fitting // power * power)


def _duration(minutes: float) -> str:
    hours, rest = divmod(round(minutes), 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


def _shared_memory(spec: JobSpec, placed: Placed, mounted: Collection[str]) -> Iterator[str]:
    size = spec.resources.shm_bytes
    if size is None and SHM in mounted:
        return
    for item in placed.mounts:
        if item.target == SHM:
            try:
                size = parse_bytes(item.mount.source)
            except QuantityError:
                continue
    need = shm_needed(spec)
    have = size if size is not None else DEFAULT_SHM_BYTES
    if need > have:
        yield (
            f"{SHM} has {show_bytes_quantity(have)}, and the loader needs {need} bytes (workers · prefetch · batch ·"
            f" sample): the checks before the start will refuse it; write resources: {{shm: {_at_least(need)}}}"
        )
    elif spec.loader is None and size is None and not has_shm(spec) and _loads_with_workers(spec):
        yield (
            f"no memory volume at {SHM}: it has {show_bytes_quantity(have)}, and data-loader workers die of"
            " a bus error when it is full; write resources: {shm: 8Gi}, and `loader:` to have it checked"
        )
    if size is not None and size >= spec.resources.memory_bytes:
        yield f"{SHM} counts as the job's memory: {show_bytes_quantity(size)} of it leave nothing for the process"


def _loads_with_workers(spec: JobSpec) -> bool:
    run = lerobot_run(words_of(spec))
    workers = spec.parameters.get("num_workers")
    return (run is not None and run.num_workers > 0) or (isinstance(workers, int) and workers > 0)


def _at_least(need: int) -> str:
    gib = -(-need // (1 << 30))
    return f"{gib}Gi"
