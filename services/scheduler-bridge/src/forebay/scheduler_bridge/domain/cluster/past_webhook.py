"""An annotated Job that came past the webhook: stopped while it holds neither quota nor pods, else only told. Pure.

Its pods were not made to get their data and cannot be changed any more, so it is not
held until the data is ready but stopped: whoever applied it applies it again. Who
starts it nevertheless is not stopped twice. Used by `decide.py`, `moves.py`, `rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.cluster.view import View
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.kubernetes.facts import is_true as holds
from forebay.scheduler_bridge.domain.pod_layout import HELD, KUEUE_QUEUE

_HAD_PODS = ("active", "ready", "terminating", "succeeded", "failed")


def what_to_stop(found: Json, workload: Json | None) -> Literal["workload", "job"] | None:
    """The object that a stop would change; None: it holds something, is stopped, or was stopped once."""
    status, spec = found.get("status") or {}, found.get("spec") or {}
    if any(status.get(name) for name in _HAD_PODS):
        return None
    if workload is not None:
        free = not holds(workload, "QuotaReserved") and not holds(workload, "Finished")
        return "workload" if free and _is_active(workload) and not _is_marked(workload) else None
    queued = KUEUE_QUEUE in ((found.get("metadata") or {}).get("labels") or {})  # then its Workload comes in a moment
    return None if queued or spec.get("suspend") or _is_marked(found) else "job"


def may_be_stopped(job: Job, view: View) -> bool:
    """Worth a look: as far as was seen it holds nothing and never had a pod."""
    if job.held_by_us or job.terminal is not None or view.job is None or view.job.gone or view.pods:
        return False
    return what_to_stop(view.job.body, view.workload.body if view.workload else None) is not None


def is_stopped(objects: Iterable[Mapping[str, Any]]) -> bool:
    """By us, and nobody has started it since."""
    for item in objects:
        if _is_marked(item):
            return not _is_active(item) if item.get("kind") == "Workload" else bool(item["spec"].get("suspend"))
    return False


def _is_active(workload: Mapping[str, Any]) -> bool:
    return bool((workload.get("spec") or {}).get("active", True))


def _is_marked(item: Mapping[str, Any]) -> bool:
    return ((item.get("metadata") or {}).get("annotations") or {}).get(HELD) == "true"
