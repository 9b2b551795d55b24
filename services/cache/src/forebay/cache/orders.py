"""Commands that people give: warm a version, take that back, evict plans, set the project's policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from forebay.cache.domain.decide import evict_work
from forebay.cache.domain.documents import EXPIRED, RESIDENT, Plan, Wish, place
from forebay.cache.domain.wishes import find_version, open_wish, pinned, request
from forebay.contracts.v1.cache import CachePolicySet, WarmCancelled, WarmRequested
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State

MAX_COLUMNS = 1000
_SPAN_KEYS = 2
Order = Callable[[State, Pending, Request], Outcome]


class Orders:
    """The commands of the cache of one node."""

    def __init__(self, node: str) -> None:
        self._node = node

    def table(self) -> Mapping[str, Order]:
        return {"warm": warm, "warm-cancel": warm_cancel, "evict": self.evict, "policy-set": policy_set}

    def evict(self, state: State, _: Pending, order: Request) -> Outcome:
        """Free a plan, a dataset's plans, everything expired, or everything that nobody wants."""
        plans, what = self._meant(state, order)
        there = [plan for plan in plans if plan.on(self._node).state in RESIDENT]
        free = [plan for plan in there if not plan.wanted]
        held = [plan for plan in there if plan.wanted]
        named = "plan" in order.args
        if held and (named or not free):
            jobs = sorted({one for plan in held for one in (*plan.jobs, *plan.wishes)})
            text = f"{what}: {', '.join(jobs[:5])} {'needs' if len(jobs) == 1 else 'need'} it, so it stays"
            raise Refused("plan-leased", text, "wait until they end, or cancel them; see: forebay cache list")
        if not free:
            raise Refused("nothing-cached", f"{what}: nothing of it is in the cache", "see: forebay cache list")
        why = str(order.args.get("reason") or f"{order.by} asked for it")
        work = evict_work(state, self._node, [plan.key for plan in free], why, f"{order.project}/{order.id}")
        shown = [{"plan": plan.id, "name": plan.name, "number": plan.number} for plan in free]
        return Outcome(result={"evicting": shown, "kept": len(held)}, actions=(work,))

    def _meant(self, state: State, order: Request) -> tuple[list[Plan], str]:
        args = order.args
        if args.get("plan"):
            return [find_plan(state, order.project, str(args["plan"]))], f"plan {args['plan']}"
        mine = [plan for plan in state.find(Plan, "live", "live") if plan.project == order.project]
        if args.get("dataset"):
            name, _, number = str(args["dataset"]).partition("@v")
            found = [plan for plan in mine if plan.name == name and number in {"", str(plan.number)}]
            return found, str(args["dataset"])
        if args.get("expired"):
            return [plan for plan in mine if plan.on(self._node).state == EXPIRED], "what is expired"
        if args.get("unused"):
            return [plan for plan in mine if not plan.wanted], "what nobody uses"
        raise Refused("bad-request", "nothing is named", "name a plan or dataset, or say --expired or --unused")


def find_plan(state: State, project: str, wanted: str) -> Plan:
    """A plan by its id, or by the beginning of it."""
    found = state.get(Plan, place(project, wanted))
    if found is not None:
        return found
    page = state.all(Plan, after=place(project, wanted), limit=2) if wanted else []
    begin = [plan for plan in page if plan.project == project and plan.id.startswith(wanted)]
    if len(begin) == 1:
        return begin[0]
    why = (
        f"several plans of project {project} begin with {wanted!r}"
        if begin
        else f"no plan {wanted!r} in project {project}"
    )
    raise Refused("plan-unknown", why, "see: forebay cache list")


def warm(state: State, _: Pending, order: Request) -> Outcome:
    """Have a version warm. The same request while one is open joins it."""
    version = find_version(state, order.project, str(order.args.get("name", "")))
    columns = order.args.get("columns") or ()
    if not isinstance(columns, list | tuple) or len(columns) > MAX_COLUMNS:
        raise Refused("bad-request", f"columns are a list of at most {MAX_COLUMNS} names", "forebay warm --help")
    item = pinned(
        version,
        f"dataset:{order.args['name']}",
        tuple(sorted({str(one) for one in columns})),
        _episodes(order.args.get("episodes")),
    )
    joined = open_wish(state, order.project, item)
    if joined is not None:
        return Outcome(result=_requested(joined.id, item.name, item.number, joined=True))
    why = str(order.args.get("reason") or "asked")
    emit = request(order.project, item, by=order.by, why=why, identity=("asked", order.id))
    body = emit.body
    wish_id = body.request if isinstance(body, WarmRequested) else ""
    return Outcome(result=_requested(wish_id, item.name, item.number, joined=False), actions=(emit,))


def _requested(wish_id: str, name: str, number: int, *, joined: bool) -> dict[str, Any]:
    return {"request": wish_id, "name": name, "number": number, "joined": joined}


def _episodes(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    good = isinstance(value, list | tuple) and len(value) == _SPAN_KEYS and all(isinstance(one, int) for one in value)
    if not good or not 0 <= value[0] < value[1]:
        raise Refused("bad-request", f"episodes {value!r} are no [first, last)", "write FIRST:LAST, for example 0:10")
    return value[0], value[1]


def warm_cancel(state: State, _: Pending, order: Request) -> Outcome:
    """Take a request back; a warm-up that a job needs goes on."""
    wish_id = str(order.args.get("request", ""))
    wish = state.get(Wish, place(order.project, wish_id))
    if wish is None:
        raise Refused(
            "request-unknown", f"no request {wish_id!r} in project {order.project}", "see: forebay cache list"
        )
    if wish.state != "open":
        return Outcome(result={"request": wish_id, "state": wish.state, "already": True})
    body = WarmCancelled(request=wish_id, by=order.by, reason=order.args.get("reason"))
    return Outcome(
        result={"request": wish_id, "state": "cancelled", "already": False},
        actions=(Emit(project=order.project, body=body, dedupe=(wish_id,)),),
    )


def policy_set(_state: State, _: Pending, order: Request) -> Outcome:
    """Replace the project's policy."""
    wanted = order.args.get("policy")
    known = {"budget_bytes", "ttl_days", "warm"}
    if not isinstance(wanted, Mapping) or set(wanted) - known:
        extra = ", ".join(sorted(set(wanted) - known)) if isinstance(wanted, Mapping) else "it is no mapping"
        raise Refused("bad-policy", f"the policy does not fit: {extra}", f"its keys are {', '.join(sorted(known))}")
    try:
        body = CachePolicySet.model_validate({**wanted, "by": order.by})
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)
        )
        raise Refused(
            "bad-policy", f"the policy does not fit: {problems}", "see: forebay cache policy --help"
        ) from error
    emit = Emit(project=order.project, body=body, dedupe=(order.id,))
    return Outcome(result={"policy": body.to_json()}, actions=(emit,))
