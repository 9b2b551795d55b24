"""`audit`: everything that contradicts itself, is missing, weak or dangerous, in pages or above one node.

Contradictions and weaknesses come from the graph; here are those that also need a
version's episode list, the files, or the runtime's own record of parked messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forebay.registry.domain.contradictions import Contradiction
from forebay.registry.domain.graph import get
from forebay.registry.domain.keeping import files_of, is_kept
from forebay.registry.domain.log_clock import skewed_writers
from forebay.registry.domain.nodes import (
    CONTRADICTION,
    DATASET,
    EPISODE,
    JOB,
    MODEL,
    RELEASE,
    Channel,
    Node,
    Withdrawn,
    local_id,
    model_id,
    name_and_number,
)
from forebay.registry.domain.releases import pointer
from forebay.registry.domain.view import facts_named, shown
from forebay.registry.domain.weaknesses import weaknesses
from forebay.registry.ports import Artefacts, EpisodeLists
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.contradictions import ANCESTORS, SCAN, above, of_node, to_json
from forebay.registry.questions.request_args import flag, number, optional_text
from forebay.registry.questions.version_episodes import Window, episodes_of, inside, resolve_any, windows_of
from forebay.runtime.machine import Question, Request
from forebay.runtime.records import ParkedMessage
from forebay.runtime.state import State

_WITHDRAWN = 50_000
_NAMED = 20
_READ, _READ_WHEN_ASKED = 16 << 20, 512 << 20
"""Bytes of files that one answer reads to compare contents: the service does nothing else meanwhile."""


@dataclass(slots=True)
class _Audit:
    """One audit: where it looks, and what it found."""

    state: State
    project: str
    lists: EpisodeLists
    artefacts: Artefacts
    findings: list[Contradiction] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    contents: bool = False
    may_read: int = _READ
    unread: int = 0
    withdrawn: dict[str, None] | None = None

    def lack(self, node_id: str, reason: str) -> None:
        entry = {"id": node_id, "reason": reason}
        if entry not in self.missing:
            self.missing.append(entry)

    def withdrawn_episodes(self) -> dict[str, None]:
        if self.withdrawn is None:
            prefix = f"{self.project}/"
            page = self.state.all(Withdrawn, after=prefix, limit=_WITHDRAWN)
            self.withdrawn = {one.episode: None for one in page if one.key.startswith(prefix)}
            if len(page) == _WITHDRAWN:
                self.lack(self.project, f"only {_WITHDRAWN} withdrawn episodes were looked at")
        return self.withdrawn


def audit(lists: EpisodeLists, artefacts: Artefacts) -> Question:
    """The question `audit` {id?, after?, limit?, contents?, as_of?}."""

    def answer(state: State, request: Request) -> dict[str, Any]:
        state, moment = as_of(state, request)
        contents = flag(request, "contents")
        work = _Audit(state, request.project, lists, artefacts, contents=contents)
        work.may_read = _READ_WHEN_ASKED if contents else _READ
        wanted = optional_text(request, "id")
        found = (
            _page(work, request) if wanted is None else _one(work, resolve_any(state, request.project, wanted, lists))
        )
        codes: dict[str, int] = {}
        listed = to_json(work.findings)
        for one in listed:
            codes[one["code"]] = codes.get(one["code"], 0) + 1
        return {
            **found,
            "as_of": moment,
            "findings": listed,
            "codes": dict(sorted(codes.items())),
            "unread_bytes": work.unread,
            "complete": found["complete"] and not work.missing,
            "missing": work.missing,
        }

    return answer


def _page(work: _Audit, request: Request) -> dict[str, Any]:
    limit = number(request, "limit", SCAN, least=1, most=5000)
    prefix = f"{work.project}/"
    start = str(request.args.get("after") or "")
    page = work.state.all(Node, after=prefix + start, limit=limit)
    nodes = [node for node in page if node.key.startswith(prefix)]
    for node in nodes:
        _look(work, node)
        if node.type == RELEASE:
            _live(work, node)
    if not start:
        work.findings += skewed_writers(work.state, work.project, nodes, everywhere=True)
        work.findings += _parked(work)
    more = len(nodes) == limit
    return {"id": None, "checked": len(nodes), "after": nodes[-1].id if more else None, "complete": not more}


def _one(work: _Audit, root: str) -> dict[str, Any]:
    nodes, cut = above(work.state, work.project, root)
    for node in nodes:
        _look(work, node)
        if node.type == MODEL:
            _files(work, node)
    jobs = [node for node in nodes if node.type == JOB]
    for version in (node for node in nodes if node.type == DATASET):
        readers = [windows_of(job)[version.id] for job in jobs if version.id in windows_of(job)]
        windows = [window for several in readers for window in several]
        _tombstones(work, root, version, windows)
    work.findings += skewed_writers(work.state, work.project, nodes, everywhere=False)
    if cut:
        work.lack(root, f"more than {ANCESTORS} nodes made it; ask for one of them by its id")
    return {"id": root, "checked": len(nodes), "after": None, "complete": not cut}


def _look(work: _Audit, node: Node) -> None:
    if node.type == CONTRADICTION:
        return
    work.findings += of_node(work.state, work.project, node)
    work.findings += weaknesses(work.state, work.project, node)


def _live(work: _Audit, node: Node) -> None:
    """What is released now: evaluated, made of episodes that may be used, and still there.

    Asked at the move that a channel stands at, so that every page does its share.
    """
    name, _, rest = local_id(node.id).partition("@")
    channel, _, move = rest.partition("/")
    known = work.state.get(Channel, f"{work.project}/{name}@{channel}")
    if known is None or str(known.move) != move or channel == "retired":
        return
    current = pointer(work.state, work.project, name, channel).current
    if current is not None:
        _release(work, name, channel, current, node)


def _release(work: _Audit, name: str, channel: str, number_: int, released: Node) -> None:
    forced = shown(released, "forced_reason")
    if forced is not None and shown(released, "evaluation") is None:
        message = f"{name}@{channel} names v{number_}, which was released without an evaluation: {forced}"
        work.findings.append(_weak("UNEVALUATED_RELEASE", f"{MODEL}:{name}@v{number_}", message, released))
    node = get(work.state, work.project, model_id(name, number_))
    if node is None:
        return
    _files(work, node)
    for job, version, windows in _read_by(work, node):
        _tombstones(work, f"{name}@{channel} (v{number_}, by job {job})", version, windows, subject=node.id)


def _read_by(work: _Audit, model: Node) -> Iterator[tuple[str, Node, list[Window | None]]]:
    nodes, _ = above(work.state, work.project, model.id)
    versions = {node.id: node for node in nodes if node.type == DATASET}
    for job in (node for node in nodes if node.type == JOB):
        for pinned, windows in windows_of(job).items():
            if pinned in versions:
                yield job.id.partition(":")[2], versions[pinned], windows


def _tombstones(
    work: _Audit, who: str, version: Node, windows: list[Window | None], *, subject: str | None = None
) -> None:
    gone = work.withdrawn_episodes()
    if not gone:
        return
    listed = episodes_of(version, work.lists)
    if listed.episodes is None:
        work.lack(version.id, listed.problem)
        return
    indices = listed.episodes.indices
    used = [one for one in gone if one in indices and inside(indices[one], windows)]
    if used:
        nodes = [get(work.state, work.project, f"{EPISODE}:{one}") for one in used[:_NAMED]]
        events = tuple(fact.event for node in nodes for fact in facts_named(node, "EpisodeWithdrawn"))
        message = f"{who} was made with {len(used)} withdrawn episode{'s' if len(used) > 1 else ''} of {version.id}"
        work.findings.append(
            Contradiction(
                code="USES_TOMBSTONED_EPISODE",
                subject=subject or version.id,
                message=message,
                values=tuple(used[:_NAMED]),
                events=events[:8],
                settled=False,
            )
        )


def _files(work: _Audit, model: Node) -> None:
    """Whether what was released can still be loaded, and is what was registered."""
    checkpoint = get(work.state, work.project, f"checkpoint:{shown(model, 'checkpoint')}")
    files = [(path, sha256, size) for path, sha256, size in files_of(work.state, work.project, model)]
    if not files:
        return
    if is_kept(model):
        look = work.artefacts.look_at_kept(work.project, files, may_read=work.may_read)
    else:
        job, uri = shown(model, "job"), shown(model, "uri")
        look = work.artefacts.look(work.project, job, uri, files, may_read=work.may_read)
    work.may_read -= look.read
    work.unread += look.unread
    if look.unread and work.contents:
        work.lack(model.id, f"the content of {look.unread} bytes of its files was not compared yet; ask again to go on")
    if not look.seen:
        place = shown(model, "kept_in") or shown(model, "uri")
        work.lack(model.id, f"its files at {place} cannot be looked at from here")
    elif look.problem is not None:
        name, version = name_and_number(model.id)
        message = f"{name}@v{version}: {look.problem}"
        code = "MODEL_BROKEN" if look.changed else "NEEDED_BUT_GONE"
        work.findings.append(_weak(code, model.id, message, checkpoint))


def _weak(code: str, subject: str, message: str, node: Node | None) -> Contradiction:
    events = () if node is None else tuple(fact.event for fact in node.facts)[:8]
    return Contradiction(code=code, subject=subject, message=message, events=events, settled=False)


def _parked(work: _Audit) -> Iterator[Contradiction]:
    """Messages of this project that the registry could not fold; they can be retried."""
    for one in work.state.all(ParkedMessage, limit=200):
        if one.subject.split(".")[1:2] == [work.project]:
            yield Contradiction(
                code="UNKNOWN_SCHEMA" if one.stage == "decode" else "PARKED",
                subject=f"event:{one.seq}",
                message=f"message {one.seq} on {one.subject} is parked: {one.cause}; retry it with forebay dead retry",
                values=(one.seq, one.stage),
                settled=False,
            )
