"""`history`: every move of a model's channels with who, when and on what evidence; and what was live when."""

from __future__ import annotations

from typing import Any

from forebay.registry.domain.evidence import evidence_words, is_typed
from forebay.registry.domain.graph import get
from forebay.registry.domain.log_clock import writers_time
from forebay.registry.domain.log_times import stored_at
from forebay.registry.domain.names import CHANNELS, top, unknown
from forebay.registry.domain.nodes import EVALUATION, MODEL, Arrival, Channel, Fact, release_id
from forebay.registry.domain.view import facts_named, shown
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.models import channels
from forebay.registry.questions.request_args import number, optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State

PAGE = 200


def history(state: State, request: Request) -> dict[str, Any]:
    """`history` {model, channel?, after?, limit?, as_of?}: moves in the order of the log, oldest first."""
    state, moment = as_of(state, request)
    project = request.project
    name = text(request, "model").removeprefix(f"{MODEL}:").partition("@")[0]
    if top(state, project, MODEL, name) is None:
        raise unknown(state, project, name, MODEL)
    wanted = optional_text(request, "channel")
    if wanted is not None and wanted not in CHANNELS:
        raise Refused("bad-channel", f"{wanted!r} is no channel", f"channels are {', '.join(CHANNELS)}")
    after, limit = number(request, "after", 0, most=1 << 53), number(request, "limit", PAGE, least=1, most=1000)
    moves: list[dict[str, Any]] = []
    missing: list[dict[str, str]] = []
    for channel in CHANNELS if wanted is None else (wanted,):
        moves += _moves(state, project, name, channel, missing)
    moves.sort(key=lambda move: move["seq"])
    page = [move for move in moves if move["seq"] > after]
    return {
        "model": name,
        "as_of": moment,
        "channels": channels(state, project, name),
        "moves": page[:limit],
        "after": page[limit - 1]["seq"] if len(page) > limit else None,
        "complete": not missing,
        "missing": missing,
    }


def _moves(state: State, project: str, name: str, channel: str, missing: list[dict[str, str]]) -> list[dict[str, Any]]:
    known = state.get(Channel, f"{project}/{name}@{channel}")
    found: list[dict[str, Any]] = []
    for move in range(1, 1 + (known.move if known else 0)):
        node_id = release_id(name, channel, move)
        node = get(state, project, node_id)
        facts = facts_named(node, "ModelReleased", "ModelRolledBack")
        if node is None or not facts:
            missing.append({"id": node_id, "reason": "no event has described this move of the channel"})
            continue
        fact, arrival = facts[0], state.get(Arrival, node.key)
        seq = next((seen.seq for seen in arrival.seen() if seen.event == fact.event), 0) if arrival else 0
        stored = stored_at(state, node, fact)
        evaluation = get(state, project, f"{EVALUATION}:{fact.values.get('evaluation')}")
        evidence = {"evidence": evidence_words(evaluation), "typed": evaluation is not None and is_typed(evaluation)}
        times = {"at": stored.isoformat(), **writers_time("at_writer", stored, fact.time)}
        found.append({**_move(channel, move, fact, seq), **times, **evidence, "number": shown(node, "number")})
        if len(found) > 1:
            found[-2]["until"] = stored.isoformat()
    return found


def _move(channel: str, move: int, fact: Fact, seq: int) -> dict[str, Any]:
    said = fact.values
    return {
        "channel": channel,
        "move": move,
        "action": said["action"],
        "number": said["number"],
        "previous": said.get("previous"),
        "until": None,
        "seq": seq,
        "by": said.get("by"),
        "evaluation": said.get("evaluation"),
        "reason": said.get("forced_reason") or said.get("reason"),
        "forced": "forced_reason" in said,
        "gate": said.get("gate"),
        "event": fact.event,
    }
