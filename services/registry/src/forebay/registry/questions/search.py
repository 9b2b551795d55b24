"""`search`: model versions by task, robot, dataset and metric; datasets by task and robot.

Tasks and robots are few, so each is one small document per dataset (`Facet`). Model
versions are read page by page; a page says where to go on, so no answer is cut in silence.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forebay.registry.domain.evidence import evidence_words, is_typed
from forebay.registry.domain.names import top
from forebay.registry.domain.nodes import DATASET, MODEL, Facet, Node
from forebay.registry.domain.releases import evaluations_of, latest_evaluation
from forebay.registry.domain.view import shown
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.models import channels
from forebay.registry.questions.request_args import number, optional_text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State

PAGE = 50
SCAN = 500
"""Model versions read for one answer."""
_FACETS = 20_000
_CONDITION = re.compile(r"^\s*([^<>=!\s]+)\s*(?:(<=|>=|==|=|<|>)\s*(-?[0-9.]+(?:e-?[0-9]+)?))?\s*$", re.IGNORECASE)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


Named = dict[str, dict[str, list[str]]]
"""Dataset -> which of its tasks and robots fit."""


@dataclass(frozen=True, slots=True)
class _Metric:
    """`success>=0.8`, or only `success`: the version was measured by it."""

    name: str
    compare: str | None
    bound: float

    def holds(self, metrics: dict[str, float]) -> bool:
        found = metrics.get(self.name)
        return found is not None and (self.compare is None or _COMPARE[self.compare](found, self.bound))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The conditions of one search, all of which have to hold."""

    named: Named | None
    dataset: str | None
    metric: _Metric | None

    def takes(self, made_of: list[str]) -> bool:
        if self.named is not None and not any(_plain(one) in self.named for one in made_of):
            return False
        return self.dataset is None or any(_same(one, self.dataset) for one in made_of)


def search(state: State, request: Request) -> dict[str, Any]:
    """`search` {task?, robot?, dataset?, metric?, after?, limit?, as_of?}; every condition has to hold."""
    state, moment = as_of(state, request)
    project = request.project
    task, robot, dataset = (optional_text(request, name) for name in ("task", "robot", "dataset"))
    metric = _metric(optional_text(request, "metric"))
    if task is None and robot is None and dataset is None and metric is None:
        raise Refused("bad-request", "nothing to search for", "give a task, a robot, a dataset or a metric")
    named = None if task is None and robot is None else _datasets(state, project, task, robot)
    if dataset is not None and named is not None:
        named = {name: why for name, why in named.items() if name == _plain(dataset)}
    limit = number(request, "limit", PAGE, least=1, most=500)
    found, after = _models(state, request, _Wanted(named, dataset, metric), limit)
    missing = [] if after is None else [{"id": project, "reason": f"not every model was read; go on after {after}"}]
    return {
        "as_of": moment,
        "models": found,
        "datasets": [] if metric is not None or request.args.get("after") else _shown(state, project, named, dataset),
        "after": after,
        "complete": not missing,
        "missing": missing,
    }


def _metric(text: str | None) -> _Metric | None:
    if text is None:
        return None
    match = _CONDITION.match(text)
    if match is None:
        raise Refused("bad-request", f"{text!r} is no condition on a metric", "write for example success>=0.8")
    name, compare, bound = match.groups()
    try:
        return _Metric(name, compare, float(bound or 0))
    except ValueError:
        raise Refused("bad-request", f"{bound!r} is no number", "write for example success>=0.8") from None


def _plain(dataset: str) -> str:
    return dataset.removeprefix(f"{DATASET}:").partition("@")[0]


def _datasets(state: State, project: str, task: str | None, robot: str | None) -> Named:
    """Dataset -> the tasks and robots of it that fit; part of a word is enough."""
    found: Named | None = None
    for facet, wanted in (("task", task), ("robot", robot)):
        if wanted is None:
            continue
        prefix = f"{project}/{facet}/"
        fits: dict[str, list[str]] = {}
        for one in state.all(Facet, after=prefix, limit=_FACETS):
            if not one.key.startswith(prefix):
                break
            if wanted.casefold() in one.value.casefold():
                fits.setdefault(one.dataset, []).append(one.value)
        before = found
        found = {
            name: {**(before or {}).get(name, {}), facet: values}
            for name, values in fits.items()
            if before is None or name in before
        }
    return found or {}


def _shown(state: State, project: str, named: Named | None, dataset: str | None) -> list[dict[str, Any]]:
    if named is None:
        named = {} if dataset is None else {_plain(dataset): {}}
    return [
        {"dataset": name, "latest": top(state, project, DATASET, name), **{f"{k}s": v for k, v in why.items()}}
        for name, why in sorted(named.items())
        if top(state, project, DATASET, name) is not None or why
    ]


def _models(state: State, request: Request, wanted: _Wanted, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    prefix = f"{request.project}/{MODEL}:"
    after = str(request.args.get("after") or "")
    start = f"{request.project}/{after}" if after.startswith(f"{MODEL}:") else prefix
    page = state.all(Node, after=start, limit=SCAN)
    found: list[dict[str, Any]] = []
    for node in page:
        if not node.key.startswith(prefix):
            return found, None
        one = _fitting(state, request.project, node, wanted)
        if one is not None:
            found.append(one)
        if len(found) == limit:
            return found, node.id
    return found, page[-1].id if len(page) == SCAN else None


def _fitting(state: State, project: str, node: Node, wanted: _Wanted) -> dict[str, Any] | None:
    made_of, name, version = shown(node, "datasets", []), shown(node, "model"), shown(node, "number")
    if name is None or not wanted.takes(made_of):
        return None
    evaluation = latest_evaluation(state, evaluations_of(state, project, node))
    metrics = shown(evaluation, "metrics", {})
    if wanted.metric is not None and not wanted.metric.holds(metrics):
        return None
    live = [channel for channel, current in channels(state, project, name).items() if current == version]
    return {
        "id": node.id,
        "model": name,
        "number": version,
        "job": shown(node, "job"),
        "step": shown(node, "step"),
        "datasets": made_of,
        "metrics": metrics,
        "evidence": evidence_words(evaluation),
        "typed": evaluation is not None and is_typed(evaluation),
        "channels": live,
    }


def _same(pinned: str, wanted: str) -> bool:
    """`pick` means any version of it, `pick@v3` only that one."""
    plain = wanted.removeprefix(f"{DATASET}:")
    return pinned == f"{DATASET}:{plain}" if "@" in plain else _plain(pinned) == plain
