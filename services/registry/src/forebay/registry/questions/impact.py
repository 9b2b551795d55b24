"""What did this reach: from an episode (or any node) down to versions, jobs, checkpoints, models, releases.

An episode reaches a version only when the version's own list holds it, and a job
only when the job read that part. Where a list cannot be read, the version stays in
the answer as `possible`, and the answer is not complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forebay.registry.domain.graph import children, children_of, fetch, get
from forebay.registry.domain.names import CHANNELS
from forebay.registry.domain.nodes import (
    CHECKPOINT,
    CONTRADICTION,
    DATASET,
    EPISODE,
    JOB,
    MODEL,
    name_and_number,
    type_of,
)
from forebay.registry.domain.relations import UPLOADED_IN
from forebay.registry.domain.releases import pointer
from forebay.registry.domain.view import first_fact, node_json, parents_of, state_of, title_of
from forebay.registry.ports import EpisodeLists
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.request_args import number, text
from forebay.registry.questions.version_episodes import episode_name, episodes_of, inside, resolve_any, windows_of
from forebay.runtime.machine import Question, Request
from forebay.runtime.state import State

NODES = 3000
LISTED = 100
DRAWN = 300
"""Nodes of the tree; the counts and lists beside it go on to `nodes`."""
_Child = tuple[str, str, Mapping[str, Any]]
"""A node's id and kind, and what the walk knows about it."""
_NOTHING: Mapping[str, Any] = {}


@dataclass(slots=True)
class _Walk:
    """One walk downwards, level by level: what was reached, and what could not be known."""

    state: State
    project: str
    lists: EpisodeLists
    nodes: int
    index: dict[str, int | None] = field(default_factory=dict)
    """For an episode's walk: its dense index in each version reached; None where the list is not available."""
    reached: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)
    below: dict[str, list[_Child]] = field(default_factory=dict)
    """What hangs below the nodes of the next level; nodes without any are left out."""
    idle: int = 0
    """Saves among them that led to nothing; they use up none of `nodes`."""
    drawn: int = 0
    cut: bool = False


@dataclass(slots=True)
class _Branch:
    """A node whose children come next; `drawn` is None for one that is only counted."""

    id: str
    drawn: list[dict[str, Any]] | None
    idle: int = 0
    hidden: int = 0


def impact(lists: EpisodeLists) -> Question:
    """The question `impact` {id, nodes?, listed?, as_of?}."""

    def answer(state: State, request: Request) -> dict[str, Any]:
        state, moment = as_of(state, request)
        node_id = resolve_any(state, request.project, text(request, "id"), lists)
        walk = _Walk(state, request.project, lists, number(request, "nodes", NODES, least=1, most=20_000))
        listed = number(request, "listed", LISTED, most=2000)
        node = get(state, request.project, node_id)
        tree = {**_brief(walk, node_id), "children": _reach(walk, node_id)}
        if walk.cut:
            walk.missing.append(
                {"id": node_id, "reason": f"more than {walk.nodes} nodes are reached; ask with a larger 'nodes'"}
            )
        grouped: dict[str, list[dict[str, Any]]] = {}
        for one in walk.reached.values():
            grouped.setdefault(one["kind"], []).append(one)
        for several in grouped.values():
            fetch(state, request.project, [one["id"] for one in several[:listed] if "title" not in one])
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


def _reach(walk: _Walk, root: str) -> list[dict[str, Any]]:
    """Everything below a node; returns what is drawn of it. Each node is drawn at its shortest way."""
    top: list[dict[str, Any]] = []
    level = [_Branch(root, top)]
    _look_below(walk, [root])
    while level and not walk.cut:
        found = [(branch, walk.below[branch.id]) for branch in level if branch.id in walk.below]
        fresh = [(child, kind) for _, below in found for child, kind, _ in below if child not in walk.reached]
        _look_below(walk, [child for child, _ in fresh])
        seen = [child for child, kind in fresh if kind != CHECKPOINT or child in walk.below]
        fetch(walk.state, walk.project, seen[: max(0, DRAWN - walk.drawn)])
        level = [one for branch, below in found for one in _grow(walk, branch, below)]
    return top


def _look_below(walk: _Walk, ids: Sequence[str]) -> None:
    """One look for a whole level: few of the saves led to anything."""
    found = children_of(walk.state, walk.project, ids)
    walk.below = {}
    for node_id, below in found.items():
        kept = [(child, kind, _NOTHING) for child in below if (kind := type_of(child)) != CONTRADICTION]
        if node_id in walk.index:
            kept = _of_the_episode(walk, node_id, kept)
        if kept:
            walk.below[node_id] = kept
    for node_id in ids:
        if type_of(node_id) == EPISODE and (versions := _versions_with(walk, node_id)):
            walk.below[node_id] = versions


def _of_the_episode(walk: _Walk, version: str, below: list[_Child]) -> list[_Child]:
    """What a version led to, without later versions (they have lists of their own) and jobs that read another part."""
    fetch(walk.state, walk.project, [child for child, kind, _ in below if kind == JOB])
    index = walk.index[version]
    return [one for one in below if one[1] != DATASET and _read(walk, one[0], one[1], version, index)]


def _grow(walk: _Walk, branch: _Branch, below: list[_Child]) -> list[_Branch]:
    """Add the children of one node. A save that led to nothing is counted, not drawn."""
    grown: list[_Branch] = []
    for child, kind, extra in below:
        brief = walk.reached.get(child)
        known = brief is not None
        if brief is None:
            if len(walk.reached) - walk.idle >= walk.nodes:
                walk.cut = True
                break
            brief = walk.reached[child] = {"id": child, "kind": kind, **extra}
            if kind == CHECKPOINT and child not in walk.below:
                branch.idle += 1
                walk.idle += 1
                continue
        place: list[dict[str, Any]] | None = None
        if branch.drawn is not None and walk.drawn < DRAWN:
            walk.drawn += 1
            place = []
            repeated = {"repeated": True} if known else {}
            via = _via(walk, child, branch.id)
            branch.drawn.append({**_filled(walk, brief), "via": via, **repeated, "children": place})
        else:
            branch.hidden += 1
        if not known and child in walk.below:
            grown.append(_Branch(child, place))
    if branch.drawn is not None:
        branch.drawn += _summaries(branch)
    return grown


def _summaries(branch: _Branch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if branch.idle:
        title = f"{branch.idle} checkpoint{'s' if branch.idle > 1 else ''} that led to nothing else"
        found.append(_summary(f"{branch.id}>checkpoints", title, branch.idle))
    if branch.hidden:
        found.append(_summary(f"{branch.id}>more", f"{branch.hidden} more, counted and not drawn", branch.hidden))
    return found


def _summary(id_: str, title: str, count: int) -> dict[str, Any]:
    return {"id": id_, "kind": "summary", "title": title, "count": count, "children": []}


def _read(walk: _Walk, child: str, kind: str, version: str, index: int | None) -> bool:
    """Whether a job read the episode that the walk began with."""
    if kind != JOB or index is None:
        return True
    return inside(index, windows_of(get(walk.state, walk.project, child)).get(version, []))


def _versions_with(walk: _Walk, episode: str) -> list[_Child]:
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
            index = listed.episodes.indices[local]
            found[version] = {"index": index, "name": episode_name(version, index)}
        else:
            continue
        waiting += children(walk.state, walk.project, version, DATASET)
    return [(one, DATASET, about) for one, about in sorted(found.items(), key=lambda item: name_and_number(item[0]))]


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
    versions = {name_and_number(one["id"]) for one in walk.reached.values() if one["kind"] == MODEL}
    found: list[dict[str, Any]] = []
    for model in sorted({name for name, _ in versions}):
        for channel in CHANNELS:
            current = pointer(walk.state, walk.project, model, channel).current
            if channel != "retired" and current is not None and (model, current) in versions:
                found.append({"model": model, "channel": channel, "number": current})
    return found
