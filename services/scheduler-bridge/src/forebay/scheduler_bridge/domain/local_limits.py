"""What the local backend cannot do, said at submit instead of ignored at the start."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.contracts.v1.jobs import JobSpec
from forebay.runtime.errors import Refused
from forebay.scheduler_bridge.domain.amounts import Amount, amount_of, quantities
from forebay.scheduler_bridge.domain.job_file import Problem

QUEUES = ("default",)
"""The local backend has one queue: this machine."""
_CLUSTER = "this installation runs jobs as processes of one machine"


def local_refusals(spec: JobSpec) -> Iterator[Problem]:
    """Everything that a job asks for and only a cluster has."""
    if spec.queue not in QUEUES:
        message = f"no queue {spec.queue!r} is declared; this machine has {', '.join(QUEUES)}"
        yield Problem(field="queue", message=message)
    if (spec.nodes or 1) > 1:
        yield Problem(field="nodes", message=f"{spec.nodes} nodes asked, but {_CLUSTER}; leave it out or write 1")
    if spec.mounts and spec.mounts.strip():
        message = f"nothing is mounted here: {_CLUSTER}. Leave it out and use the paths of this machine"
        yield Problem(field="mounts", message=message)
    if spec.pod:
        yield Problem(field="pod", message=f"there is no pod here: {_CLUSTER}; leave it out")
    if spec.priority_class is not None:
        yield Problem(field="priority_class", message=f"{_CLUSTER}; write `priority` with a number")
    resources = spec.resources
    if resources.gpu_type is not None:
        yield Problem(field="resources.gpu_type", message=f"{_CLUSTER}, whose GPUs are not told apart; leave it out")
    if resources.ephemeral_storage_bytes is not None:
        message = f"{_CLUSTER}, and nobody limits its disk; leave it out"
        yield Problem(field="resources.ephemeral_storage", message=message)
    if spec.checkpoints and spec.checkpoints.folder:
        message = "saves are looked for in $FOREBAY_OUTPUT/checkpoints here; leave `folder` out and write them there"
        yield Problem(field="checkpoints.folder", message=message)


def refuse_too_large(spec: JobSpec, total: Amount) -> None:
    """Raise `Refused` with numbers when a job could never start on this machine."""
    need = amount_of(spec.resources)
    lacking = need.exceeding(total)
    if not lacking:
        return
    numbers = "; ".join(f"{need.show(name)} asked, {total.show(name)} in all" for name in lacking)
    raise Refused(
        "never-fits",
        f"job {spec.name} is larger than this machine: {numbers}",
        "ask for less, or declare more with FOREBAY_LOCAL_CPUS, FOREBAY_LOCAL_MEMORY_BYTES, FOREBAY_LOCAL_GPUS",
        {
            "reason": "NeverFits",
            "lacking": [
                {"resource": item.resource, "need": item.need, "have": item.total}
                for item in quantities(lacking, need=need, free=total, total=total)
            ],
        },
    )
