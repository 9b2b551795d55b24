"""What did this reach: from an episode (or any node) down to versions, jobs, checkpoints, models, releases.

An episode reaches a version only when the version's own list holds it, and a job
only when the job read that part. Where a list cannot be read, the version stays in
the answer as `possible`, and the answer is not complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from forebay.registry.domain.graph import children, get, has_children
from forebay.registry.domain.names import CHANNELS, resolve
from forebay.registry.domain.nodes import (
    CHECKPOINT,
    CONTRADICTION,
    DATASET,
    EPISODE,
    JOB,
    MODEL,
    RELEASE,
    name_and_number,
    type_of,
)
from forebay.registry.domain.relations import UPLOADED_IN
from forebay.registry.domain.releases import pointer
from forebay.registry.domain.view import first_fact, node_json, parents_of, state_of, title_of
from forebay.registry.ports import EpisodeLists
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.request_args import number, text
from forebay.registry.questions.version_episodes import episodes_of, inside, windows_of
from forebay.runtime.machine import Question, Request
from forebay.runtime.state import State

NODES = 3000
LISTED = 200
DRAWN = 1000
"""Nodes of the tree; the counts and lists beside it go on to `nodes`."""


@dataclass(slots=True)
class _Walk:
    """One walk downwards: what was reached, and what could not be known."""

    state: State
    project: str
    lists: EpisodeLists
    nodes: int
    index: dict[str, int | None] = field(default_factory=dict)
    """For an episode's walk: its dense index in each version reached; None where the list is not available."""
    reached: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)
    idle: int = 0
    """Saves among them that led to nothing; they use up none of `nodes`."""
    drawn: int = 0
    cut: bool = False


def impact(lists: EpisodeLists) -> Question:
    """The question `impact` {id, nodes?, listed?, as_of?}."""

    def answer(state: State, request: Request) -> dict[str, Any]:
        state, moment = as_of(state, request)
        node_id = resolve(state, request.project, text(request, "id"))
        walk = _Walk(state, request.project, lists, number(request, "nodes", NODES, least=1, most=20_000))
        listed = number(request, "listed", LISTED, most=2000)
        node = get(state, request.project, node_id)
        tree = {**_brief(walk, node_id), "children": _children(walk, node_id)}
        if walk.cut:
            walk.missing.append(
                {"id": node_id, "reason": f"more than {walk.nodes} nodes are reached; ask with a larger 'nodes'"}
            )
        grouped: dict[str, list[dict[str, Any]]] = {}
        for one in walk.reached.values():
            grouped.setdefault(one["kind"], []).append(one)
        return {
            "id": node_id,
            "query": request.args["id"],
            "as_of": moment,
            "node": node_json(node_id, node),
            "tree": tree,
            "counts": {kind: len(several) for kind, several in sorted(grouped.items())},
            "reached": {
                kind: [_filled(walk, one) for one in several[:listed]] for kind, several in sorted(grouped.items())
            },
            "live": _live(walk),
            "complete": not walk.missing,
            "missing": walk.missing,
        }

    return answer


def _brief(walk: _Walk, node_id: str) -> dict[str, Any]:
    node = get(walk.state, walk.project, node_id)
    return {
        "id": node_id,
        "kind": type_of(node_id),
        "title": title_of(node_id, node),
        "state": "unknown" if node is None else state_of(node),
    }


def _filled(walk: _Walk, brief: dict[str, Any]) -> dict[str, Any]:
    """With title and state: of a thousand saves that are only counted, nobody sees them."""
    if "title" not in brief:
        brief |= _brief(walk, brief["id"])
    return brief


def _children(walk: _Walk, node_id: str) -> list[dict[str, Any]]:
    """The nodes below, each with its own. A save that led to nothing is counted, not drawn."""
    found: list[dict[str, Any]] = []
    idle = hidden = 0
    for child, extra in _next(walk, node_id):
        if child in walk.reached:
            found.append(
                {
                    **_filled(walk, walk.reached[child]),
                    "via": _via(walk, child, node_id),
                    "repeated": True,
                    "children": [],
                }
            )
            continue
        if len(walk.reached) - walk.idle >= walk.nodes:
            walk.cut = True
            break
        brief = {"id": child, "kind": type_of(child), **extra}
        walk.reached[child] = brief
        below = _children(walk, child)
        if type_of(child) == CHECKPOINT and not below:
            idle += 1
            walk.idle += 1
            continue
        if walk.drawn >= DRAWN:
            hidden += 1
            continue
        walk.drawn += 1
        found.append({**_filled(walk, brief), "via": _via(walk, child, node_id), "children": below})
    if idle:
        title = f"{idle} checkpoint{'s' if idle > 1 else ''} that led to nothing else"
        found.append({"id": f"{node_id}>checkpoints", "kind": "summary", "title": title, "count": idle, "children": []})
    if hidden:
        title = f"{hidden} more, counted and not drawn"
        found.append({"id": f"{node_id}>more", "kind": "summary", "title": title, "count": hidden, "children": []})
    return found


def _next(walk: _Walk, node_id: str) -> list[tuple[str, dict[str, Any]]]:
    kind = type_of(node_id)
    if kind == EPISODE:
        return _versions_with(walk, node_id)
    if kind == CHECKPOINT and not has_children(walk.state, walk.project, node_id):
        return []  # as most are: a look at one row instead of a page
    below = [child for child in children(walk.state, walk.project, node_id) if type_of(child) != CONTRADICTION]
    below.sort(key=lambda child: type_of(child) != RELEASE)  # drawn at the model, not below its evaluation
    if kind != DATASET or node_id not in walk.index:
        return [(child, {}) for child in below]
    index = walk.index[node_id]
    return [(child, {}) for child in below if type_of(child) != DATASET and _read(walk, child, node_id, index)]


def _read(walk: _Walk, child: str, version: str, index: int | None) -> bool:
    """Whether a job read the episode that the walk began with."""
    if type_of(child) != JOB or index is None:
        return True
    return inside(index, windows_of(get(walk.state, walk.project, child)).get(version, []))


def _versions_with(walk: _Walk, episode: str) -> list[tuple[str, dict[str, Any]]]:
    """Every version whose list holds the episode: those of its upload, and those derived from one of them."""
    node = get(walk.state, walk.project, episode)
    if node is None:
        walk.missing.append({"id": episode, "reason": "no event has described it"})
        return []
    local = episode.partition(":")[2]
    uploads = sorted({parent for relation, parent in parents_of(node) if relation == UPLOADED_IN})
    waiting = [version for upload in uploads for version in children(walk.state, walk.project, upload, DATASET)]
    found: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    while waiting:
        version = waiting.pop()
        if version in seen:
            continue
        seen.add(version)
        about = get(walk.state, walk.project, version)
        listed = episodes_of(about, walk.lists)
        if listed.episodes is None:
            walk.missing.append({"id": version, "reason": listed.problem})
            walk.index[version] = None
            found[version] = {"possible": True}
        elif local in listed.episodes.indices:
            walk.index[version] = listed.episodes.indices[local]
            found[version] = {"index": walk.index[version]}
        else:
            continue
        waiting += children(walk.state, walk.project, version, DATASET)
    return sorted(found.items(), key=lambda item: name_and_number(item[0]))


def _via(walk: _Walk, child: str, parent: str) -> dict[str, Any] | None:
    node = get(walk.state, walk.project, child)
    if node is None:
        return None
    for (relation, found), events in parents_of(node).items():
        if found == parent:
            return {"event": events[0], "relation": relation}
    committed = first_fact(node, "DatasetVersionCommitted")
    return None if committed is None else {"event": committed.event, "relation": "contains"}


def _live(walk: _Walk) -> list[dict[str, Any]]:
    """Channels that point at a model version that was reached."""
    versions = {name_and_number(node_id) for node_id in walk.reached if type_of(node_id) == MODEL}
    found: list[dict[str, Any]] = []
    for model in sorted({name for name, _ in versions}):
        for channel in CHANNELS:
            current = pointer(walk.state, walk.project, model, channel).current
            if channel != "retired" and current is not None and (model, current) in versions:
                found.append({"model": model, "channel": channel, "number": current})
    return found
