"""Work "write-sentence": keeps the annotation on a job's Job object equal to `forebay why`.

One request without a look: only our annotation is written, and only on the object that
is on record. Few run at once, so that a cluster under load gets what matters first; the
sentences that came meanwhile are then written as one, the newest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem
from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.domain.cluster.documents import ClusterObject
from forebay.scheduler_bridge.domain.cluster.record import record_of
from forebay.scheduler_bridge.domain.cluster.sentence import sentence_of
from forebay.scheduler_bridge.domain.documents import place
from forebay.scheduler_bridge.domain.masking import mask
from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError

_log = logging.getLogger(__name__)
AT_ONCE = 4
UNSEEN_S = 5.0
"""Until it is looked again whether the Job has been made and seen."""
AGAIN_S = 15.0
_ANOTHER = frozenset({404, 409, 422})
"""The object is gone, or another one has its name: a uid cannot be changed."""


class SentenceWriter:
    """Writes what people read when they look at a Job with kubectl."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        key = place(item.project, str(item.payload["job"]))
        known = await context.read(lambda state: record_of(state, key))
        if known is None or (known.carrier is None and known.job.terminal is None):
            raise RetryLater(UNSEEN_S, f"the Job object of {key} has not been seen yet")
        # Without an object there is nothing to write on: it ended before, or was refused, and another verdict will follow.
        seen, annotations = known.seen, sentence_of(known.job)
        if seen is not None and not seen.gone and annotations:
            await self._write(seen, {"metadata": {"uid": seen.uid, "annotations": annotations}})
        return ()

    async def _write(self, seen: ClusterObject, patch: dict[str, object]) -> None:
        metadata = seen.body["metadata"]
        where = f"{metadata['namespace']}/jobs/{metadata['name']}"
        try:
            await self._api.patch(f"/apis/batch/v1/namespaces/{where}", patch)
        except ApiSilentError as error:
            raise RetryLater(1.0, str(error)) from error
        except ApiRefusedError as error:
            if error.status in _ANOTHER:
                return
            message = f"the sentence on {where} cannot be written: {mask(error.message)}"
            _log.warning(message)
            raise RetryLater(AGAIN_S, message) from error
