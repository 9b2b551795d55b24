"""Which gate a cluster honours, found out before the first job depends on it.

Where Kueue's feature gate `AdmissionGatedBy` is off, the annotation is ignored in
silence and quota would be held while data is not ready. So a probe asks first: a Job
that requests nothing and that no node takes, gated by our name. What Kueue says about
its Workload decides; silence counts as no.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime, timedelta

from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.domain.cluster.moves import GateKind, gate_in_force
from forebay.scheduler_bridge.domain.cluster.objects import KUEUE, Json
from forebay.scheduler_bridge.domain.kubernetes.facts import moment
from forebay.scheduler_bridge.domain.pod_layout import GATE, KUEUE_GATED_BY, KUEUE_QUEUE, MANAGED_BY
from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError

_log = logging.getLogger(__name__)
PROBE_S = 15.0
"""How long Kueue may take to say something about the probe."""
FRESH_S = 600.0
"""How long an answer counts: Kueue may be installed or configured anew."""
SILENT_S = 30.0
"""How long silence counts: Kueue may only be starting."""
LOOK_S = 0.2
PROBE = "forebay-gate-probe"
"""One name, so that a probe which a crash left behind is found."""
WEBHOOK_PROBE = "forebay-gate-probe-webhook"
"""The webhook may make and remove Jobs of this name only."""
_EXISTS = 409


class KueueGates:
    """Answers for one cluster; an answer is kept for a while."""

    def __init__(self, api: KubernetesApi, *, probe: str = PROBE) -> None:
        self._api = api
        self._probe = probe
        self._known: GateKind | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def kind(self, namespace: str, queue: str) -> GateKind:
        """`annotation` only when Kueue has been seen to honour it."""
        async with self._lock:
            if self._known is None or time.monotonic() > self._until:
                self._known, lasts = await self._find(namespace, queue)
                self._until = time.monotonic() + lasts
                _log.info("gate of the cluster: %s", self._known)
            return self._known

    async def _find(self, namespace: str, queue: str) -> tuple[GateKind, float]:
        """The gate, and for how many seconds that is known."""
        try:
            await self._api.get(KUEUE)
        except ApiRefusedError as error:
            if error.status == 404:
                return "suspend", FRESH_S
            raise ApiSilentError(str(error)) from error
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        made = await self._make(path, _probe(self._probe, namespace, queue))
        try:
            answer = await self._answer(namespace, str(made["metadata"]["uid"]))
        finally:
            await self._remove(f"{path}/{self._probe}")
        if not answer:
            _log.warning(
                "Kueue does not honour %s (%s); queue names are kept off Jobs until their data is ready. Switch on its"
                " feature gate AdmissionGatedBy so that waiting jobs keep their place in the queue",
                KUEUE_GATED_BY,
                "it admitted the probe" if answer is False else f"it said nothing within {PROBE_S:g} s",
            )
        return "annotation" if answer else "label", SILENT_S if answer is None else FRESH_S

    async def _make(self, path: str, probe: Json) -> Json:
        """A new probe, or that of a process which was killed a moment ago: what Kueue said about it counts."""
        try:
            try:
                return await self._api.post(path, probe)
            except ApiRefusedError as error:
                if error.status != _EXISTS:
                    raise
            left = (await self._api.get(f"{path}/{self._probe}"))["metadata"]
        except ApiRefusedError as error:
            msg = f"the probe for Kueue's gate cannot be made: {error}"
            raise ApiSilentError(msg) from error
        made = moment(left.get("creationTimestamp"))
        if made is None or left.get("deletionTimestamp") or datetime.now(UTC) - made > timedelta(seconds=FRESH_S):
            await self._remove(f"{path}/{self._probe}")
            msg = "an old probe for Kueue's gate is being removed"
            raise ApiSilentError(msg)
        return {"metadata": left}

    async def _remove(self, path: str) -> None:
        with contextlib.suppress(ApiRefusedError, ApiSilentError):
            await self._api.delete(path)

    async def _answer(self, namespace: str, uid: str) -> bool | None:
        until = time.monotonic() + PROBE_S
        while time.monotonic() < until:
            path = f"{KUEUE}/namespaces/{namespace}/workloads"
            found = await self._api.get(path, labelSelector=f"kueue.x-k8s.io/job-uid={uid}")
            items = found.get("items") or []
            answer = gate_in_force(items[0] if items else None)
            if answer is not None:
                return answer
            await asyncio.sleep(LOOK_S)  # the probe is rare; a watch for it would cost more than it saves
        return None


def _probe(name: str, namespace: str, queue: str) -> Json:
    """A Job that would hold nothing and run nowhere even if it were admitted."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {KUEUE_QUEUE: queue, MANAGED_BY: "forebay"},
            "annotations": {KUEUE_GATED_BY: GATE},
        },
        "spec": {
            "suspend": True,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 60,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"forebay.dev/gate-probe": "nowhere"},
                    "containers": [
                        {
                            "name": "probe",
                            "image": "forebay.dev/never-pulled",
                            "resources": {"requests": {"cpu": "0", "memory": "0"}},
                        }
                    ],
                }
            },
        },
    }
