"""What contradicts itself: of one node and all that made it, or of the whole project in pages."""

from __future__ import annotations

from typing import Any

from forebay.registry.domain.contradictions import Contradiction, every, step_back
from forebay.registry.domain.graph import get
from forebay.registry.domain.log_clock import skewed_writers
from forebay.registry.domain.names import resolve
from forebay.registry.domain.nodes import CONTRADICTION, JOB, Node, local_id
from forebay.registry.domain.view import parents_of
from forebay.registry.questions.request_args import number, optional_text
from forebay.runtime.machine import Request
from forebay.runtime.state import State

SCAN = 1000
ANCESTORS = 500


def contradictions(state: State, request: Request) -> dict[str, Any]:
    """`contradictions` {id?, after?, limit?}: a page of the project, or one node with everything above it."""
    wanted = optional_text(request, "id")
    if wanted is None:
        return _page(state, request)
    root = resolve(state, request.project, wanted)
    nodes, cut = above(state, request.project, root)
    found = [one for node in nodes for one in of_node(state, request.project, node)]
    found += skewed_writers(state, request.project, nodes, everywhere=False)
    return {"id": root, "contradictions": to_json(found), "checked": len(nodes), "after": None, "complete": not cut}


def _page(state: State, request: Request) -> dict[str, Any]:
    limit = number(request, "limit", SCAN, least=1, most=5000)
    prefix = f"{request.project}/"
    start = str(request.args.get("after") or "")
    page = state.all(Node, after=prefix + start, limit=limit)
    nodes = [node for node in page if node.key.startswith(prefix)]
    found = [one for node in nodes for one in of_node(state, request.project, node)]
    if not start:
        found += skewed_writers(state, request.project, nodes, everywhere=True)
    more = len(nodes) == limit
    return {
        "id": None,
        "contradictions": to_json(found),
        "checked": len(nodes),
        "after": nodes[-1].id if more else None,
        "complete": not more,
    }


def of_node(state: State, project: str, node: Node) -> list[Contradiction]:
    if node.type == CONTRADICTION:
        return []
    found = every(state, project, node)
    if node.type == JOB:
        found += step_back(state, project, local_id(node.id))
    return found


def above(state: State, project: str, root: str) -> tuple[list[Node], bool]:
    waiting, seen = [root], {root}
    found: list[Node] = []
    while waiting and len(found) < ANCESTORS:
        node = get(state, project, waiting.pop())
        if node is None:
            continue
        found.append(node)
        for _, parent in parents_of(node):
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return found, bool(waiting)


def to_json(found: list[Contradiction]) -> list[dict[str, Any]]:
    """Each once: two neighbours may both see the same one."""
    unique = {(one.code, one.subject, one.message): one for one in found}
    return [one.to_json() for _, one in sorted(unique.items())]
