"""The bridge put together: settings, this machine, decisions, the attempt worker."""

from __future__ import annotations

from forebay.contracts.parts import Part
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.scheduler_bridge.adapters import this_machine
from forebay.scheduler_bridge.adapters.local_processes import LocalProcesses, Surroundings
from forebay.scheduler_bridge.commands import command_table
from forebay.scheduler_bridge.domain.amounts import Amount
from forebay.scheduler_bridge.domain.decide import Bridge
from forebay.scheduler_bridge.domain.documents import DOCUMENTS
from forebay.scheduler_bridge.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES
from forebay.scheduler_bridge.questions import Questions
from forebay.scheduler_bridge.settings import BridgeSettings, load, passed_on
from forebay.scheduler_bridge.workers.attempt import AttemptWorker, Pace


def definition(total: Amount | None = None) -> Service:
    """The service. Folding needs no `total`; without it every decision sees a machine that has nothing."""
    total = total or Amount()
    return Service(
        part=Part.BRIDGE,
        fold_version=FOLD_VERSION,
        documents=DOCUMENTS,
        reads=READS,
        evolve=evolve,
        decide=Bridge(total=total, rules=LOCAL_RULES).decide,
        commands=command_table(total),
        questions=Questions(total=total, rules=LOCAL_RULES).table(),
    )


def capacity(settings: BridgeSettings) -> Amount:
    """What jobs may hold together: declared, else what the machine has."""
    cpus = settings.local_cpus if settings.local_cpus is not None else this_machine.count_cpus()
    memory = settings.local_memory_bytes if settings.local_memory_bytes is not None else this_machine.memory_bytes()
    gpus = settings.local_gpus if settings.local_gpus is not None else this_machine.count_gpus()
    return Amount(millicpus=round(cpus * 1000), memory_bytes=memory, gpus=gpus)


async def run() -> None:
    """Run the service until it is told to stop. Attempts outlive it and are adopted by the next one."""
    settings = load()
    surroundings = Surroundings(home=settings.home.resolve(), nats_url=settings.nats_url, variables=passed_on())
    worker = AttemptWorker(LocalProcesses(surroundings), Pace(grace=settings.stop_grace_s))
    await run_service(
        definition(capacity(settings)),
        settings,
        {"attempt": worker},
        concurrency={"attempt": settings.local_concurrency},
    )
