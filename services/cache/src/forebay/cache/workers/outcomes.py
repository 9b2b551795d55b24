"""How a warm-up or a look ended, as the events that say so."""

from __future__ import annotations

from forebay.cache.domain.decide import fact, said_node
from forebay.cache.domain.documents import Plan
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.domain.wording import show_bytes, show_share
from forebay.cache.errors import OverBudgetError, PlanError, PoolError
from forebay.cache.ports import PoolTraits
from forebay.cache.workers.warming import Warmed
from forebay.contracts.identifiers import content_digest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheFailed, CacheLost, CachePartial, CacheReady, MissingRange
from forebay.runtime.machine import Emit

SHOWN_MISSING = 20
"""Missing ranges that an event lists; the rest are counted in its message."""


def ready(known: Plan, node: str, plan: ReadPlan, warmed: Warmed, traits: PoolTraits) -> Emit:
    body = CacheReady(
        plan=known.id,
        name=known.name,
        number=known.number,
        verified_bytes=warmed.verified_bytes,
        origin_bytes=warmed.origin_bytes,
        place=plan.root,
        adapter=traits.adapter,
        proof=traits.proof,
        cannot_prove=traits.cannot_prove,
        seconds=warmed.seconds,
        node=said_node(node),
        reused_bytes=warmed.reused_bytes,
    )
    return Emit(project=known.project, body=body, dedupe=fact(known, node))


def partial(known: Plan, node: str, plan: ReadPlan, warmed: Warmed) -> Emit:
    """What is missing and why; the same shortage is said once."""
    shown = [
        MissingRange(file=one.file, start=one.range.start, stop=one.range.end, reason=one.reason)
        for one in warmed.missing[:SHOWN_MISSING]
    ]
    first = warmed.missing[0]
    cause = first.reason if warmed.trouble is None else f"{first.reason}; {warmed.trouble}"
    count = len(warmed.missing)
    ranges = "one range is missing," if count == 1 else f"{count} ranges are missing, first"
    body = CachePartial(
        plan=known.id,
        name=known.name,
        number=known.number,
        verified_bytes=warmed.verified_bytes,
        planned_bytes=plan.total_bytes,
        missing=tuple(shown),
        reason=Reason.CACHE_PARTIAL if warmed.trouble is None else warmed.trouble.reason,
        message=(
            f"{show_share(warmed.verified_bytes, plan.total_bytes)} of {show_bytes(plan.total_bytes)} verified, "
            f"{ranges} {first.file} from byte {first.range.start}: {cause}; it is tried again"
        ),
        node=said_node(node),
    )
    same = content_digest([[one.file, *one.range] for one in warmed.missing])
    return Emit(project=known.project, body=body, dedupe=(*fact(known, node), same, str(body.reason)))


def unreachable(known: Plan, node: str, error: PoolError) -> Emit:
    verified = known.on(node).verified_bytes
    body = CachePartial(
        plan=known.id,
        name=known.name,
        number=known.number,
        verified_bytes=verified,
        planned_bytes=known.total_bytes,
        reason=error.reason,
        message=f"{error}; it is tried again",
        node=said_node(node),
    )
    return Emit(project=known.project, body=body, dedupe=(*fact(known, node), str(error)))


def failed(known: Plan, node: str, error: PlanError | OverBudgetError) -> Emit:
    numbers = {}
    if isinstance(error, OverBudgetError):
        numbers = {
            "needed_bytes": error.needed,
            "available_bytes": error.available,
            "budget_bytes": error.budget,
        }
    body = CacheFailed(
        plan=known.id,
        name=known.name,
        number=known.number,
        reason=error.reason,
        message=str(error),
        node=said_node(node),
        **numbers,
    )
    return Emit(project=known.project, body=body, dedupe=fact(known, node))


def lost(known: Plan, node: str, reason: Reason, message: str) -> Emit:
    body = CacheLost(
        plan=known.id,
        name=known.name,
        number=known.number,
        reason=reason,
        message=message,
        node=said_node(node),
    )
    return Emit(project=known.project, body=body, dedupe=fact(known, node))
