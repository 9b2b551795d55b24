"""The sentence of `forebay why` as an annotation on the Job, where people of the cluster look. Pure."""

from __future__ import annotations

from forebay.runtime.escaping import shortened, visible
from forebay.scheduler_bridge.domain.cluster.objects import WHY
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.sentence import sentence

MAX_WHY = 1024
"""Characters of the annotation."""


def sentence_of(job: Job) -> dict[str, str]:
    """The annotation; empty before the first verdict."""
    verdict = job.verdict or {}
    if not verdict.get("message"):
        return {}
    return {WHY: shortened(visible(sentence(job, verdict)), MAX_WHY)}
