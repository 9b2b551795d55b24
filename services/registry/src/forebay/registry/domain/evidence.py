"""Where the numbers of an evaluation come from, and whether that is enough for a gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from forebay.contracts.v1.models import GateResult
from forebay.registry.domain.nodes import Node
from forebay.registry.domain.view import shown

Demanded = Literal["file", "job"]
_RANK = {"typed": 0, "file": 1, "job": 2}
DEMANDS = tuple(name for name in _RANK if name != "typed")
_WORDS = {"file": "a file with its digest", "job": "a file that a job wrote"}


def rank_of(evaluation: Node | None) -> int:
    """0: typed by hand, or recorded before sources were kept."""
    said: dict[str, Any] = shown(evaluation, "evidence", {})
    return _RANK.get(str(said.get("kind")), 0)


def is_typed(evaluation: Node | None) -> bool:
    """Whether any of its numbers was given by hand, as far as anybody knows."""
    return rank_of(evaluation) == 0 or bool(shown(evaluation, "evidence", {}).get("typed"))


def evidence_words(evaluation: Node | None) -> str | None:
    """Where the numbers come from, for a person; None without an evaluation."""
    if evaluation is None:
        return None
    said: dict[str, Any] | None = shown(evaluation, "evidence")
    if said is None:
        return "source not recorded: counts as typed by hand"
    if said["kind"] == "typed":
        return "typed by hand"
    file = f"file {said.get('file')} (sha256 {str(said.get('sha256'))[:12]})"
    origin = f"job {said['job']}, {file}" if said["kind"] == "job" else file
    typed = f"; typed by hand: {', '.join(said['typed'])}" if said.get("typed") else ""
    return origin + typed


def strictest(demands: Iterable[Demanded | None]) -> Demanded | None:
    """The one that asks for most."""
    found = [one for one in demands if one is not None]
    return max(found, key=lambda one: _RANK[one], default=None)


def meets(evaluation: Node | None, demanded: Demanded | None) -> bool:
    return demanded is None or rank_of(evaluation) >= _RANK[demanded]


def check_evidence(evaluation: Node | None, demanded: Demanded, metrics: Iterable[str]) -> GateResult:
    """The rule that a policy makes of its `evidence`; numbers beside the file count as typed when a rule uses them."""
    typed = sorted({*metrics} & {*shown(evaluation, "evidence", {}).get("typed", ())})
    passed = meets(evaluation, demanded) and not typed
    why = evidence_words(evaluation) or "there is no evaluation"
    if meets(evaluation, demanded) and typed:
        why = f"typed by hand: {', '.join(typed)}"
    return GateResult(metric="evidence", rule=f"from {_WORDS[demanded]}", passed=passed, message=why)
