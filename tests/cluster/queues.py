"""Queues of one test: a ClusterQueue with its flavor, and a LocalQueue in the test's namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay.testcluster import objects
from forebay.testcluster.api import Api, is_true

from tests.eventually import eventually


class Queues:
    """Names are those of the namespace, so that tests that run at the same time do not meet."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._made: list[tuple[str, str]] = []

    async def make(self, quota: Mapping[str, str | int], *, name: str = "main", **options: Any) -> str:
        """Name of a LocalQueue whose ClusterQueue (see `behind`) has this quota; returns when it takes jobs."""
        behind = self.behind(name)
        await self._create(objects.resource_flavor(behind, options.pop("node_labels", None)))
        await self._create(objects.cluster_queue(behind, behind, quota, **options))
        await self._api.create(objects.local_queue(self._namespace, name, behind))

        async def is_active() -> bool:
            return is_true(await self._api.get("LocalQueue", self._namespace, name), "Active")

        await eventually(is_active, what=f"LocalQueue {name} is active", within=20)
        return name

    def behind(self, name: str) -> str:
        """The ClusterQueue behind a LocalQueue."""
        return f"{self._namespace}-{name}"

    async def _create(self, item: dict[str, Any]) -> None:
        await self._api.create(item)
        self._made.append((item["kind"], item["metadata"]["name"]))

    async def remove(self) -> None:
        for kind, name in reversed(self._made):
            await self._api.delete(kind, None, name)
