"""The registry put together: the only place that picks adapters and workers."""

from __future__ import annotations

from forebay.contracts.parts import Part
from forebay.registry.adapters.file_artefacts import FileArtefacts
from forebay.registry.adapters.file_episode_lists import FileEpisodeLists
from forebay.registry.commands.checkpoint_import import checkpoint_import
from forebay.registry.commands.model_releases import model_release
from forebay.registry.commands.model_versions import model_evaluate, model_register
from forebay.registry.commands.release_policy import model_policy
from forebay.registry.commands.resume_point import resume_point
from forebay.registry.domain.decide import VERIFY, conflict, decide
from forebay.registry.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.registry.domain.nodes import DOCUMENTS
from forebay.registry.ports import Artefacts, EpisodeLists
from forebay.registry.questions.audit import audit
from forebay.registry.questions.contradictions import contradictions
from forebay.registry.questions.diff import diff
from forebay.registry.questions.history import history
from forebay.registry.questions.impact import impact
from forebay.registry.questions.lineage import lineage
from forebay.registry.questions.models import model, models
from forebay.registry.questions.policies import policies
from forebay.registry.questions.resume_preview import resume_preview
from forebay.registry.questions.search import search
from forebay.registry.settings import RegistrySettings
from forebay.registry.workers.verify_checkpoint import CheckpointVerifier
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.runtime.open_work import Slots
from forebay.runtime.processes import ProcessServer
from forebay.runtime.settings import load_settings

VERIFIERS = Slots.shared(3)  # checkpoints at a time: more would only compete for the same disk


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
        commands={
            "resume-point": resume_point,
            "checkpoint-import": checkpoint_import,
            "model-register": model_register,
            "model-evaluate": model_evaluate,
            "model-release": model_release,
            "model-policy": model_policy,
        },
        questions={
            "lineage": lineage(episodes),
            "impact": impact(episodes),
            "models": models,
            "policies": policies,
            "model": model,
            "contradictions": contradictions,
            "audit": audit(episodes, files),
            "diff": diff(episodes),
            "history": history,
            "search": search,
            "resume-preview": resume_preview,
        },
    )


async def run() -> None:
    """Run until stopped."""
    settings = load_settings(RegistrySettings)
    workers, processes = {VERIFY: CheckpointVerifier(settings.roots())}, ProcessServer((CheckpointVerifier.__module__,))
    service = definition(artefacts=FileArtefacts(settings.roots()))
    await run_service(service, settings, workers, slots={VERIFY: VERIFIERS}, processes=processes)
