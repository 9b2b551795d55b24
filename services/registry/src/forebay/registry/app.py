"""The registry put together: the only place that picks adapters and workers."""

from __future__ import annotations

from forebay.contracts.parts import Part
from forebay.registry.adapters.file_episode_lists import FileEpisodeLists
from forebay.registry.commands.model_releases import model_release
from forebay.registry.commands.model_versions import model_evaluate, model_register
from forebay.registry.commands.resume_point import resume_point
from forebay.registry.domain.decide import VERIFY, conflict, decide
from forebay.registry.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.registry.domain.nodes import DOCUMENTS
from forebay.registry.ports import EpisodeLists
from forebay.registry.questions.contradictions import contradictions
from forebay.registry.questions.impact import impact
from forebay.registry.questions.lineage import lineage
from forebay.registry.questions.models import model, models
from forebay.registry.settings import RegistrySettings
from forebay.registry.workers.verify_checkpoint import CheckpointVerifier
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.runtime.settings import load_settings

VERIFIERS = 2
"""Checkpoints checked at a time: more would only compete for the same disk."""


def definition(lists: EpisodeLists | None = None) -> Service:
    """What the registry is, without any I/O; also used to rebuild it."""
    episodes = FileEpisodeLists() if lists is None else lists
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
            "model-register": model_register,
            "model-evaluate": model_evaluate,
            "model-release": model_release,
        },
        questions={
            "lineage": lineage(episodes),
            "impact": impact(episodes),
            "models": models,
            "model": model,
            "contradictions": contradictions,
        },
    )


async def run() -> None:
    """Run until stopped."""
    settings = load_settings(RegistrySettings)
    workers = {VERIFY: CheckpointVerifier(settings.roots())}
    await run_service(definition(), settings, workers, concurrency={VERIFY: VERIFIERS})
