"""The moves of a channel: what it names now, what it named before, and what may move it."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.registry.domain.evidence import Demanded, meets
from forebay.registry.domain.graph import children, get
from forebay.registry.domain.nodes import EVALUATION, Arrival, Channel, Node, release_id
from forebay.registry.domain.view import first_fact, shown
from forebay.runtime.state import State


@dataclass(frozen=True, slots=True)
class Pointer:
    """A channel as it stands: how often it was moved, and the versions below the current one."""

    move: int
    stack: tuple[int, ...]
    """Oldest first; a release pushes, a rollback returns to an earlier one."""

    @property
    def current(self) -> int | None:
        return self.stack[-1] if self.stack else None

    @property
    def before(self) -> int | None:
        """What a rollback goes back to."""
        return self.stack[-2] if len(self.stack) > 1 else None


def pointer(state: State, project: str, model: str, channel: str) -> Pointer:
    """Replay a channel's moves. Pure, and independent of when each was heard of."""
    known = state.get(Channel, f"{project}/{model}@{channel}")
    if known is None:
        return Pointer(0, ())
    stack: list[int] = []
    for move in range(1, known.move + 1):
        node = get(state, project, release_id(model, channel, move))
        number = shown(node, "number")
        if number is None:
            continue
        if shown(node, "action") == "rollback" and number in stack:
            del stack[stack.index(number) + 1 :]
        elif not stack or stack[-1] != number:
            stack.append(number)
    return Pointer(known.move, tuple(stack))


def evaluations_of(state: State, project: str, model: Node) -> list[Node]:
    """Evaluations bound to exactly the artefact that the version is, in id order."""
    artefact = shown(model, "artefact_sha256")
    return [
        node
        for child in children(state, project, model.id, EVALUATION)
        if (node := get(state, project, child)) is not None
        and shown(node, "artefact_sha256") == artefact
        and first_fact(node, "EvaluationRecorded") is not None
    ]


def latest_evaluation(state: State, evaluations: list[Node], demanded: Demanded | None = None) -> Node | None:
    """The one to name in a release: the last in the log; of those with the demanded evidence, when there are any."""
    fitting = [node for node in evaluations if meets(node, demanded)]
    return max(fitting or evaluations, key=lambda node: (_place(state, node), node.id), default=None)


def _place(state: State, evaluation: Node) -> int:
    """Where the log has it. Nobody's clock decides what came last."""
    fact, arrival = first_fact(evaluation, "EvaluationRecorded"), state.get(Arrival, evaluation.key)
    if fact is None or arrival is None:
        return 0
    return next((seen.seq for seen in arrival.seen() if seen.event == fact.event), 0)
