"""What still needs the files of a save or of a job. Deleting files never deletes what is known about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.contracts.v1.models import Compatibility
from forebay.registry.domain.contradictions import TERMINAL
from forebay.registry.domain.graph import children, get, written_to
from forebay.registry.domain.keeping import is_kept
from forebay.registry.domain.names import CHANNELS
from forebay.registry.domain.nodes import CHECKPOINT, JOB, MODEL, Node, job_id, local_id, name_and_number
from forebay.registry.domain.releases import pointer
from forebay.registry.domain.resume import Save, Wanted, decide_resume
from forebay.registry.domain.view import facts_named, first_fact, shown
from forebay.runtime.state import State

DELETE = "delete-files"
_PAGE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that needs a file, and whether a person may override it."""

    who: str
    why: str
    overridable: bool = False


def has_ended(state: State, project: str, job: str) -> bool:
    """Whether a job will not continue: it ended, or it exists only by imports."""
    node = get(state, project, job_id(job))
    if facts_named(node, *TERMINAL):
        return True
    return first_fact(node, "JobSubmitted") is None and bool(facts_named(node, "CheckpointImported"))


def needs_of(state: State, project: str, save: Save, saves: list[Save], job: str) -> Iterator[Need]:
    """Everything that needs the files of one save: models, releases, jobs that start or continue from it."""
    for version in sorted(children(state, project, f"{CHECKPOINT}:{save.id}", MODEL)):
        yield _of_model(state, project, version)
    if not has_ended(state, project, job):
        wanted = Wanted(attempt=2, allow_cold_start=False, compatibility=Compatibility(), skip_unverified=True)
        taken = decide_resume(saves, wanted).save
        if taken is not None and taken.id == save.id:
            yield Need(
                who=f"job {job}", why=f"it has not ended, and its next attempt would continue from step {save.step}"
            )
    for waiting in _jobs_starting_from(state, project, save.id):
        yield Need(who=f"job {waiting}", why="it has not ended, and starts from this checkpoint (restart.start_from)")
    for other in written_to(state, project, save.uri):
        if local_id(other.id) != save.id and first_fact(other, "CheckpointDeleted") is None:
            yield Need(who=f"checkpoint {local_id(other.id)}", why=f"it lies in the same folder, {save.uri}")


def _of_model(state: State, project: str, version: str) -> Need:
    name, number = name_and_number(version)
    live = [one for one in CHANNELS if pointer(state, project, name, one).current == number]
    who = f"model {name}@v{number}" + (f" (named by {', '.join(live)})" if live else "")
    if is_kept(get(state, project, version)):
        return Need(who=who, why="it was made from this checkpoint; its own files are kept", overridable=True)
    return Need(who=who, why="it was made from this checkpoint, and its files are not kept anywhere else")


def _jobs_starting_from(state: State, project: str, checkpoint: str) -> list[str]:
    prefix = after = f"{project}/{JOB}:"
    found: list[str] = []
    while page := state.all(Node, after=after, limit=_PAGE):
        for node in page:
            if not node.key.startswith(prefix):
                return found
            if shown(node, "start_from") == checkpoint and not facts_named(node, *TERMINAL):
                found.append(local_id(node.id))
        after = page[-1].key
    return found
