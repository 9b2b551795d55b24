"""From a logical name to one version, or to the reason why there is none yet.

Pure look-ups in the fold, shared by `evolve` (which pins) and `decide` (which explains).
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.contracts.identifiers import version_number
from forebay.contracts.reasons import Reason
from forebay.ingest.domain.documents import (
    Dataset,
    Model,
    ModelName,
    Pin,
    Registration,
    Tag,
    Upload,
    Version,
    place,
    version_key,
)
from forebay.runtime.state import State

TRAIN_READY = "train-ready"
NEWEST = ("latest", TRAIN_READY)
"""Selectors of a model that mean its newest version; `train-ready` is what a bare name stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A version number, or why not."""

    number: int | None = None
    reason: Reason = Reason.DATASET_RESOLVED
    message: str = ""
    permanent: bool = False
    """Waiting cannot help."""


def resolve(state: State, project: str, pin: Pin) -> Resolution:
    """Look the name up as the state is now."""
    if not pin.name:
        return Resolution(
            reason=Reason.MODEL_UNKNOWN if pin.kind == "model" else Reason.DATASET_UNKNOWN,
            message=f"{pin.logical!r} is not a name that can exist; write for example dataset:pick-place@train-ready",
            permanent=True,
        )
    return _model(state, project, pin) if pin.kind == "model" else _dataset(state, project, pin)


def _dataset(state: State, project: str, pin: Pin) -> Resolution:
    dataset = state.get(Dataset, place(project, pin.name))
    if dataset is None:
        return Resolution(
            reason=Reason.DATASET_UNKNOWN,
            message=f"no dataset {pin.name!r} is known in project {project}; upload one with: forebay upload",
        )
    wanted = version_number(pin.selector)
    if dataset.latest == 0 or (wanted is not None and wanted > dataset.latest):
        return _not_ready(state, dataset, pin)
    if wanted is None:
        tag = state.get(Tag, f"{project}/{pin.name}/{pin.selector}")
        if tag is None:
            newest = state.get(Version, version_key(project, pin.name, dataset.latest))
            withheld = newest.withheld if newest is not None and pin.selector == TRAIN_READY else None
            why = "" if withheld is None else f": {withheld}"
            return Resolution(
                reason=Reason.DATASET_UNTAGGED,
                message=f"dataset {pin.name} has versions up to v{dataset.latest}, but none carries the tag {pin.selector!r}{why}",
            )
        wanted = tag.number
    return _version(state, project, pin, wanted)


def _not_ready(state: State, dataset: Dataset, pin: Pin) -> Resolution:
    upload = state.get(Upload, place(dataset.project, dataset.active)) if dataset.active else None
    has = f"dataset {dataset.name} has versions up to v{dataset.latest}" if dataset.latest else None
    what = has or f"dataset {dataset.name} has no version yet"
    if upload is not None:
        doing = "checked" if upload.state == "VALIDATING" else "written as a version"
        text = f"{what}: upload {upload.id} with {upload.uploaded} episodes is being {doing}"
        return Resolution(reason=Reason.DATASET_NOT_READY, message=text)
    registrations = state.find(Registration, "dataset_key", dataset.key)
    running = [one for one in registrations if one.state in {"WAITING", "WRITING"}]
    if running:
        text = f"{what}: {running[0].uri} is being registered ({running[0].id})"
        return Resolution(reason=Reason.DATASET_NOT_READY, message=text)
    arriving = [u for u in state.find(Upload, "dataset_key", dataset.key) if u.state == "ARRIVING"]
    if arriving:
        text = f"{what}: upload {arriving[0].id} is arriving, {arriving[0].expected_episodes} episodes are expected"
        return Resolution(reason=Reason.DATASET_NOT_READY, message=text)
    if has:
        return Resolution(reason=Reason.DATASET_VERSION_MISSING, message=f"{what}, {pin.selector} does not exist yet")
    refused = [u for u in state.find(Upload, "dataset_key", dataset.key) if u.state == "REFUSED"]
    if refused:
        text = f"{what}: no episode of upload {refused[-1].id} was accepted ({refused[-1].rejected} rejected, {refused[-1].held} held)"
        return Resolution(reason=Reason.DATASET_NOT_READY, message=text)
    failed = [one for one in registrations if one.state == "FAILED"]
    if failed:
        what = f"{what}: {failed[-1].id} was not registered, {failed[-1].message}"
    return Resolution(reason=Reason.DATASET_NOT_READY, message=what)


def _version(state: State, project: str, pin: Pin, number: int) -> Resolution:
    version = state.get(Version, version_key(project, pin.name, number))
    if version is None:
        return Resolution(
            reason=Reason.DATASET_VERSION_MISSING,
            message=f"dataset {pin.name} has no v{number} and never will; later versions exist",
            permanent=True,
        )
    why_not = unusable(version)
    if why_not is not None:
        return why_not
    if not version.accepted:
        why = version.withheld or f"no tag points at it, or {TRAIN_READY} was taken from it"
        return Resolution(
            reason=Reason.DATASET_UNTAGGED,
            message=f"v{number} of dataset {pin.name} is not accepted for training: {why}",
        )
    if pin.access not in {None, version.access_plan, *version.places}:
        has = ", ".join(sorted({version.access_plan, *version.places}))
        hint = (
            f"; put it there with: forebay dataset place {pin.name}@v{number} s3://BUCKET/PREFIX"
            if pin.access == "B"
            else ""
        )
        text = f"v{number} of dataset {pin.name} can be read by access plan {has}, the job asks for {pin.access}{hint}"
        return Resolution(reason=Reason.DATASET_NOT_PLACED, message=text)
    if pin.episodes is not None and not 0 <= pin.episodes[0] < pin.episodes[1] <= version.episode_count:
        first, last = pin.episodes
        return Resolution(
            reason=Reason.DATASET_VERSION_MISSING,
            message=f"v{number} of dataset {pin.name} has episodes 0 to {version.episode_count - 1}, the job asks for {first}:{last}",
            permanent=version_number(pin.selector) is not None,
        )
    return Resolution(number=number)


def unusable(version: Version) -> Resolution | None:
    """Why nobody may read this version now, whatever tags say; None when it may be read."""
    label = f"v{version.number} of dataset {version.dataset}"
    if version.removed is not None:
        text = f"{label} was removed ({version.removed}); name another version"
        return Resolution(reason=Reason.DATASET_VERSION_MISSING, message=text, permanent=True)
    if version.withdrawn:
        more = f" and {len(version.withdrawn) - 1} more" if len(version.withdrawn) > 1 else ""
        text = f"{label} holds the episode {version.withdrawn[0]}{more}, which was withdrawn; make a version without it: forebay dataset derive {version.dataset}@v{version.number}"
        return Resolution(reason=Reason.DATASET_WITHDRAWN, message=text)
    if version.broken is not None:
        reason = Reason(version.broken_reason) if version.broken_reason is not None else Reason.DATASET_CHANGED
        return Resolution(reason=reason, message=version.broken)
    return None


def _model(state: State, project: str, pin: Pin) -> Resolution:
    name = state.get(ModelName, place(project, pin.name))
    if name is None or not name.latest:
        return Resolution(
            reason=Reason.MODEL_UNKNOWN,
            message=f"no model {pin.name!r} is registered in project {project}; register one with: forebay model register",
        )
    wanted = version_number(pin.selector)
    if wanted is None and pin.selector not in NEWEST:
        wanted = name.channels.get(pin.selector)
        if wanted is None:
            text = f"no version of model {pin.name} is released to {pin.selector!r}; write @v{name.latest} or @latest"
            return Resolution(reason=Reason.MODEL_UNKNOWN, message=text)
    number = name.latest if wanted is None else wanted
    if state.get(Model, version_key(project, pin.name, number)) is not None:
        return Resolution(number=number)
    return Resolution(
        reason=Reason.MODEL_UNKNOWN,
        message=f"model {pin.name} has versions up to v{name.latest}, v{number} is not among them",
        permanent=number < name.latest,
    )
