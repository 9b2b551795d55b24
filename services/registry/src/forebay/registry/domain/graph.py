"""Walking the lineage: children by key order, parents from a node's own facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from forebay.registry.domain.nodes import ATTEMPT, CHECKPOINT, Edge, Node, local_id, place_id
from forebay.registry.domain.view import shown
from forebay.runtime.state import ManyAtOnce, State

_FIRST_PAGE, _PAGE = 8, 512
"""Most nodes have few children, and what is read beyond them is read for nothing."""


def get(state: State, project: str, node_id: str) -> Node | None:
    return state.get(Node, f"{project}/{node_id}")


def fetch(state: State, project: str, ids: Iterable[str]) -> None:
    """Have these nodes at hand, where the state can read many at once."""
    if isinstance(state, ManyAtOnce):
        state.fetch(Node, [f"{project}/{one}" for one in ids])


def children(state: State, project: str, parent: str, kind: str = "") -> Iterator[str]:
    """Ids of the nodes that name `parent` as a parent, in id order; of one kind only when it is given."""
    prefix = f"{project}/{parent}>" + (f"{kind}:" if kind else "")
    if isinstance(state, ManyAtOnce):  # an edge's key says it all
        start = len(project) + len(parent) + 2
        yield from (key[start:] for key in state.below(Edge, [prefix]).get(prefix, ()))
        return
    after, limit = prefix, _FIRST_PAGE
    while True:
        page = state.all(Edge, after=after, limit=limit)
        for edge in page:
            if not edge.key.startswith(prefix):
                return
            yield edge.child
        if len(page) < limit:
            return
        after, limit = page[-1].key, min(_PAGE, 8 * limit)


def children_of(state: State, project: str, parents: Sequence[str]) -> dict[str, list[str]]:
    """The children of each of many nodes, in id order; those without any are left out."""
    if isinstance(state, ManyAtOnce):
        prefixes = {f"{project}/{one}>": one for one in parents}
        found = state.below(Edge, list(prefixes))
        return {prefixes[prefix]: [key[len(prefix) :] for key in keys] for prefix, keys in found.items()}
    looked = ((one, list(children(state, project, one))) for one in parents)
    return {one: below for one, below in looked if below}


def has_children(state: State, project: str, parent: str, kind: str = "") -> bool:
    prefix = f"{project}/{parent}>" + (f"{kind}:" if kind else "")
    page = state.all(Edge, after=prefix, limit=1)
    return bool(page) and page[0].key.startswith(prefix)


def attempts_of(state: State, project: str, job: str) -> list[tuple[int, str]]:
    """(number, id) of a job's attempts in numeric order, placeholders included."""
    found = [
        (int(local_id(child).rpartition("/")[2]), child) for child in children(state, project, f"job:{job}", ATTEMPT)
    ]
    return sorted(found)


def checkpoints_of(state: State, project: str, job: str) -> list[Node]:
    """Every checkpoint that any attempt of a job wrote, in (attempt, step) order."""
    found = [
        node
        for _, attempt in attempts_of(state, project, job)
        for child in children(state, project, attempt, CHECKPOINT)
        if (node := get(state, project, child)) is not None
    ]
    return sorted(found, key=lambda node: (shown(node, "attempt", 0), shown(node, "step", 0), node.id))


def written_to(state: State, project: str, uri: str) -> list[Node]:
    """Every checkpoint that was written to one place, in id order."""
    return [
        node
        for child in children(state, project, place_id(uri), CHECKPOINT)
        if (node := get(state, project, child)) is not None
    ]
