"""What made this: the tree from any node up to its episodes.

Bounded in depth and size; what was left out, is missing, or cannot be read is
listed, and the answer is `complete` only when nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from forebay.registry.domain.contradictions import within
from forebay.registry.domain.graph import get
from forebay.registry.domain.log_clock import times_json
from forebay.registry.domain.nodes import CHECKPOINT, DATASET, EPISODE, JOB, Arrival, Node
from forebay.registry.domain.relations import DERIVED_FROM, HOLDS, READS, STARTS_FROM
from forebay.registry.domain.view import TIMES, first_fact, node_json, parents_of, shown
from forebay.registry.ports import EpisodeLists
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.request_args import flag, number, optional_text, text
from forebay.registry.questions.version_episodes import (
    Window,
    episode_name,
    episodes_of,
    inside,
    resolve_any,
    windows_of,
)
from forebay.runtime.machine import Question, Request
from forebay.runtime.state import State

DEPTH = 24
NODES = 400
EPISODES = 20


@dataclass(slots=True)
class _Walk:
    """One walk upwards: what was seen, and what is missing."""

    state: State
    project: str
    lists: EpisodeLists
    depth: int
    nodes: int
    episodes: int
    episodes_after: str | None
    claims: bool
    expanded: set[str] = field(default_factory=set)
    missing: list[dict[str, str]] = field(default_factory=list)
    contradictions: list[dict[str, Any]] = field(default_factory=list)

    def lack(self, node_id: str, reason: str) -> None:
        entry = {"id": node_id, "reason": reason}
        if entry not in self.missing:
            self.missing.append(entry)


def lineage(lists: EpisodeLists) -> Question:
    """The question `lineage` {id, depth?, nodes?, episodes?, episodes_after?, claims?, as_of?}."""

    def answer(state: State, request: Request) -> dict[str, Any]:
        state, moment = as_of(state, request)
        node_id = resolve_any(state, request.project, text(request, "id"), lists)
        walk = _Walk(
            state=state,
            project=request.project,
            lists=lists,
            depth=number(request, "depth", DEPTH, most=200),
            nodes=number(request, "nodes", NODES, least=1, most=2000),
            episodes=number(request, "episodes", EPISODES, most=500),
            episodes_after=optional_text(request, "episodes_after"),
            claims=flag(request, "claims"),
        )
        tree = _node(walk, node_id, None, windows=[], level=0)
        return {
            "id": node_id,
            "query": request.args["id"],
            "as_of": moment,
            "tree": tree,
            "complete": not walk.missing,
            "missing": walk.missing,
            "contradictions": walk.contradictions,
        }

    return answer


def _node(
    walk: _Walk, node_id: str, via: dict[str, Any] | None, *, windows: list[Window | None], level: int
) -> dict[str, Any]:
    node = get(walk.state, walk.project, node_id)
    found = node_json(node_id, node, claims=walk.claims)
    if node is not None:
        found["fields"] |= times_json(walk.state, node, TIMES.get(node.type, ()))
    if via is not None:
        found["via"] = via
    found["parents"] = []
    if node is None or not node.facts:
        walk.lack(node_id, "no event has described it")
        return found
    if node_id in walk.expanded:
        found["repeated"] = True
        return found
    if level >= walk.depth or len(walk.expanded) >= walk.nodes:
        found["cut"] = True
        walk.lack(node_id, f"its parents are beyond depth {walk.depth} or {walk.nodes} nodes; ask for it by its id")
        return found
    walk.expanded.add(node_id)
    walk.contradictions += [one.to_json() for one in within(node)]
    _note_gaps(walk, node)
    if node.type == DATASET:
        _add_episodes(walk, node, found, windows)
    read = windows_of(node) if node.type == JOB else {}
    for (relation, parent), events in parents_of(node).items():
        if relation == HOLDS:
            continue
        edge = _via(walk, node, parent, relation, events[0])
        if relation == DERIVED_FROM:
            found["parents"].append(_leaf(walk, parent, edge))
        else:
            found["parents"].append(_node(walk, parent, edge, windows=read.get(parent, []), level=level + 1))
    return found


def _leaf(walk: _Walk, node_id: str, via: dict[str, Any]) -> dict[str, Any]:
    """A parent whose own tree adds nothing here: the version it was derived into lists its episodes itself."""
    node = get(walk.state, walk.project, node_id)
    if node is None:
        walk.lack(node_id, "no event has described it")
    return {**node_json(node_id, node), "via": via, "parents": [], "collapsed": True}


def _note_gaps(walk: _Walk, node: Node) -> None:
    if node.type == CHECKPOINT and shown(node, "imported") is not None:
        unknown = shown(node, "unknown", [])
        walk.lack(node.id, f"imported, not seen by Forebay; unknown: {', '.join(unknown) or 'how it was trained'}")
    if node.type != JOB or shown(node, "imported"):
        return
    if first_fact(node, "JobSubmitted") is None:
        walk.lack(node.id, "no event has said what was submitted")
    if not any(relation in {READS, STARTS_FROM} for relation, _ in parents_of(node)):
        declared = first_fact(node, "LeaseGranted")
        if declared is None:
            walk.lack(node.id, "no event has pinned its inputs, so the versions it read are UNKNOWN")


def _via(walk: _Walk, child: Node, parent: str, relation: str, event: str) -> dict[str, Any]:
    found: dict[str, Any] = {"event": event, "relation": relation}
    mine = walk.state.get(Arrival, child.key)
    theirs = walk.state.get(Arrival, f"{walk.project}/{parent}")
    if mine is not None and mine.event == event:
        found["seq"] = mine.seq
    if mine is not None and theirs is not None and theirs.seq > mine.seq:
        found["late"] = True
    return found


def _add_episodes(walk: _Walk, node: Node, found: dict[str, Any], windows: list[Window | None]) -> None:
    listed = episodes_of(node, walk.lists)
    committed = first_fact(node, "DatasetVersionCommitted")
    if listed.episodes is None or committed is None:
        walk.lack(node.id, listed.problem or "no event has committed this version, so its episodes are unknown")
        found["episodes"] = {"total": None, "read": None, "shown": 0, "after": None}
        return
    read = [(episode, index) for episode, index in listed.episodes.indices.items() if inside(index, windows)]
    start = 0
    if walk.episodes_after is not None:
        start = next((place + 1 for place, (one, _) in enumerate(read) if one == walk.episodes_after), 0)
    page = read[start : start + walk.episodes]
    via = {"event": committed.event, "relation": "contains"}
    for episode, index in page:
        node_id = f"{EPISODE}:{episode}"
        about = get(walk.state, walk.project, node_id)
        if about is None:
            walk.lack(node_id, "no event has described it")
        found["parents"].append(
            {
                **node_json(node_id, about),
                "index": index,
                "name": episode_name(node.id, index),
                "via": via,
                "parents": [],
            }
        )
    more = start + len(page) < len(read)
    found["episodes"] = {
        "total": len(listed.episodes.indices),
        "read": len(read),
        "shown": len(page),
        "after": page[-1][0] if page and more else None,
    }
