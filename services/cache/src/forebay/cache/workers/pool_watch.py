"""Companion: looks at the pool at start and every half minute, and at every plan at start.

The disk decides, not memory: after a restart everything that was ready is looked at
before anybody relies on it for long, and whatever is wanted and not ready is taken up
again. What will hurt is said before it does, in the log,
in `health` and, by `CachePoolSeen`, in `forebay cache list`.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from forebay.cache.domain.decide import CHECK, RETRY
from forebay.cache.domain.documents import READY, Plan, PoolState
from forebay.cache.domain.pool_facts import Concern, PoolFacts, concerns
from forebay.cache.errors import PoolError
from forebay.cache.ports import Pool
from forebay.contracts.identifiers import CLUSTER_PROJECT
from forebay.contracts.v1.cache import CachePoolSeen, PoolConcern
from forebay.runtime.companion import Company
from forebay.runtime.machine import Action, Deadline, Emit, Work
from forebay.runtime.state import State

_log = logging.getLogger(__name__)
LOOK_EVERY_S = 30.0
MUCH = 0.1
"""Numbers are said again when they changed by this share of the limit or disk."""


class PoolWatch:
    """Watches the pool of one node."""

    def __init__(self, pool: Pool, *, node: str, evicts_below: float | None, every_s: float = LOOK_EVERY_S) -> None:
        self._pool = pool
        self._node = node
        self._evicts_below = evicts_below
        self._every_s = every_s
        self._now: tuple[Concern, ...] = ()
        self._silent: str | None = None
        """Why the pool did not answer at the last look."""

    async def run(self, company: Company) -> None:
        """Watch until cancelled."""
        company.probe("warnings", self.warnings)
        now = datetime.now(UTC)
        await company.say(*await company.read(lambda state: at_start(state, self._node, now)))
        while True:
            await self.look(company)
            await asyncio.sleep(self._every_s)

    def warnings(self) -> list[str]:
        """What hurts or will, for `health`."""
        silent = [] if self._silent is None else [self._silent]
        return [*silent, *(one.message for one in self._now)]

    async def look(self, company: Company) -> None:
        """Look once; say what is new."""
        try:
            facts = await asyncio.to_thread(self._pool.facts)
        except (PoolError, OSError) as error:
            if self._silent is None:
                _log.warning("the pool does not answer: %s", error)
            self._silent = str(error)
            return
        self._silent = None
        found = concerns(facts, evict_below_ratio=self._evicts_below)
        for concern in found:
            if concern.kind not in {one.kind for one in self._now}:
                _log.warning("%s", concern.message)
        self._now = found
        known = await company.get(PoolState, self._node)
        seen = _seen(self._node, facts, found)
        if known is None or news(known, seen, facts):
            identity = (self._node, seen.model_dump_json(), known.at.isoformat() if known else "")
            await company.say(Emit(project=CLUSTER_PROJECT, body=seen, dedupe=identity))


def news(known: PoolState, seen: CachePoolSeen, facts: PoolFacts) -> bool:
    """Whether the log should hear of it: limits or concerns changed, or numbers did by much."""
    if (known.adapter, known.limit_bytes) != (seen.adapter, seen.limit_bytes):
        return True
    if [kind for kind, _ in known.concerns] != [one.kind for one in seen.concerns]:
        return True
    disk = max((one.total_bytes for one in facts.disks), default=0)
    moved = abs((known.free_bytes or 0) - (seen.free_bytes or 0)) > MUCH * disk
    used = abs((known.used_bytes or 0) - (seen.used_bytes or 0))
    return moved or (seen.limit_bytes is not None and used > MUCH * seen.limit_bytes)


def _seen(node: str, facts: PoolFacts, found: tuple[Concern, ...]) -> CachePoolSeen:
    return CachePoolSeen(
        node=node,
        adapter=facts.adapter,
        limit_bytes=facts.limit_bytes,
        used_bytes=facts.used_bytes,
        free_bytes=min((disk.free_bytes for disk in facts.disks), default=None),
        concerns=tuple(PoolConcern(kind=one.kind, message=one.message) for one in found),
    )


def at_start(state: State, node: str, now: datetime) -> list[Action]:
    """A look at each ready plan whose blocks can be seen, and an alarm for each that is wanted and not ready."""
    actions: list[Action] = []
    for plan in state.find(Plan, "live", "live"):
        warmth = plan.on(node)
        if warmth.state == READY and warmth.proof == "blocks":
            actions.append(Work(kind=CHECK, key=plan.key, project=plan.project, again=True))
        elif warmth.state != READY and plan.wanted:
            actions.append(Deadline(project=plan.project, entity=plan.id, condition=RETRY, at=now))
    return actions
