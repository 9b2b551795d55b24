"""What one model version was made of, flat: data, base models, code, image, parameters, start, metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from forebay.registry.domain.evidence import evidence_words
from forebay.registry.domain.graph import get
from forebay.registry.domain.nodes import CHECKPOINT, DATASET, Node, attempt_id, job_id
from forebay.registry.domain.releases import evaluations_of, latest_evaluation
from forebay.registry.domain.view import shown
from forebay.registry.ports import EpisodeLists
from forebay.registry.questions.version_episodes import episodes_of, inside, windows_of
from forebay.runtime.state import State


@dataclass(slots=True)
class Story:
    """The facts that two versions are compared by. A field that nobody said is None."""

    id: str
    fields: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    episodes: dict[str, frozenset[str] | None] = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)


def story_of(state: State, project: str, model: Node, lists: EpisodeLists) -> Story:
    """Follow a version up to its data."""
    story = Story(model.id)
    name = shown(model, "job")
    job = get(state, project, job_id(name)) if name else None
    checkpoint = get(state, project, f"{CHECKPOINT}:{shown(model, 'checkpoint')}")
    attempt = get(state, project, attempt_id(name, shown(model, "attempt", 0))) if name else None
    if job is None:
        story.missing.append({"id": f"job:{name}", "reason": "no event has described it"})
    made = shown(checkpoint, "compatibility", {})
    story.fields = {
        "job": name,
        "command": shown(job, "command"),
        "code revision": shown(job, "code_revision") or made.get("code_revision"),
        "image": shown(job, "image"),
        "resources": shown(job, "resources"),
        "base models": sorted(shown(model, "base_models", [])),
        "step": shown(model, "step"),
        "attempt": shown(model, "attempt"),
        "start": shown(attempt, "resume_mode"),
        "start checkpoint": shown(attempt, "resume_checkpoint"),
        "artefact": shown(model, "artefact_sha256"),
    }
    if checkpoint is not None and shown(checkpoint, "imported"):
        unknown = shown(checkpoint, "unknown", [])
        story.missing.append(
            {"id": checkpoint.id, "reason": f"imported, unknown: {', '.join(unknown) or 'how it was trained'}"}
        )
    story.parameters = dict(shown(job, "parameters", {}))
    evaluation = latest_evaluation(state, evaluations_of(state, project, model))
    story.metrics = dict(shown(evaluation, "metrics", {}))
    story.fields["metrics from"] = evidence_words(evaluation)
    _add_data(state, project, (model, job), lists, story)
    return story


def _add_data(state: State, project: str, made: tuple[Node, Node | None], lists: EpisodeLists, story: Story) -> None:
    model, job = made
    read = windows_of(job)
    inputs = {one["pinned"]: one for one in shown(job, "inputs", [])}
    for pinned in sorted({*shown(model, "datasets", []), *(one for one in inputs if one.startswith(f"{DATASET}:"))}):
        version = get(state, project, pinned)
        said = inputs.get(pinned, {})
        story.datasets[pinned] = {
            "manifest": shown(version, "manifest_sha256") or said.get("manifest_sha256"),
            "columns": said.get("columns") or None,
            "episodes": said.get("episodes"),
        }
        listed = episodes_of(version, lists)
        if listed.episodes is None:
            story.missing.append({"id": pinned, "reason": listed.problem})
            story.episodes[pinned] = None
            continue
        windows = read.get(pinned, [])
        used = (one for one, index in listed.episodes.indices.items() if inside(index, windows))
        story.episodes[pinned] = frozenset(used)
    if not story.datasets:
        story.missing.append({"id": model.id, "reason": "no event has pinned its inputs, so its data is UNKNOWN"})
