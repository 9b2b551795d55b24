"""Who may hold how much of the cache: reservation before the first byte, and what goes to make room.

Pure arithmetic over claims. The rules: never more than the budget of the pool nor of
the project, never anything that somebody wants, expired plans before others, those
unused for longest first, and nothing goes unless it makes enough room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from forebay.cache.domain.wording import show_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one plan takes of the cache of one node."""

    key: str
    project: str
    room_bytes: int
    wanted: bool
    expired: bool
    used_at: datetime
    bases: tuple[tuple[str, int], ...] = ()
    """Plans that it shares bytes with, and what it takes beside each: the first that is held too counts."""
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """None: no limit."""

    pool_bytes: int | None
    project_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """There is room now."""

    reserved_bytes: int
    available_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeRoom:
    """There is room once these have gone, in this order."""

    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """There is no room, whatever goes."""

    whose: str
    """`the cache` or `project arm-lab`."""
    needed_bytes: int
    budget_bytes: int
    available_bytes: int
    """What nobody wants, free or not."""
    evictable_bytes: int
    """What of it is held by plans that nobody wants."""
    holders: tuple[str, ...]
    """Jobs that lease the rest."""

    @property
    def message(self) -> str:
        held = ""
        if self.holders:
            others = f" and {len(self.holders) - 3} more" if len(self.holders) > 3 else ""
            held = f"; the rest is leased by {', '.join(self.holders[:3])}{others}"
        could = (
            f", {show_bytes(self.evictable_bytes)} of them by evicting what nobody uses" if self.evictable_bytes else ""
        )
        advice = "ask for fewer columns or episodes, wait until other jobs end, or raise the budget"
        return (
            f"the plan needs {show_bytes(self.needed_bytes)} of cache, but of the {show_bytes(self.budget_bytes)} of "
            f"{self.whose} only {show_bytes(self.available_bytes)} can be had{could}{held}: {advice}"
        )


Verdict = Fits | MakeRoom | Refuse


def held_bytes(claims: Iterable[Claim]) -> int:
    """What claims take together; bytes shared with a base that is held count once."""
    there = {claim.key: claim for claim in claims}
    return sum(_beside(claim, there) for claim in there.values())


def _beside(claim: Claim, there: Mapping[str, Claim]) -> int:
    return next((beside for base, beside in claim.bases if base in there), claim.room_bytes)


def eviction_order(claims: Iterable[Claim]) -> list[Claim]:
    """What may go, first to go first: expired, then unused for longest. Never what somebody wants."""
    free = [claim for claim in claims if not claim.wanted]
    return sorted(free, key=lambda claim: (not claim.expired, claim.used_at, claim.key))


def admit(asked: Claim, held: Sequence[Claim], budgets: Budgets) -> Verdict:
    """Whether a plan may be brought in, at whose cost, or why not."""
    others = [claim for claim in held if claim.key != asked.key]
    limits: list[tuple[int, str, Callable[[Claim], bool]]] = []
    if budgets.project_bytes is not None:
        limits.append((budgets.project_bytes, f"project {asked.project}", lambda one: one.project == asked.project))
    if budgets.pool_bytes is not None:
        limits.append((budgets.pool_bytes, "the cache", lambda _: True))
    victims: list[str] = []
    left = others
    while over := [limit for limit in limits if _exceeds(asked, [*filter(limit[2], left)], limit[0])]:
        budget, whose, counts = over[0]
        candidates = eviction_order(filter(counts, left))
        if not candidates:
            return _refuse(asked, [one for one in others if counts(one)], budget, whose)
        victims.append(candidates[0].key)
        left = [claim for claim in left if claim.key != candidates[0].key]
    if victims:
        return MakeRoom(victims=tuple(victims))
    free = [budget - held_bytes([asked, *filter(counts, left)]) for budget, _, counts in limits]
    reserved = max(0, held_bytes([asked, *left]) - held_bytes(left))
    return Fits(reserved_bytes=reserved, available_bytes=max(0, min(free)) if free else None)


def _exceeds(asked: Claim, others: Sequence[Claim], budget: int) -> bool:
    """What takes no room beside the others exceeds nothing, even where a budget was lowered below what is held."""
    return max(budget, held_bytes(others)) < held_bytes([asked, *others])


def _refuse(asked: Claim, others: Sequence[Claim], budget: int, whose: str) -> Refuse:
    wanted = [claim for claim in others if claim.wanted]
    leased = held_bytes(wanted)
    holders = sorted({job for claim in wanted for job in claim.jobs})
    return Refuse(
        whose=whose,
        needed_bytes=max(0, held_bytes([asked, *wanted]) - leased),
        budget_bytes=budget,
        available_bytes=max(0, budget - leased),
        evictable_bytes=held_bytes(others) - leased,
        holders=tuple(holders),
    )
