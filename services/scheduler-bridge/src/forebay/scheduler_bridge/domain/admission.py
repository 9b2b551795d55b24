"""What the mutating webhook answers: a patch, a warning for the person at the keyboard, or a refusal. Pure.

It refuses what `forebay submit` would refuse, with the same sentences: whoever asks for
data does not want a Job that starts as if nothing had been asked. A dataset that does
not exist yet is no such error; the Job waits for it and holds nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forebay.contracts.identifiers import canonical_json, stable_id
from forebay.runtime.escaping import visible
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.applied import (
    MARK,
    NotInstrumentableError,
    as_job,
    described,
    in_words,
    is_instrumented,
    main_of,
    mounted_at,
)
from forebay.scheduler_bridge.domain.cluster.moves import GateKind
from forebay.scheduler_bridge.domain.cluster_review import review
from forebay.scheduler_bridge.domain.instrument import instrument, kept
from forebay.scheduler_bridge.domain.manifest import Site

Json = dict[str, Any]
_WARNING = 256
"""Characters of one warning; the API server cuts longer ones, and all of them together at 4,096."""
_WARNINGS = 12


class NotAReviewError(ValueError):
    """What came is no question of an API server."""


class _Kind(msgspec.Struct, frozen=True):
    group: str = ""
    kind: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class Asked(msgspec.Struct, frozen=True, rename="camel"):
    """The question of an `AdmissionReview`."""

    uid: str
    operation: str
    kind: _Kind = _Kind()
    namespace: str = ""
    user_info: _User = _User()
    object: Json | None = None
    old_object: Json | None = None

    @property
    def job(self) -> Json | None:
        """The Job that is to be made or changed, when it asks for data."""
        if (self.kind.group, self.kind.kind) != ("batch", "Job") or self.operation not in {"CREATE", "UPDATE"}:
            return None
        metadata = (self.object or {}).get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        return self.object if isinstance(annotations, dict) and layout.DATASET_ANNOTATION in annotations else None


class _Review(msgspec.Struct):
    apiVersion: str  # noqa: N815 Kubernetes' own name
    kind: str
    request: Asked


def asked_of(content: bytes) -> Asked:
    """The question. Raises `NotAReviewError` with what is wrong with it."""
    try:
        found = msgspec.json.decode(content, type=_Review)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"this is no AdmissionReview: {error}"
        raise NotAReviewError(msg) from error
    if (found.apiVersion, found.kind) != ("admission.k8s.io/v1", "AdmissionReview"):
        msg = f"{found.kind} of {found.apiVersion} is not answered here, only AdmissionReview of admission.k8s.io/v1"
        raise NotAReviewError(msg)
    return found.request


def site_of(job: Mapping[str, Any], namespace: str, sites: Mapping[str, Site]) -> Site:
    """The project that a Job belongs to: the one it names, else the only one of its namespace."""
    metadata = job.get("metadata") or {}
    here = {name: site for name, site in sites.items() if site.project.namespace == namespace}
    words = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    named = words.get(layout.PROJECT_LABEL)
    if not here:
        msg = f"no project's jobs run in namespace {namespace}; an operator writes a project file for it"
        raise NotInstrumentableError(msg)
    if named is None and len(here) > 1:
        msg = f"several projects run their jobs in {namespace} ({', '.join(sorted(here))}): name one"
        raise NotInstrumentableError(f"{msg} with the annotation {layout.PROJECT_LABEL}")
    chosen = here.get(named) if named is not None else next(iter(here.values()))
    if chosen is None:
        msg = f"{layout.PROJECT_LABEL}: {named!r} is no project of namespace {namespace}, which has"
        raise NotInstrumentableError(f"{msg} {', '.join(sorted(here))}")
    return chosen


def answer(asked: Asked, sites: Mapping[str, Site], *, gate: GateKind) -> Json:
    """The `AdmissionReview` to answer with; `gate` is what the cluster honours."""
    job = asked.job
    if job is None:
        return _review(asked.uid)
    try:
        as_job(job)
        site = site_of(job, asked.namespace, sites)
        if asked.operation == "UPDATE":
            return _changed(asked, job, site)
        return _made(asked, job, site, gate)
    except NotInstrumentableError as error:
        if asked.operation == "UPDATE":
            return _review(asked.uid, warnings=(str(error),))
        said = f"{error}. Without the annotation {layout.DATASET_ANNOTATION} the Job starts as it is, without its data"
        return _review(asked.uid, refused=said)


def let_through(uid: str, why: str) -> Json:
    """Nothing is done to the Job, and whoever makes it is told."""
    return _review(uid, warnings=(f"Forebay did nothing about this Job: {why}",))


def _made(asked: Asked, job: Json, site: Site, gate: GateKind) -> Json:
    if is_instrumented(job):
        msg = (
            "this is a copy of a Job as Forebay has changed it, and would share its outputs and its key;"
            " apply the file that it was made from"
        )
        raise NotInstrumentableError(msg)
    mark = stable_id("applied", asked.uid)[:MARK]
    user = asked.user_info.username
    spec = described(job, user=user, site=site, mark=mark).spec
    found = review(spec, user=user, project=site.project, mounted=mounted_at(main_of(job)))
    if found.problems:
        raise NotInstrumentableError(in_words(found.problems))
    done = instrument(job, user=user, site=site, mark=mark, gate=gate)
    return _review(asked.uid, patch=done.patch, warnings=(*done.warnings, *found.warnings))


def _changed(asked: Asked, job: Json, site: Site) -> Json:
    """The same file again changes nothing; what the annotation asks for was decided when the Job was made."""
    before, warnings = asked.old_object or {}, []
    as_job(before)
    if is_instrumented(before) and _asked_for(before) != _asked_for(job):
        warnings.append(f"{layout.DATASET_ANNOTATION} of a Job that exists changes nothing; delete it and apply again")
    return _review(asked.uid, patch=kept(job, before, site=site), warnings=warnings)


def _asked_for(job: Json) -> Any:
    return ((job.get("metadata") or {}).get("annotations") or {}).get(layout.DATASET_ANNOTATION)


def _review(uid: str, *, refused: str | None = None, patch: Sequence[Json] = (), warnings: Sequence[str] = ()) -> Json:
    response: Json = {"uid": uid, "allowed": refused is None}
    if refused is not None:
        response["status"] = {"code": 422, "reason": "Invalid", "message": visible(refused)}
    elif patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(canonical_json(patch)).decode("ascii")}
    if warnings:
        response["warnings"] = [warning[:_WARNING] for warning in warnings[:_WARNINGS]]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
