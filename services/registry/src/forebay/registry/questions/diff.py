"""`diff`: what changed between two model versions, from the data to the parameters."""

from __future__ import annotations

from typing import Any

from forebay.registry.domain.graph import get
from forebay.registry.domain.nodes import Node
from forebay.registry.domain.view import shown
from forebay.registry.ports import EpisodeLists
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.models import version_of
from forebay.registry.questions.request_args import number, text
from forebay.registry.questions.story import Story, story_of
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Question, Request
from forebay.runtime.state import State

_LISTED = 20
_ORDER = ("data", "base models", "code", "image", "parameters", "training", "result")
_GROUPS = {
    "base models": "base models",
    "code revision": "code",
    "command": "code",
    "image": "image",
    "metrics": "result",
    "metrics from": "result",
    "artefact": "result",
}


def diff(lists: EpisodeLists) -> Question:
    """The question `diff` {a, b, listed?, as_of?}."""

    def answer(state: State, request: Request) -> dict[str, Any]:
        state, moment = as_of(state, request)
        listed = number(request, "listed", _LISTED, most=500)
        a, b = (story_of(state, request.project, _model(state, request, name), lists) for name in ("a", "b"))
        found = [*_data(a, b, listed), *_fields(a, b), *_pairs("parameters", a.parameters, b.parameters)]
        found += _pairs("result", a.metrics, b.metrics)
        found.sort(key=lambda one: (_ORDER.index(one["group"]), one["what"]))
        unknown = sorted({what for what in a.fields if a.fields[what] is None and b.fields[what] is None})
        missing = [*a.missing, *(one for one in b.missing if one not in a.missing)]
        return {
            "a": a.id,
            "b": b.id,
            "as_of": moment,
            "differences": found,
            "same": [what for what in a.fields if a.fields[what] == b.fields[what] and a.fields[what] is not None],
            "unknown": unknown,
            "complete": not missing,
            "missing": missing,
        }

    return answer


def _model(state: State, request: Request, argument: str) -> Node:
    wanted = text(request, argument)
    node_id = version_of(state, request.project, wanted, None)
    node = get(state, request.project, node_id)
    if node is None or shown(node, "artefact_sha256") is None:
        raise Refused("unknown-id", f"no event has registered {node_id}", "see what there is with: forebay model list")
    return node


def _data(a: Story, b: Story, listed: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for pinned in sorted({*a.datasets, *b.datasets}):
        mine, theirs = a.datasets.get(pinned), b.datasets.get(pinned)
        if mine != theirs:
            found.append({"group": "data", "what": pinned, "a": mine, "b": theirs})
    if None in {*a.episodes.values(), *b.episodes.values()}:
        return found
    ours = frozenset[str]().union(*(one for one in a.episodes.values() if one))
    others = frozenset[str]().union(*(one for one in b.episodes.values() if one))
    if ours != others:
        only_a, only_b = sorted(ours - others), sorted(others - ours)
        found.append(
            {
                "group": "data",
                "what": "episodes",
                "a": {"total": len(ours), "only_here": len(only_a), "episodes": only_a[:listed]},
                "b": {"total": len(others), "only_here": len(only_b), "episodes": only_b[:listed]},
            }
        )
    return found


def _fields(a: Story, b: Story) -> list[dict[str, Any]]:
    return [
        {"group": _GROUPS.get(what, "training"), "what": what, "a": a.fields[what], "b": b.fields[what]}
        for what in a.fields
        if a.fields[what] != b.fields[what]
    ]


def _pairs(group: str, a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"group": group, "what": name, "a": a.get(name), "b": b.get(name)}
        for name in sorted({*a, *b})
        if a.get(name) != b.get(name) or (name in a) != (name in b)
    ]
