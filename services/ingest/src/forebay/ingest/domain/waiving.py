"""Waivers: a person takes responsibility for ignoring a rule, and held episodes go on.

The command `waive` becomes the event `RuleWaived`. Its fold finds the held episodes
whose every hold is waived now and marks them; `decide` accepts the marked ones with the
waiver as evidence. They enter the dataset's next version together. What is being
checked or written at that moment is looked at again when it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from forebay.contracts.v1 import episodes
from forebay.ingest.domain.claims import as_event
from forebay.ingest.domain.documents import Dataset, Episode, Upload, Version, Waiver, Waivers, place
from forebay.ingest.domain.line import after_verdicts, take_turn
from forebay.ingest.domain.membership import leave_out
from forebay.ingest.domain.policy import FIXED, unknown_rule
from forebay.ingest.domain.rules import RULES
from forebay.ingest.domain.selecting import find_episodes
from forebay.ingest.domain.tagging import find_dataset, reason_of
from forebay.ingest.domain.verdict_values import Told
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import Fold, State

_RESTING = frozenset({"COMMITTED", "REFUSED"})
"""States of an upload in which nobody works on it."""
_MOST_EPISODES = 10_000


def waive(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """The command: refuse what cannot be waived, else say which episodes go on."""
    dataset = find_dataset(state, request)
    rule, reason = str(request.args.get("rule", "")), request.args.get("reason")
    if rule not in RULES:
        raise Refused("rule-unknown", unknown_rule(rule), "forebay rules")
    if rule in FIXED:
        text = f"{rule} ({RULES[rule].title}) cannot be waived: what breaks it cannot become rows of a version"
        raise Refused("rule-fixed", text, RULES[rule].fix)
    if not isinstance(reason, str) or not reason.strip():
        raise Refused("bad-request", "a waiver needs a reason", "say with --reason why the rule may be ignored")
    named = _named(state, request, dataset.name)
    body = episodes.RuleWaived(
        dataset=dataset.name, rule=rule, episodes=tuple(named), reason=reason.strip()[:500], by=request.by
    )
    waivers = state.get(Waivers, dataset.key) or Waivers(project=request.project, dataset=dataset.name)
    after = replace(waivers, all=(*waivers.all, _waiver(body, request.now)))
    held = [episode for upload in _uploads(state, dataset.key) for episode in _held(state, upload)]
    hit = [e for e in held if rule in e.holds and (not named or e.id in named)]
    accepted = [e.id for e in hit if _freed(e, after, request.now)]
    result = {
        "dataset": dataset.name,
        "rule": rule,
        "episodes": sorted(named),
        "accepted": sorted(accepted),
        "still_held": sorted(e.id for e in hit if e.id not in accepted),
        "by": request.by,
    }
    return Outcome(result=result, actions=(Emit(project=request.project, body=body, dedupe=("command", request.id)),))


def _named(state: State, request: Request, dataset: str) -> list[str]:
    """The episodes of a request, each known in the dataset."""
    given: Any = request.args.get("episodes") or []
    if not isinstance(given, list) or len(given) > _MOST_EPISODES or not all(isinstance(id_, str) for id_ in given):
        raise Refused("bad-request", "the episodes are no list of ids", "forebay dataset show lists them")
    found = find_episodes(state, request, given)
    for wanted, episode in zip(given, found, strict=True):
        if episode.dataset != dataset:
            text = f"the episode {wanted!r} is in dataset {episode.dataset}, not in {dataset}"
            raise Refused("episode-unknown", text, f"forebay dataset show {dataset} lists what is held")
    return [episode.id for episode in found]


def revoke_waiver(state: State, pending: Pending, request: Request) -> Outcome:
    """`{dataset, number, reason}` -> a waiver that holds no longer; what it let in stays, and is named."""
    dataset, reason, number = find_dataset(state, request), reason_of(request), request.args.get("number")
    if not reason:
        raise Refused("bad-request", "no reason is given", "say why with --reason; it stays on record")
    all_ = (state.get(Waivers, dataset.key) or Waivers(project=request.project, dataset=dataset.name)).all
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= len(all_):
        has = f"it has 1 to {len(all_)}" if all_ else "it has none"
        text = f"dataset {dataset.name} has no waiver {number!r}; {has}"
        raise Refused("waiver-unknown", text, "forebay rules waivers --dataset " + dataset.name)
    waiver = all_[number - 1]
    before = [(waiver.revoked, waiver.revoked_by)] if waiver.revoked is not None else []
    before += [(o.reason, o.by) for o in pending.of(episodes.WaiverRevoked, request.project) if _is(o, dataset, number)]
    if before:
        why, by = before[0]
        text = f"waiver {number} of {dataset.name} was revoked by {by} ({why}) before; nothing was changed"
        raise Refused("waiver-revoked", text, "forebay rules waivers --dataset " + dataset.name)
    let_in = [
        episode.id
        for upload in _uploads(state, dataset.key)
        for episode in state.find(Episode, "upload_key", upload.key)
        if episode.state == "ACCEPTED"
        and waiver.rule in episode.rules
        and episode.id in (waiver.episodes or (episode.id,))
    ]
    body = episodes.WaiverRevoked(dataset=dataset.name, number=number, rule=waiver.rule, reason=reason, by=request.by)
    result = {
        "dataset": dataset.name,
        "number": number,
        "rule": waiver.rule,
        "by": request.by,
        "let_in": sorted(let_in),
    }
    return Outcome(result=result, actions=(Emit(project=request.project, body=body, dedupe=(dataset.name, number)),))


def _is(body: episodes.WaiverRevoked, dataset: Dataset, number: int) -> bool:
    return (body.dataset, body.number) == (dataset.name, number)


def waivers(state: State, request: Request) -> dict[str, Any]:
    """`{dataset}` -> every waiver on it, with whether it holds now."""
    dataset = find_dataset(state, request)
    found = state.get(Waivers, dataset.key)
    return {
        "dataset": dataset.name,
        "waivers": [
            {
                "number": number,
                "rule": one.rule,
                "episodes": list(one.episodes),
                "reason": one.reason,
                "by": one.by,
                "at": None if one.at is None else one.at.isoformat(),
                "until": None if one.until is None else one.until.isoformat(),
                "holds": one.holds(request.now),
                "revoked": one.revoked,
                "revoked_by": one.revoked_by,
                "revoked_at": None if one.revoked_at is None else one.revoked_at.isoformat(),
            }
            for number, one in enumerate(() if found is None else found.all, start=1)
        ],
    }


def waiver_revoked(fold: Fold, project: str, body: episodes.WaiverRevoked, now: datetime) -> None:
    """Mark the waiver: no later verdict is given with it."""
    found = fold.get(Waivers, place(project, body.dataset))
    if found is None or not 1 <= body.number <= len(found.all) or found.all[body.number - 1].revoked is not None:
        return
    revoked = replace(found.all[body.number - 1], revoked=body.reason, revoked_by=body.by, revoked_at=now)
    fold.put(replace(found, all=(*found.all[: body.number - 1], revoked, *found.all[body.number :])))


def rule_waived(fold: Fold, project: str, body: episodes.RuleWaived, now: datetime) -> None:
    """Keep the waiver, and mark the held episodes that go on because of it."""
    key = place(project, body.dataset)
    waivers = fold.get(Waivers, key) or Waivers(project=project, dataset=body.dataset)
    fold.put(replace(waivers, all=(*waivers.all, _waiver(body, now))))
    for upload in _uploads(fold, key):
        reconsider(fold, upload, now)


def reconsider(fold: Fold, upload: Upload, now: datetime) -> None:
    """Mark what is held only by waived rules; nothing while somebody works on the upload."""
    waivers = fold.get(Waivers, upload.dataset_key)
    if waivers is None or upload.state not in _RESTING:
        return
    freed = [episode for episode in _held(fold, upload) if not episode.freed and _freed(episode, waivers, now)]
    for episode in freed:
        fold.put(replace(episode, freed=True))
    if freed:
        fold.put(replace(upload, returning=upload.returning + len(freed)))


def accept_freed(state: State, project: str, dataset: str) -> Iterator[Emit]:
    """A good verdict for every marked episode, with who waived what and why."""
    key = place(project, dataset)
    waivers = state.get(Waivers, key)
    for upload in _uploads(state, key) if waivers is not None else ():
        for episode in _held(state, upload) if upload.returning else ():
            if episode.freed and waivers is not None:
                yield Emit(project=project, body=_accepted(episode, waivers), dedupe=(episode.id,))


def _accepted(episode: Episode, waivers: Waivers) -> episodes.EpisodeAccepted:
    findings = [_told_as_waived(told, waivers.of(told.rule, episode.id)) for told in episode.findings]
    return episodes.EpisodeAccepted(
        episode=episode.id,
        upload=episode.upload,
        dataset=episode.dataset,
        source_index=episode.source_index,
        length=episode.length,
        rules_version=episode.rules_version or "",
        tasks=episode.tasks,
        warnings=tuple(findings),
        sha256=episode.sha256,
        as_read=None if episode.as_read is None else as_event(episode.as_read),
    )


def _told_as_waived(told: Told, waiver: Waiver | None) -> episodes.Finding:
    finding = episodes.Finding.model_validate({name: getattr(told, name) for name in told.__struct_fields__})
    if waiver is None or told.severity != "hold":
        return finding
    text = f"{told.message} [waived by {waiver.by}: {waiver.reason}]"
    return finding.model_copy(update={"severity": "info", "message": text})


def episode_returned(fold: Fold, episode: Episode) -> None:
    """The good verdict on a freed episode is here: with the last one of its upload, a new version is due.

    An episode that was withdrawn meanwhile only stops being waited for.
    """
    upload = fold.get(Upload, episode.upload_key)
    if upload is None:
        return
    changed = replace(upload, returning=upload.returning - 1)
    if episode.accepted:
        for version in fold.find(Version, "dataset_key", upload.dataset_key):
            if upload.id in version.uploads:  # versions of before do not hold it
                fold.put(replace(version, left_out=leave_out(version.left_out, [episode])))
        late = (*upload.late, episode.source_index) if upload.version is not None else upload.late
        changed = replace(changed, accepted=upload.accepted + 1, held=upload.held - 1, late=late)
    fold.put(changed)
    fresh = changed.late or (changed.version is None and changed.accepted)
    if changed.returning == 0 and changed.state in _RESTING and fresh:
        _take_turn_again(fold, changed)


def look_again(fold: Fold, dataset_key: str, now: datetime) -> None:
    """Something in the dataset came to rest: waivers of that time count now."""
    if fold.get(Waivers, dataset_key) is not None:
        for upload in _uploads(fold, dataset_key):
            reconsider(fold, upload, now)


def _take_turn_again(fold: Fold, upload: Upload) -> None:
    mine = take_turn(fold, upload.project, upload.dataset, upload.id)
    again = replace(upload, state="VALIDATING" if mine else "WAITING")
    fold.put(again)
    after_verdicts(fold, again)  # every verdict is there already


def _waiver(body: episodes.RuleWaived, at: datetime) -> Waiver:
    return Waiver(rule=body.rule, episodes=body.episodes, reason=body.reason, by=body.by, until=body.until, at=at)


def _uploads(state: State, dataset_key: str) -> list[Upload]:
    return state.find(Upload, "dataset_key", dataset_key)


def _held(state: State, upload: Upload) -> list[Episode]:
    return [e for e in state.find(Episode, "upload_key", upload.key) if e.state == "HELD"] if upload.held else []


def _freed(episode: Episode, waivers: Waivers, now: datetime) -> bool:
    return bool(episode.holds) and all(waivers.of(rule, episode.id, now) is not None for rule in episode.holds)
