"""The files of a model version: what they are, whether they are kept, and the work that keeps or checks them.

Registering a version copies its files into the model store; releasing one has every
byte of them read first. Both are one piece of long work, made here; `workers/keep_model.py`
does it.
"""

from __future__ import annotations

from typing import Any

from forebay.contracts.identifiers import stable_id
from forebay.registry.domain.graph import get
from forebay.registry.domain.nodes import CHECKPOINT, Node, name_and_number
from forebay.registry.domain.view import facts_named, first_fact, shown
from forebay.runtime.machine import Work
from forebay.runtime.state import State

KEEP = "keep-model"
AT_REGISTRATION = "at-registration"
"""The check that a registration itself makes, when its files cannot be kept."""
Files = list[list[Any]]
"""[path, sha256, bytes] each."""


def files_of(state: State, project: str, model: Node) -> Files:
    """The files of a version: as they were kept, else as its checkpoint was written; empty when nobody has said."""
    kept = shown(model, "kept_files")
    if kept is not None:
        return list(kept)
    checkpoint = get(state, project, f"{CHECKPOINT}:{shown(model, 'checkpoint')}")
    if checkpoint is None or shown(checkpoint, "digest") != shown(model, "artefact_sha256"):
        return []
    return list(shown(checkpoint, "files", []))


def is_kept(model: Node | None) -> bool:
    return first_fact(model, "ModelFilesKept") is not None if model is not None else False


def check_result(model: Node, check: str) -> dict[str, Any] | None:
    """What a look at the files found, by the id of the request that asked for it."""
    for fact in facts_named(model, "ModelFilesChecked"):
        found: dict[str, Any] = fact.values["files_checked"]
        if found["check"] == check:
            return found
    return None


def problem_at_registration(model: Node) -> str | None:
    """Why the files of a version could not be kept when it was registered."""
    found = check_result(model, AT_REGISTRATION)
    if found is None or found["status"] == "whole" or is_kept(model):
        return None
    return "; ".join(found["findings"]) or str(found["status"])


def keep(state: State, project: str, model: Node, check: str = AT_REGISTRATION) -> Work | None:
    """The work that has a version's files in the store, and reads every byte; None when nobody knows its files."""
    files = files_of(state, project, model)
    if not files:
        return None
    name, number = name_and_number(model.id)
    return Work(
        kind=KEEP,
        key="km-" + stable_id(project, name, number, check)[:24],
        project=project,
        payload={
            "model": name,
            "number": number,
            "artefact_sha256": shown(model, "artefact_sha256"),
            "job": shown(model, "job"),
            "uri": shown(model, "uri"),
            "files": files,
            "check": check,
        },
    )
