"""`policies`: what channels ask of versions that are released into them, and who set that, why."""

from __future__ import annotations

from typing import Any

from forebay.registry.domain.gates import kept, rule_json
from forebay.registry.domain.names import CHANNELS
from forebay.registry.domain.nodes import Node, local_id
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.request_args import number
from forebay.runtime.machine import Request
from forebay.runtime.state import State

PAGE = 100


def policies(state: State, request: Request) -> dict[str, Any]:
    """`policies` {after?, limit?, as_of?}: every policy that was ever set and what it asks for now, the project's first."""
    state, moment = as_of(state, request)
    limit = number(request, "limit", PAGE, least=1, most=1000)
    prefix = f"{request.project}/gate:"
    after = prefix + str(request.args.get("after") or "")
    page = [node for node in state.all(Node, after=after, limit=limit + 1) if node.key.startswith(prefix)]
    found: list[dict[str, Any]] = []
    for node in page[:limit]:
        scope, _, channel = local_id(node.id).rpartition("@")
        model = None if scope == "*" else scope
        policy = kept(state, request.project, model, channel)
        if policy is None or channel not in CHANNELS:
            continue
        found.append(
            {
                "model": model,
                "channel": channel,
                "rules": [rule_json(rule) for rule in policy.rules],
                "evidence": policy.evidence,
                "number": policy.number,
                "reason": policy.reason,
                "by": policy.by,
                "event": policy.event,
            }
        )
    return {"as_of": moment, "policies": found, "after": local_id(page[limit - 1].id) if len(page) > limit else None}
