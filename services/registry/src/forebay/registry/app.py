"""The registry put together: the only place that picks adapters and workers."""

from __future__ import annotations

from forebay.contracts.parts import Part
from forebay.registry.adapters.file_artefacts import FileArtefacts
from forebay.registry.adapters.file_episode_lists import FileEpisodeLists
from forebay.registry.answers import COMMANDS, questions
from forebay.registry.domain.decide import VERIFY, conflict, decide
from forebay.registry.domain.deleting import DELETE
from forebay.registry.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.registry.domain.keeping import KEEP
from forebay.registry.domain.nodes import DOCUMENTS
from forebay.registry.ports import Artefacts, EpisodeLists
from forebay.registry.settings import RegistrySettings
from forebay.registry.workers.delete_files import FileDeleter
from forebay.registry.workers.keep_model import ModelKeeper
from forebay.registry.workers.verify_checkpoint import CheckpointVerifier
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.runtime.open_work import Slots
from forebay.runtime.processes import ProcessServer
from forebay.runtime.settings import load_settings
from forebay.runtime.work import Worker

VERIFIERS = Slots.shared(3)  # checkpoints at a time: more would only compete for the same disk

KEEPERS = Slots.shared(2)


def definition(lists: EpisodeLists | None = None, artefacts: Artefacts | None = None) -> Service:
    """What the registry is, without any I/O; also used to rebuild it."""
    episodes = FileEpisodeLists() if lists is None else lists
    files = FileArtefacts() if artefacts is None else artefacts
    return Service(
        part=Part.REGISTRY,
        fold_version=FOLD_VERSION,
        documents=DOCUMENTS,
        reads=READS,
        evolve=evolve,
        decide=decide,
        on_conflict=conflict,
        commands=COMMANDS,
        questions=questions(episodes, files),
    )


def workers_of(settings: RegistrySettings) -> dict[str, Worker]:
    """Who does the registry's long work."""
    roots = settings.roots()
    return {
        VERIFY: CheckpointVerifier(roots),
        KEEP: ModelKeeper(roots, settings.models()),
        DELETE: FileDeleter(roots),
    }


async def run() -> None:
    """Run until stopped."""
    settings = load_settings(RegistrySettings)
    workers, files = workers_of(settings), FileArtefacts(settings.roots(), settings.models())
    service = definition(FileEpisodeLists(settings.episode_lists()), files)
    processes = ProcessServer(tuple(sorted({type(worker).__module__ for worker in workers.values()})))
    await run_service(service, settings, workers, slots={VERIFY: VERIFIERS, KEEP: KEEPERS}, processes=processes)
