"""The fold: adds what an event says to the nodes it is about.

Everything in the digest is a union or a maximum, so any order, any repetition and
any delay end in the same documents. What depends on arrival (first seen, a tag's
latest word, a clock ahead of the stream) goes into documents outside the digest.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta

import msgspec

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.identifiers import canonical_json
from forebay.contracts.v1.datasets import DatasetTagged, DatasetUntagged, DatasetVersionCommitted
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeUploaded, EpisodeWithdrawn
from forebay.contracts.v1.jobs import JobSubmitted
from forebay.contracts.v1.models import (
    CheckpointImported,
    CheckpointWritten,
    ModelReleased,
    ModelRolledBack,
    ModelVersionRegistered,
)
from forebay.registry.domain.nodes import (
    ATTEMPT,
    CHECKPOINT,
    DATASET,
    EPISODE,
    JOB,
    MODEL,
    Arrival,
    Channel,
    Edge,
    Facet,
    Fact,
    Heard,
    Link,
    Name,
    Node,
    Seen,
    Skew,
    TagPointer,
    Withdrawn,
    local_id,
    place_id,
)
from forebay.registry.domain.relations import UPLOADED_IN
from forebay.registry.domain.statements import STATEMENTS
from forebay.runtime.state import Fold

FOLD_VERSION = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SKEW_LIMIT = timedelta(minutes=5)
"""A sender's clock this far ahead of the stream's is said aloud; behind is only a late delivery."""

READS: frozenset[type[EventBody]] = frozenset(STATEMENTS)


def evolve(fold: Fold, recorded: Recorded[EventBody]) -> None:
    """Fold one event. Pure: everything comes from the event and the documents."""
    body = recorded.body
    say = STATEMENTS.get(type(body))
    if say is None:
        return
    event, project = recorded.identity, recorded.project
    time = recorded.event.time.astimezone(UTC)
    seen = Seen(event, recorded.seq, _microseconds(recorded.stored_at))
    statements = say(body)
    for node_id, values, parents in statements:
        fact = Fact(event, body.event, time, values, parents)
        _add(fold, project, node_id, fact, seen)
        for parent in parents:
            _link(fold, project, node_id, parent)
    if time - recorded.stored_at > SKEW_LIMIT:
        _note_skew(fold, recorded, time, tuple(node_id for node_id, _, _ in statements))
    if isinstance(body, EpisodeAccepted | EpisodeUploaded):
        _note_facets(fold, project, body)
    if isinstance(body, EpisodeUploaded):
        _note_heard(fold, project, body.upload, body.source_index)
    elif isinstance(body, CheckpointWritten | CheckpointImported):
        fold.put(Edge(project=project, parent=place_id(body.uri), child=f"{CHECKPOINT}:{body.checkpoint}"))
    elif isinstance(body, EpisodeWithdrawn):
        fold.put(Withdrawn(project=project, episode=body.episode))
    elif type(body) in _NAMED:
        _count_names(fold, recorded)


def _microseconds(moment: datetime) -> int:
    """Since the epoch; in whole numbers, because a float would round."""
    since = moment - _EPOCH
    return (86_400 * since.days + since.seconds) * 1_000_000 + since.microseconds


def _add(fold: Fold, project: str, node_id: str, fact: Fact, seen: Seen) -> None:
    key = f"{project}/{node_id}"
    node = fold.get(Node, key)
    if node is None:
        fold.put(Node(project=project, id=node_id, facts=(fact,)))
        fold.put(Arrival(project=project, id=node_id, seq=seen.seq, event=seen.event, stored_us=seen.stored_us))
        return
    facts = node.facts
    if fact in facts:
        return
    fold.put(msgspec.structs.replace(node, facts=sorted_facts((*facts, fact))))
    arrival = fold.get(Arrival, key)
    if arrival is not None:
        fold.put(msgspec.structs.replace(arrival, later=(*arrival.later, seen)))


_FACET = 200
"""Longest task or robot that is kept for search."""


def _note_facets(fold: Fold, project: str, body: EpisodeAccepted | EpisodeUploaded) -> None:
    """Tasks and robots of an accepted episode: of its files where they differ from what the collector claims."""
    node = fold.get(Node, f"{project}/{EPISODE}:{body.episode}")
    facts = () if node is None else node.facts
    claims = [fact for fact in facts if fact.name == EpisodeUploaded.event]
    sources: list[Fact] = []
    for verdict in facts:
        if verdict.name == EpisodeAccepted.event:
            sources += [verdict] if "rows" in verdict.values else claims
    found = [("task", task) for fact in sources for task in fact.values["tasks"]]
    found += [("robot", fact.values["robot"]) for fact in sources if "robot" in fact.values]
    for facet, value in found:
        document = Facet(project=project, facet=facet, value=value[:_FACET], dataset=body.dataset)
        if fold.get(Facet, document.key) is None:
            fold.put(document)


def _note_heard(fold: Fold, project: str, upload: str, index: int) -> None:
    heard = fold.get(Heard, f"{project}/{upload}") or Heard(project=project, upload=upload)
    ranges = with_index(heard.ranges, index)
    if ranges != heard.ranges:
        fold.put(msgspec.structs.replace(heard, ranges=ranges))


def with_index(ranges: tuple[tuple[int, int], ...], index: int) -> tuple[tuple[int, int], ...]:
    """The union of sorted closed ranges and one index; episodes mostly come in order."""
    if ranges and ranges[-1][1] + 1 == index:
        return (*ranges[:-1], (ranges[-1][0], index))
    place = bisect_right(ranges, (index, index))
    before, after = ranges[:place], ranges[place:]
    if (before and before[-1][1] >= index) or (after and after[0][0] == index):
        return ranges
    first = last = index
    if before and before[-1][1] + 1 == index:
        first, before = before[-1][0], before[:-1]
    if after and after[0][0] == index + 1:
        last, after = after[0][1], after[1:]
    return (*before, (first, last), *after)


def sorted_facts(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """One order for one set. Values only decide when one event id came with two bodies."""
    if len({fact.event for fact in facts}) == len(facts):
        return tuple(sorted(facts, key=_by_event))
    return tuple(sorted(facts, key=_by_content))


def _by_event(fact: Fact) -> str:
    return fact.event


def _by_content(fact: Fact) -> tuple[str, str, str, bytes, tuple[Link, ...]]:
    return fact.event, fact.name, fact.time.isoformat(), canonical_json(fact.values), fact.parents


def _link(fold: Fold, project: str, child: str, parent: Link) -> None:
    relation, parent_id = parent
    if relation == UPLOADED_IN:
        # Millions of them, and both ways are known without: an episode names its upload,
        # a version's episodes stand in its list.
        return
    fold.put(Edge(project=project, parent=parent_id, child=child))
    if parent_id.startswith("attempt:"):
        # An attempt's id names its job, so even one that no event described hangs together.
        job = local_id(parent_id).rpartition("/")[0]
        fold.put(Edge(project=project, parent=f"{JOB}:{job}", child=f"{ATTEMPT}:{local_id(parent_id)}"))


def _note_skew(fold: Fold, recorded: Recorded[EventBody], time: datetime, nodes: tuple[str, ...]) -> None:
    fold.put(
        Skew(
            project=recorded.project,
            event=recorded.identity,
            name=recorded.body.event,
            nodes=nodes,
            time=time,
            stored_at=recorded.stored_at,
            ahead_s=(time - recorded.stored_at).total_seconds(),
            seq=recorded.seq,
        )
    )


_NAMED = frozenset(
    {
        JobSubmitted,
        DatasetVersionCommitted,
        DatasetTagged,
        DatasetUntagged,
        ModelVersionRegistered,
        ModelReleased,
        ModelRolledBack,
    }
)


def _count_names(fold: Fold, recorded: Recorded[EventBody]) -> None:
    project = recorded.project
    match recorded.body:
        case JobSubmitted() as body:
            _top(fold, project, JOB, body.spec.name, body.run)
        case DatasetVersionCommitted() as body:
            _top(fold, project, DATASET, body.dataset, body.number)
        case ModelVersionRegistered() as body:
            _top(fold, project, MODEL, body.model, body.number)
        case ModelReleased() as body:
            _move(fold, project, body, body.number)
        case ModelRolledBack() as body:
            _move(fold, project, body, body.to_number)
        case DatasetTagged() | DatasetUntagged() as body:
            _point(fold, project, body, recorded.seq)


def _top(fold: Fold, project: str, kind: str, name: str, number: int) -> None:
    known = fold.get(Name, f"{project}/{kind}/{name}")
    if known is None or known.top < number:
        fold.put(Name(project=project, type=kind, name=name, top=number))


def _move(fold: Fold, project: str, body: ModelReleased | ModelRolledBack, number: int) -> None:
    model, channel, move = body.model, body.channel, body.move or 0
    known = fold.get(Channel, f"{project}/{model}@{channel}")
    if known is not None and known.move > move:
        return
    numbers = {number, *known.numbers} if known is not None and known.move == move else {number}
    fold.put(Channel(project=project, model=model, channel=channel, move=move, numbers=tuple(sorted(numbers))))


def _point(fold: Fold, project: str, body: DatasetTagged | DatasetUntagged, seq: int) -> None:
    known = fold.get(TagPointer, f"{project}/{body.dataset}@{body.tag}")
    if known is not None and known.seq >= seq:
        return
    number: int | None = body.number
    if isinstance(body, DatasetUntagged):
        number = None if known is None or known.number == body.number else known.number
    fold.put(TagPointer(project=project, dataset=body.dataset, tag=body.tag, number=number, seq=seq))
