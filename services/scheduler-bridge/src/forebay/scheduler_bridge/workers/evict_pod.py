"""Work "evict-pod": ends a pod whose gang has lost a member, by the Eviction API.

Evicted, not deleted: the Job controller then knows that the pod itself did not fail, and
a disruption budget is asked. A pod that is gone, or another one of its name, is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem
from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError

_log = logging.getLogger(__name__)
AGAIN_S = 5.0
_DONE = frozenset({404, 409})


class PodEvictor:
    """Evicts pods on one cluster."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        del context
        namespace, name, uid = (str(item.payload[key]) for key in ("namespace", "pod", "uid"))
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._api.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
        except ApiRefusedError as error:
            if error.status in _DONE:
                return ()
            raise RetryLater(AGAIN_S, f"pod {name} is not evicted yet: {error.message}") from error
        except ApiSilentError as error:
            raise RetryLater(1.0, str(error)) from error
        _log.info("%s: pod %s was ended, because another of its gang has ended", item.payload["job"], name)
        return ()
