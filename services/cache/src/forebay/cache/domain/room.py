"""Room on one node as the log tells it: who claims what, which budgets hold, and the answer to a new claim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.cache.domain.budget import Budgets, Claim, Fits, MakeRoom, Refuse, admit
from forebay.cache.domain.documents import CLAIMING, EXPIRED, RESIDENT, Plan, Policy, PoolState
from forebay.contracts.v1.cache import CacheReserved
from forebay.runtime.machine import Pending
from forebay.runtime.state import State

_CHAIN = 8
"""How many versions back shared bytes are followed."""
LEFT_FREE = 0.05
"""Of a pool's own limit: it begins to drop blocks a little before it is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Exactly one of the three."""

    reserved: Fits | None = None
    victims: tuple[Plan, ...] = ()
    refused: Refuse | None = None


class Room:
    """Claims on one node; what it grants counts for the next question."""

    def __init__(self, state: State, pending: Pending, *, node: str, budget_bytes: int | None) -> None:
        self._state = state
        self._node = node
        self._pool_bytes = pool_budget(state, node, budget_bytes)
        self._plans = {plan.key: plan for plan in state.find(Plan, "live", "live")}
        deciding = {body.plan for body in pending.of(CacheReserved)}
        self._held = {
            plan.key: claim_of(state, plan, node)
            for plan in self._plans.values()
            if holds(plan, node) or (plan.id in deciding and plan.wanted)
        }

    def ask(self, plan: Plan) -> Answer:
        """Ask for a plan that somebody wants."""
        policy = self._state.get(Policy, plan.project)
        budgets = Budgets(pool_bytes=self._pool_bytes, project_bytes=policy.budget_bytes if policy else None)
        asked = claim_of(self._state, plan, self._node)
        match admit(asked, list(self._held.values()), budgets):
            case Fits() as fits:
                self._held[plan.key] = asked
                return Answer(reserved=fits)
            case MakeRoom(victims=victims):
                return Answer(victims=tuple(self._plans[key] for key in victims))
            case Refuse() as refused:
                return Answer(refused=refused)


def pool_budget(state: State, node: str, budget_bytes: int | None) -> int | None:
    """What all plans may hold on a node: what was set, and no more than the pool keeps."""
    pool = state.get(PoolState, node)
    limit = None if pool is None or pool.limit_bytes is None else int(pool.limit_bytes * (1 - LEFT_FREE))
    known = [one for one in (budget_bytes, limit) if one is not None]
    return min(known, default=None)


def holds(plan: Plan, node: str) -> bool:
    """Whether a plan takes room: it has a claim, or bytes of it may lie there."""
    state = plan.on(node).state
    return state in CLAIMING if plan.wanted else state in RESIDENT


def claim_of(state: State, plan: Plan, node: str) -> Claim:
    return Claim(
        key=plan.key,
        project=plan.project,
        room_bytes=plan.aligned_bytes,
        wanted=plan.wanted,
        expired=plan.on(node).state == EXPIRED,
        used_at=plan.used_at,
        bases=tuple(_bases(state, plan)),
        jobs=plan.jobs,
    )


def _bases(state: State, plan: Plan) -> Iterator[tuple[str, int]]:
    """What it takes beside the plan that it shares with, or, when that one goes, beside what that one shares with."""
    beside, one = 0, plan
    for _ in range(_CHAIN):
        if one.previous is None or one.new_aligned_bytes is None:
            return
        beside += one.new_aligned_bytes
        if beside >= plan.aligned_bytes:
            return
        yield one.previous, beside
        before = state.get(Plan, one.previous)
        if before is None:
            return
        one = before


def facts_of(refused: Refuse) -> dict[str, int]:
    """The numbers of a refusal, as its event has them."""
    return {
        "needed_bytes": refused.needed_bytes,
        "available_bytes": refused.available_bytes,
        "budget_bytes": refused.budget_bytes,
        "evictable_bytes": refused.evictable_bytes,
    }
