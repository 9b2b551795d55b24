"""One Job object per run, whatever the API server answers: adopt, conflict, look, or try again. Pure.

A write is sent once; after an answer that does not say whether it was done, the next
step is to look. What is ours is known by labels and the digest of the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from forebay.scheduler_bridge.domain.pod_layout import JOB_LABEL, MANAGED_BY, PROJECT_LABEL, SPEC_DIGEST

_WEBHOOK = "failed calling webhook"
_BUSY = frozenset({409, 429})
_UNDECIDED = frozenset({500, 502, 503, 504})
_EXISTS = 409
_UID_KNOWN = "its Job object was deleted, and one that is gone is never made again; submit the job once more"


class Step(StrEnum):
    """What to do next."""

    CREATE = "create"
    """POST it: nothing of that name exists, and none was ever ours."""
    LOOK = "look"
    """GET it by name before anything else."""
    ADOPT = "adopt"
    """It is ours: remember its uid."""
    WAIT = "wait"
    """Try again later, with a growing pause."""
    CONFLICT = "conflict"
    """A foreign object has the name; it is left alone."""
    REFUSED = "refused"
    """The API server will not take it as it is."""
    GONE = "gone"
    """Ours was removed; it is not created again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The Job object of one run."""

    name: str
    project: str
    job: str
    spec_sha256: str
    uid: str | None = None
    """Of the object once it was seen: from then on it is never created again."""
    applied: bool = False
    """Somebody else made it, and its uid alone says that it is this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a POST or GET brought: a code, and the object or the Status. Code 0: no answer at all."""

    code: int
    body: Mapping[str, Any]

    @property
    def message(self) -> str:
        return str(self.body.get("message") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next step, with the sentence a person reads."""

    step: Step
    message: str
    uid: str | None = None


def after_create(wanted: Wanted, reply: Reply) -> Decision:
    """Judge the answer to a POST."""
    if 200 <= reply.code < 300:
        return _found(wanted, reply.body)
    if reply.code == _EXISTS and reply.body.get("reason") in {"AlreadyExists", None}:
        return Decision(step=Step.LOOK, message=f"{wanted.name} exists already")
    if _WEBHOOK in reply.message:
        # The webhook was not reached, so nothing was stored; looking costs little and proves it.
        return Decision(step=Step.LOOK, message=f"an admission webhook is unavailable: {reply.message}")
    said = reply.message or (f"the API server answered {reply.code}" if reply.code else "no answer")
    if reply.code in _UNDECIDED or reply.code == 0:
        return Decision(step=Step.LOOK, message=f"it is not known whether {wanted.name} was created: {said}")
    return Decision(step=Step.WAIT if _may_pass(reply) else Step.REFUSED, message=said)


def after_look(wanted: Wanted, reply: Reply) -> Decision:
    """Judge the answer to a GET by name."""
    if 200 <= reply.code < 300:
        return _found(wanted, reply.body)
    if reply.code == 404:
        if wanted.uid is not None:
            return Decision(step=Step.GONE, message=_UID_KNOWN)
        return Decision(step=Step.CREATE, message=f"no Job {wanted.name} exists")
    return Decision(step=Step.WAIT, message=reply.message or f"the API server does not answer ({reply.code})")


def _found(wanted: Wanted, item: Mapping[str, Any]) -> Decision:
    """An object of that name: ours, ours from another content, or somebody else's."""
    metadata = item.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    uid = str(metadata.get("uid") or "")
    ours = {MANAGED_BY: "forebay", PROJECT_LABEL: wanted.project, JOB_LABEL: wanted.job}
    if wanted.uid is not None and uid != wanted.uid:
        return Decision(step=Step.GONE, message=f"{_UID_KNOWN} (another Job {wanted.name} is there now)")
    if wanted.applied:
        return Decision(step=Step.ADOPT, message=f"{wanted.name} was applied", uid=uid)
    if any(labels.get(name) != value for name, value in ours.items()):
        owner = labels.get(MANAGED_BY) or "somebody else"
        message = (
            f"a Job {wanted.name} exists in that namespace and belongs to {owner}; it was left alone."
            " Give this job another name, or remove the other Job"
        )
        return Decision(step=Step.CONFLICT, message=message)
    if annotations.get(SPEC_DIGEST) != wanted.spec_sha256:
        message = f"a Job {wanted.name} of ours exists with other content; it was left alone. Submit under another name"
        return Decision(step=Step.CONFLICT, message=message)
    if metadata.get("deletionTimestamp") and wanted.uid is None:
        return Decision(step=Step.WAIT, message=f"an earlier Job {wanted.name} is being deleted")
    return Decision(step=Step.ADOPT, message=f"{wanted.name} is ours", uid=uid)


def _may_pass(reply: Reply) -> bool:
    """Too many requests, a clash of writes, a quota denial, a namespace that is not there yet."""
    text = reply.message.lower()
    denied = reply.code == 403 and "exceeded quota" in text
    return denied or reply.code in _BUSY or (reply.code == 404 and "namespaces" in text)
