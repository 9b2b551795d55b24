"""Every command and question that the registry answers, by name."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.registry.commands.checkpoint_import import checkpoint_import
from forebay.registry.commands.deletions import checkpoint_delete, job_delete
from forebay.registry.commands.model_evaluations import model_evaluate
from forebay.registry.commands.model_releases import model_release
from forebay.registry.commands.model_versions import model_register
from forebay.registry.commands.release_policy import model_policy
from forebay.registry.commands.resume_point import resume_point
from forebay.registry.ports import Artefacts, EpisodeLists
from forebay.registry.questions.audit import audit
from forebay.registry.questions.contradictions import contradictions
from forebay.registry.questions.diff import diff
from forebay.registry.questions.history import history
from forebay.registry.questions.impact import impact
from forebay.registry.questions.lineage import lineage
from forebay.registry.questions.models import model, model_files, models
from forebay.registry.questions.policies import policies
from forebay.registry.questions.resume_preview import resume_preview
from forebay.registry.questions.search import search
from forebay.runtime.machine import Command, Question

COMMANDS: Mapping[str, Command] = {
    "checkpoint-delete": checkpoint_delete,
    "job-delete": job_delete,
    "resume-point": resume_point,
    "checkpoint-import": checkpoint_import,
    "model-register": model_register,
    "model-evaluate": model_evaluate,
    "model-release": model_release,
    "model-policy": model_policy,
}


def questions(episodes: EpisodeLists, files: Artefacts) -> Mapping[str, Question]:
    """The questions, over what they read beside the store."""
    return {
        "lineage": lineage(episodes),
        "impact": impact(episodes),
        "models": models,
        "policies": policies,
        "model": model,
        "model-files": model_files,
        "contradictions": contradictions,
        "audit": audit(episodes, files),
        "diff": diff(episodes),
        "history": history,
        "search": search,
        "resume-preview": resume_preview,
    }
