"""The models of a project: versions, their evaluations, and where each channel points."""

from __future__ import annotations

from typing import Any

from forebay.registry.domain.graph import children, get
from forebay.registry.domain.keeping import files_of, is_kept, problem_at_registration
from forebay.registry.domain.names import CHANNELS, resolve, top, unknown
from forebay.registry.domain.nodes import (
    EVALUATION,
    MODEL,
    RELEASE,
    Channel,
    Name,
    model_id,
    name_and_number,
    release_id,
    type_of,
)
from forebay.registry.domain.releases import pointer
from forebay.registry.domain.view import node_json, shown
from forebay.registry.questions.request_args import number, optional_number, text
from forebay.runtime.machine import Request
from forebay.runtime.state import State

PAGE = 100


def models(state: State, request: Request) -> dict[str, Any]:
    """`models` {after?, limit?}: every model name with its latest version and channels."""
    limit = number(request, "limit", PAGE, least=1, most=1000)
    prefix = f"{request.project}/{MODEL}/"
    start = str(request.args.get("after") or "")
    page = [one for one in state.all(Name, after=prefix + start, limit=limit + 1) if one.key.startswith(prefix)]
    found = []
    for name in page[:limit]:
        latest = get(state, request.project, model_id(name.name, name.top))
        found.append(
            {
                "model": name.name,
                "latest": name.top,
                "job": shown(latest, "job"),
                "step": shown(latest, "step"),
                "channels": channels(state, request.project, name.name),
            }
        )
    return {"models": found, "after": page[limit - 1].name if len(page) > limit else None}


def model(state: State, request: Request) -> dict[str, Any]:
    """`model` {model, after?, limit?}: versions of one model (newest first), evaluations and release history."""
    project, name = request.project, text(request, "model").removeprefix("model:").partition("@")[0]
    latest = top(state, project, MODEL, name)
    if latest is None:
        raise unknown(state, project, name, MODEL)
    limit = number(request, "limit", PAGE, least=1, most=500)
    newest = min(latest, number(request, "after", latest + 1, least=1) - 1)
    versions = []
    for version in range(newest, max(0, newest - limit), -1):
        node = get(state, project, model_id(name, version))
        if node is not None:
            evaluations = [get(state, project, child) for child in children(state, project, node.id, EVALUATION)]
            versions.append(
                {
                    **node_json(node.id, node),
                    "number": version,
                    "evaluations": [node_json(one.id, one) for one in evaluations if one is not None],
                }
            )
    return {
        "model": name,
        "latest": latest,
        "channels": channels(state, project, name),
        "releases": history(state, project, name),
        "versions": versions,
        "after": newest - limit + 1 if newest > limit else None,
    }


def model_files(state: State, request: Request) -> dict[str, Any]:
    """`model-files` {model, number?}: the files of a version with their digests, and where they are kept."""
    project = request.project
    node_id = version_of(state, project, text(request, "model"), optional_number(request, "number"))
    name, number_ = name_and_number(node_id)
    node = get(state, project, node_id)
    files = [] if node is None else files_of(state, project, node)
    return {
        "model": name,
        "number": number_,
        "artefact_sha256": shown(node, "artefact_sha256"),
        "files": [{"path": path, "sha256": sha256, "bytes": size} for path, sha256, size in files],
        "kept": is_kept(node),
        "store": shown(node, "kept_in"),
        "problem": None if node is None else problem_at_registration(node),
    }


def channels(state: State, project: str, name: str) -> dict[str, int]:
    """Where each channel points now."""
    found = {channel: pointer(state, project, name, channel).current for channel in CHANNELS}
    return {channel: current for channel, current in found.items() if current is not None}


def history(state: State, project: str, name: str) -> list[dict[str, Any]]:
    """Every move of every channel, each with its event, in the order of the moves."""
    found: list[dict[str, Any]] = []
    for channel in CHANNELS:
        known = state.get(Channel, f"{project}/{name}@{channel}")
        for move in range(1, 1 + (known.move if known else 0)):
            node = get(state, project, release_id(name, channel, move))
            if node is not None:
                found.append({**node_json(node.id, node), "channel": channel, "move": move})
    return found


def version_of(state: State, project: str, name: str, wanted: int | None) -> str:
    """The id of a version that exists: the wanted one, the one a channel names, or the latest."""
    name = name.removeprefix(f"{MODEL}:")
    found = resolve(state, project, f"{MODEL}:{name}" if wanted is None else model_id(name.partition("@")[0], wanted))
    if type_of(found) == RELEASE:
        release = get(state, project, found)
        found = model_id(shown(release, "model"), shown(release, "number"))
    if get(state, project, found) is None:
        raise unknown(state, project, found, MODEL)
    return found
