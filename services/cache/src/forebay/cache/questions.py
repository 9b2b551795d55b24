"""Answers: which plans exist, how warm each is and where, what the cache holds, and why something is as it is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forebay.cache.domain.budget import eviction_order, held_bytes
from forebay.cache.domain.documents import (
    EXPIRED,
    READY,
    RESIDENT,
    Histogram,
    Job,
    Plan,
    Policy,
    PoolState,
    Wish,
    place,
)
from forebay.cache.domain.expiry import DEFAULT_TTL_DAYS, ENOUGH_USES, expires_at, ttl_days
from forebay.cache.domain.room import claim_of, holds, pool_budget
from forebay.cache.domain.wording import show_bytes, show_share
from forebay.cache.orders import find_plan
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State

PAGE = 100
_MANY = 1000
Answer = Callable[[State, Request], dict[str, Any]]


class Questions:
    """The questions to the cache of one node."""

    def __init__(self, node: str, budget_bytes: int | None) -> None:
        self._node = node
        self._budget_bytes = budget_bytes

    def table(self) -> Mapping[str, Answer]:
        return {
            "plans": plans,
            "plan": plan,
            "nodes": nodes,
            "list": self.listing,
            "why": self.why,
            "wish": wish,
            "policy": policy,
        }

    def listing(self, state: State, request: Request) -> dict[str, Any]:
        """One page of what the cache holds of a project, and how much room there is."""
        found, following = _page(state, request)
        everything = bool(request.args.get("all"))
        return {
            "plans": [self._entry(state, request, one) for one in found if everything or one.live is not None],
            "next": following,
            "room": self._room(state, request),
            "open_requests": _open(state, request.project),
        }

    def why(self, state: State, request: Request) -> dict[str, Any]:
        """One plan in sentences: what it is, who wants it, what it waits for, when it goes."""
        wanted = str(request.args.get("plan", ""))
        found = find_plan(state, request.project, wanted)
        entry = self._entry(state, request, found)
        entry["sentences"] = self._sentences(state, request, found, entry)
        return entry

    def _entry(self, state: State, request: Request, found: Plan) -> dict[str, Any]:
        entry = show(found)
        warmth = found.on(self._node)
        days = _ttl(state, request.project)
        due = expires_at(found.used_at, days)
        left = (due - request.now).total_seconds()
        resident = warmth.state in RESIDENT
        entry |= {
            "live": found.live is not None,
            "cached_bytes": warmth.verified_bytes if resident else 0,
            "ttl_days": days,
            "expires_at": None if found.wanted or not resident else due.isoformat(),
            "ttl_left_s": None if found.wanted or not resident else max(0.0, round(left)),
        }
        return entry

    def _room(self, state: State, request: Request) -> dict[str, Any]:
        held = [one for one in state.find(Plan, "live", "live") if holds(one, self._node)]
        claims = [claim_of(state, one, self._node) for one in held]
        mine = [one for one in claims if one.project == request.project]
        pool = state.get(PoolState, self._node)
        known = state.get(Policy, request.project)
        return {
            "node": self._node,
            "budget_bytes": pool_budget(state, self._node, self._budget_bytes),
            "held_bytes": held_bytes(claims),
            "leased_bytes": held_bytes([one for one in claims if one.wanted]),
            "evictable_bytes": held_bytes(claims) - held_bytes([one for one in claims if one.wanted]),
            "project_budget_bytes": known.budget_bytes if known else None,
            "project_held_bytes": held_bytes(mine),
            "goes_first": [one.key.partition("/")[2] for one in eviction_order(mine)[:3]],
            "pool": None if pool is None else msgspec.to_builtins(pool),
            "warnings": [] if pool is None else [message for _, message in pool.concerns],
        }

    def _sentences(self, state: State, request: Request, found: Plan, entry: Mapping[str, Any]) -> list[str]:
        warmth = found.on(self._node)
        said = [str(entry["summary"])]
        if warmth.message:
            said.append(warmth.message)
        if found.jobs:
            said.append(f"leased by {', '.join(found.jobs)}: it is not evicted")
        if found.wishes:
            said.append(f"asked for by {', '.join(_asked(state, found))}")
        if found.shared_bytes:
            older = found.previous.partition("/")[2] if found.previous else ""
            said.append(
                f"{show_bytes(found.shared_bytes)} of it are shared with plan {older[:12]}, which was there before"
            )
        if not found.wanted and warmth.state in RESIDENT:
            said.append(self._when_it_goes(state, request.project, found, entry))
        if warmth.cannot_prove:
            said.append(warmth.cannot_prove)
        return said

    def _when_it_goes(self, state: State, project: str, found: Plan, entry: Mapping[str, Any]) -> str:
        histogram = state.get(Histogram, project)
        uses = sum(histogram.ages.values()) if histogram else 0
        known = state.get(Policy, project)
        if known is not None and known.ttl_days is not None:
            source = "the project's policy says so"
        elif uses >= ENOUGH_USES:
            source = f"from how old data was at {uses} uses"
        else:
            source = f"the default of {DEFAULT_TTL_DAYS} days, since only {uses} uses are on record"
        if found.on(self._node).state == EXPIRED:
            return f"nobody has used it since {found.used_at:%Y-%m-%d}: it goes first when room is needed"
        return f"nobody wants it now; unused until {entry['expires_at']} it expires ({source}), and goes when room is needed"


def plans(state: State, request: Request) -> dict[str, Any]:
    """One page of a project's plans, by id; `next` is the `after` of the following page."""
    found, following = _page(state, request)
    return {"plans": [show(one) for one in found], "next": following}


def _page(state: State, request: Request) -> tuple[list[Plan], str | None]:
    limit = max(1, min(int(request.args.get("limit", PAGE)), _MANY))
    first = place(request.project, str(request.args.get("after", "")))
    found = [one for one in state.all(Plan, after=first, limit=limit) if one.project == request.project]
    return found, found[-1].id if len(found) == limit else None


def plan(state: State, request: Request) -> dict[str, Any]:
    """One plan by its id, or every plan of a job (`name-run`)."""
    wanted_plan, wanted_job = request.args.get("plan"), request.args.get("job")
    if wanted_job:
        return _of_job(state, request.project, str(wanted_job))
    if not wanted_plan:
        raise Refused("bad-request", "name a plan or a job", "ask with {'plan': ID} or {'job': NAME-RUN}")
    return show(find_plan(state, request.project, str(wanted_plan)))


def nodes(state: State, request: Request) -> dict[str, Any]:
    """How warm a plan is on each node; one that is not named here has nothing of it."""
    found = find_plan(state, request.project, str(request.args.get("plan", "")))
    warm = {
        node: {
            "state": warmth.state,
            "ready": warmth.state == READY,
            "verified_bytes": warmth.verified_bytes,
            "message": warmth.message,
            "since": warmth.since.isoformat(),
        }
        for node, warmth in sorted(found.nodes.items())
    }
    ready = [node for node, warmth in warm.items() if warmth["ready"]]
    return {"plan": found.id, "name": found.name, "number": found.number, "nodes": warm, "ready": ready}


def wish(state: State, request: Request) -> dict[str, Any]:
    """One request to have something warm, and the plan that came of it."""
    wish_id = str(request.args.get("request", ""))
    found = state.get(Wish, place(request.project, wish_id))
    if found is None:
        raise Refused("request-unknown", f"no request {wish_id!r} in project {request.project}", "forebay cache list")
    made = state.get(Plan, place(request.project, found.plan)) if found.plan else None
    return {
        "request": found.id,
        "state": found.state,
        "message": found.message,
        "by": found.by,
        "why": found.why,
        "plan": show(made) if made is not None else None,
    }


def policy(state: State, request: Request) -> dict[str, Any]:
    """The project's policy, and what follows from how its data was used."""
    known = state.get(Policy, request.project)
    histogram = state.get(Histogram, request.project)
    ages = histogram.ages if histogram is not None else {}
    return {
        "project": request.project,
        "policy": None if known is None else msgspec.to_builtins(known),
        "ttl_days": _ttl(state, request.project),
        "uses": sum(ages.values()),
        "ages": dict(sorted(ages.items(), key=lambda one: int(one[0]))),
    }


def _of_job(state: State, project: str, job_id: str) -> dict[str, Any]:
    job = state.get(Job, place(project, job_id))
    if job is None:
        known = [one.id for one in state.all(Job, after=place(project, ""), limit=_MANY) if one.project == project]
        close = difflib.get_close_matches(job_id, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "it has no lease yet; see: forebay why JOB"
        raise Refused("job-unknown", f"the cache knows no job {job_id!r} in project {project}", hint)
    found = (state.get(Plan, place(project, plan_id)) for plan_id in job.plans)
    return {
        "job": job.id,
        "inputs": len(job.inputs),
        "released": job.released,
        "plans": [show(one) for one in found if one is not None],
        "refusals": [msgspec.to_builtins(one) for one in job.refusals],
    }


def show(found: Plan) -> dict[str, Any]:
    """A plan as answers show it; its warmth is that of the node where it is warmest."""
    best = found.best
    shown: dict[str, Any] = msgspec.to_builtins(best) | msgspec.to_builtins(found)
    verified, total = show_share(best.verified_bytes, found.total_bytes), show_bytes(found.total_bytes)
    saved = show_share(found.total_bytes, found.whole_bytes)
    shown["summary"] = f"{best.state}: {verified} of {total} verified; the plan is {saved} of the version"
    return shown


def _open(state: State, project: str) -> list[dict[str, Any]]:
    found = state.find(Wish, "standing", project)
    return [{"request": one.id, "by": one.by, "why": one.why, "plan": one.plan} for one in found]


def _asked(state: State, found: Plan) -> list[str]:
    wishes = (state.get(Wish, place(found.project, one)) for one in found.wishes)
    return [f"{one.by} ({one.why})" for one in wishes if one is not None]


def _ttl(state: State, project: str) -> int:
    known, histogram = state.get(Policy, project), state.get(Histogram, project)
    return ttl_days(histogram.ages if histogram is not None else {}, known.ttl_days if known is not None else None)
