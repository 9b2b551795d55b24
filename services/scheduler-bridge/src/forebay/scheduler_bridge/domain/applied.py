"""What a Job of `kubectl apply` says, in the words of a job file: as it was written, or after the webhook. Pure.

Called by `instrument.py` before the Job exists, and by `adopt.py` when it is seen on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_name, slug
from forebay.contracts.quantities import QuantityError, parse_bytes, parse_cpu
from forebay.contracts.v1.jobs import JobSpec
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.manifest import Site, Submission
from forebay.scheduler_bridge.domain.mounts import SHM
from forebay.scheduler_bridge.domain.pod_parts import wrapped
from forebay.scheduler_bridge.domain.specification import parse_spec, secret_problems

Json = dict[str, Any]
COLD_START = f"{layout.DOMAIN}/allow-cold-start"
MARK = 8
"""Digits that tell Jobs of one name apart, and make its id."""
_NAME = 63 - MARK - 1
_ENTRYPOINT = "image-entrypoint"
"""Stands for the command of a container that names none."""
_Texts = dict[str, str] | None
_Count = Annotated[int, msgspec.Meta(ge=0)] | None


class NotInstrumentableError(ValueError):
    """The Job cannot be understood; it must not start as if it had asked for nothing."""


class _Metadata(msgspec.Struct):
    name: str | None = None
    generateName: str | None = None  # noqa: N815 Kubernetes' own name, as below
    labels: _Texts = None
    annotations: _Texts = None


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct):
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Json] | None = None
    volumeMounts: list[Json] | None = None  # noqa: N815
    resources: _Resources | None = None


class _Pod(msgspec.Struct):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]
    initContainers: list[Json] | None = None  # noqa: N815
    volumes: list[Json] | None = None
    tolerations: list[Json] | None = None


class _Template(msgspec.Struct):
    spec: _Pod
    metadata: _Metadata | None = None


class _Spec(msgspec.Struct):
    template: _Template
    suspend: bool | None = None
    parallelism: _Count = None
    completionMode: str | None = None  # noqa: N815
    backoffLimit: _Count = None  # noqa: N815
    backoffLimitPerIndex: _Count = None  # noqa: N815


class _Job(msgspec.Struct):
    """As much of a Job as is looked at; the rest is the API server's business."""

    metadata: _Metadata
    spec: _Spec


def as_job(item: Mapping[str, Any]) -> _Job:
    """As much of a Job as is looked at, in its right shape. Raises `NotInstrumentableError`."""
    try:
        return msgspec.convert(item, type=_Job)
    except msgspec.ValidationError as error:
        msg = f"this is no Job that could be read: {error}"
        raise NotInstrumentableError(msg) from error


def described(job: Mapping[str, Any], *, user: str, site: Site, mark: str) -> Submission:
    """The job, or `NotInstrumentableError` with everything that is wrong with it."""
    read = as_job(job)
    name = name_of(job)
    if secrets := tuple(secret_problems(job["spec"]["template"]["spec"], "spec.template.spec")):
        raise NotInstrumentableError(in_words(secrets))
    values = {"name": name, **_values(read, site)}
    if not values["datasets"]:
        msg = f"{layout.DATASET_ANNOTATION} names no dataset; write for example pick-place@train-ready"
        raise NotInstrumentableError(msg)
    spec = parse_spec(values, project=site.project.project)
    if not isinstance(spec, JobSpec):
        raise NotInstrumentableError(in_words(spec))
    return Submission(spec=spec, job=job_id(name, mark), run=1, user=user)


def name_of(job: Mapping[str, Any]) -> str:
    """What its runs are called: its name, or the part of it that the API server did not make up."""
    metadata = job.get("metadata") or {}
    name, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
    chosen = prefix if prefix and (not name or name.startswith(prefix)) else name
    bare = chosen.rstrip("-.")
    text = slug(bare)[:_NAME].rstrip("-") if bare else ""
    try:
        return check_name(text)
    except InvalidNameError as error:
        msg = f"metadata.name: {error}"
        raise NotInstrumentableError(msg) from error


def job_id(name: str, mark: str) -> str:
    """`<name>-<mark>`: the id of one Job object, whatever its name was used for before."""
    return f"{name}-{mark}"


def main_of(job: Mapping[str, Any]) -> Json:
    """The container that trains: the first."""
    found: Json = job["spec"]["template"]["spec"]["containers"][0]
    return found


def mounted_at(container: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(item.get("mountPath")) for item in container.get("volumeMounts") or ())


def is_instrumented(job: Mapping[str, Any]) -> bool:
    """Our containers are in its pods."""
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    return any(item.get("name") == layout.PREPARE for item in pod.get("initContainers") or ())


def _values(job: _Job, site: Site) -> Json:
    """A job file of the same meaning."""
    labels, annotations = job.metadata.labels or {}, job.metadata.annotations or {}
    main, spec = job.spec.template.spec.containers[0], job.spec
    queue = labels.get(layout.KUEUE_QUEUE) or annotations.get(layout.WAITING_QUEUE)
    limit = spec.backoffLimitPerIndex if spec.backoffLimitPerIndex is not None else spec.backoffLimit
    values = {
        "command": _words(main) or [_ENTRYPOINT],
        "datasets": [{"name": name} for name in _datasets(annotations)],
        "resources": _resources(job, site),
        "restart": {
            "max_attempts": min(100, (6 if limit is None else limit) + 1),
            "allow_cold_start": annotations.get(COLD_START) == "true",
        },
        "wait_for_dataset": True,
        "image": main.image,
        "queue": queue,
        "priority_class": labels.get(layout.KUEUE_PRIORITY),
    }
    return {name: value for name, value in values.items() if value is not None}


def _words(main: _Container) -> list[str]:
    """The owner's command, also when the shim was put before it."""
    command, args = main.command or [], main.args or []
    return args if command == wrapped(())[0] else [*command, *args]


def _datasets(annotations: Mapping[str, str]) -> Iterator[str]:
    for text in annotations.get(layout.DATASET_ANNOTATION, "").split(","):
        if text.strip():
            yield text.strip()


def _resources(job: _Job, site: Site) -> Json:
    pod = job.spec.template.spec
    main = pod.containers[0]
    asked: dict[str, Any] = {}
    if main.resources is not None:
        asked = {**(main.resources.requests or {}), **(main.resources.limits or {})}
    readers: tuple[tuple[str, Any, Callable[[str], float]], ...] = (
        ("cpu", asked.get("cpu"), parse_cpu),
        ("memory_bytes", asked.get("memory"), parse_bytes),
        ("gpus", asked.get(site.project.gpu_resource), int),
        ("shm_bytes", _shm(main, pod), parse_bytes),
    )
    found: Json = {}
    for name, amount, read in readers:
        # What is no amount here is refused or understood by the API server; here it is only told to people.
        with suppress(QuantityError, ValueError):
            if amount is not None and read(str(amount)) > 0:
                found[name] = read(str(amount))
    return found


def _shm(main: _Container, pod: _Pod) -> str | None:
    """The size of its shared memory, when it says one."""
    names = [item.get("name") for item in main.volumeMounts or () if item.get("mountPath") == SHM]
    for volume in pod.volumes or ():
        memory = volume.get("emptyDir")
        if volume.get("name") in names and isinstance(memory, dict) and memory.get("sizeLimit"):
            return str(memory["sizeLimit"])
    return None


_FIELDS = {
    "datasets": layout.DATASET_ANNOTATION,
    "queue": f"label {layout.KUEUE_QUEUE}",
    "priority_class": f"label {layout.KUEUE_PRIORITY}",
    "name": "metadata.name",
    "image": "image of the first container",
    "command": "command of the first container",
}


def in_words(problems: Iterable[Problem]) -> str:
    """Problems with a job file, at the places where a Job says the same."""
    fields = [(problem.field.partition("[")[0].partition(".")[0], problem) for problem in problems]
    return "; ".join(f"{_FIELDS.get(head, problem.field)}: {problem.message}" for head, problem in fields)
