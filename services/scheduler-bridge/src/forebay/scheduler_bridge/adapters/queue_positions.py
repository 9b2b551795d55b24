"""Asks Kueue's visibility API for places in the queues, again and again: it cannot be watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from forebay.scheduler_bridge.adapters.kubernetes_api import Json, KubernetesApi
from forebay.scheduler_bridge.adapters.list_watch import MISSING, Listed, Seen, Trouble
from forebay.scheduler_bridge.domain.cluster.objects import KUEUE
from forebay.scheduler_bridge.domain.cluster.positions import placed
from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError

EVERY_S = 5.0
LONGEST = 1000
"""Workloads per queue that are asked for; who stands farther back has a rounded place anyway."""


@dataclass(frozen=True, slots=True)
class QueuePositions:
    """Every pending workload of every queue."""

    api: KubernetesApi
    path: str
    every_s: float = EVERY_S

    async def run(self) -> AsyncIterator[Seen]:
        """Never ends; what fails is yielded as `Trouble`."""
        while True:
            try:
                yield Listed(await self._ask())
            except ApiRefusedError as error:
                yield Trouble(str(error), missing=error.status in MISSING)
            except ApiSilentError as error:
                yield Trouble(str(error))
            await asyncio.sleep(self.every_s)

    async def _ask(self) -> list[Json]:
        at = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        found: list[Json] = []
        for queue in (await self.api.get(f"{KUEUE}/clusterqueues")).get("items") or ():
            if not (queue.get("status") or {}).get("pendingWorkloads"):
                continue
            name = queue["metadata"]["name"]
            summary = await self.api.get(f"{self.path}/{name}/pendingworkloads", limit=LONGEST)
            found += placed(summary, at=at)
        return found
