"""The bridge put together: settings, a backend, decisions, workers."""

from __future__ import annotations

from functools import partial

from forebay.contracts.parts import Part
from forebay.runtime.app import run_service
from forebay.runtime.disk_room import ATTEMPT_BYTES, disk_problem
from forebay.runtime.machine import Service
from forebay.runtime.open_work import Slots
from forebay.scheduler_bridge.adapters import this_machine
from forebay.scheduler_bridge.adapters.local_processes import LocalProcesses, Surroundings
from forebay.scheduler_bridge.commands import command_table
from forebay.scheduler_bridge.domain.amounts import Amount
from forebay.scheduler_bridge.domain.backend import Backend
from forebay.scheduler_bridge.domain.cluster.documents import CLUSTER_DOCUMENTS
from forebay.scheduler_bridge.domain.decide import LocalBridge
from forebay.scheduler_bridge.domain.documents import DOCUMENTS
from forebay.scheduler_bridge.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES
from forebay.scheduler_bridge.metrics import Measured
from forebay.scheduler_bridge.questions import Questions
from forebay.scheduler_bridge.settings import BridgeSettings, load, passed_on
from forebay.scheduler_bridge.workers.attempt import AttemptWorker, Pace

DOCUMENTS_KEPT = 8_000
"""In memory: an object of a cluster takes ten times the room of other documents, and reading one again is cheap."""


def definition(backend: Backend | None = None) -> Service:
    """The service. Folding needs no backend; without one every decision sees a machine that has nothing."""
    backend = backend or LocalBridge(total=Amount(), rules=LOCAL_RULES)
    return Service(
        part=Part.BRIDGE,
        fold_version=FOLD_VERSION,
        documents=(*DOCUMENTS, *CLUSTER_DOCUMENTS),
        reads=READS,
        evolve=evolve,
        decide=Measured(backend.decide),
        commands=command_table(backend),
        questions=Questions(backend=backend).table(),
        kept=DOCUMENTS_KEPT,
    )


def capacity(settings: BridgeSettings) -> Amount:
    """What jobs may hold together: declared, else what the machine has."""
    cpus = settings.local_cpus if settings.local_cpus is not None else this_machine.count_cpus()
    memory = settings.local_memory_bytes if settings.local_memory_bytes is not None else this_machine.memory_bytes()
    gpus = settings.local_gpus if settings.local_gpus is not None else this_machine.count_gpus()
    return Amount(millicpus=round(cpus * 1000), memory_bytes=memory, gpus=gpus)


async def run() -> None:
    """Run the service until it is told to stop. What it has started outlives it and is adopted by the next one."""
    settings = load()
    if settings.backend == "kubernetes":
        from forebay.scheduler_bridge.cluster_app import run_on_cluster  # noqa: PLC0415 its imports cost seconds

        await run_on_cluster(settings)
    else:
        await _on_this_machine(settings)


async def _on_this_machine(settings: BridgeSettings) -> None:
    surroundings = Surroundings(home=settings.home.resolve(), nats_url=settings.nats_url, variables=passed_on())
    shortage = partial(disk_problem, "home", surroundings.home / "jobs", settings.disk_floor_bytes, ATTEMPT_BYTES)
    worker = AttemptWorker(LocalProcesses(surroundings), Pace(grace=settings.stop_grace_s), shortage)
    await run_service(
        definition(LocalBridge(total=capacity(settings), rules=LOCAL_RULES)),
        settings,
        {"attempt": worker},
        slots={"attempt": Slots.unshared(settings.local_concurrency)},  # the queue has decided who is next
    )
