"""Things that were made from themselves: no story can explain that."""

from __future__ import annotations

from forebay.registry.domain.graph import get, has_children
from forebay.registry.domain.nodes import ATTEMPT, CHECKPOINT, Node
from forebay.registry.domain.relations import BASED_ON, DERIVED_FROM, RESUMED_FROM, STARTS_FROM
from forebay.registry.domain.view import parents_of
from forebay.runtime.state import State

_BACK = frozenset({BASED_ON, DERIVED_FROM, RESUMED_FROM, STARTS_FROM})
"""Only these can lead back; without one of them at the start there is nothing to look for."""
_MOST = 500


def cycle_through(state: State, project: str, node: Node) -> tuple[str, ...]:
    """Ids on a way upwards from a node back to itself, the smallest first; empty when there is none."""
    if node.type == CHECKPOINT:
        if not has_children(state, project, node.id, ATTEMPT):
            return ()
    elif not any(relation in _BACK for relation, _ in parents_of(node)):
        return ()
    came_from: dict[str, str] = {}
    waiting = [node.id]
    while waiting and len(came_from) < _MOST:
        here = waiting.pop()
        found = get(state, project, here)
        for _, parent in parents_of(found) if found is not None else ():
            if parent == node.id:
                return _turned(_path(came_from, node.id, here))
            if parent not in came_from:
                came_from[parent] = here
                waiting.append(parent)
    return ()


def _path(came_from: dict[str, str], start: str, end: str) -> list[str]:
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def _turned(path: list[str]) -> tuple[str, ...]:
    """The same cycle reads the same wherever it was found."""
    first = path.index(min(path))
    return (*path[first:], *path[:first])
