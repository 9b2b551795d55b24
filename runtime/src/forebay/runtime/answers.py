"""Answers: commands and questions of a service over request/reply, and the runtime's own.

Every answer says up to which sequence it is true and how many messages are still
to be folded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from opentelemetry.trace import SpanKind

from forebay.runtime import telemetry
from forebay.runtime.engine import Engine
from forebay.runtime.errors import Refused, StoreNotFitError
from forebay.runtime.health import Health
from forebay.runtime.log import LogReader
from forebay.runtime.lost_tail import NEWEST, lost_tail
from forebay.runtime.machine import READ_UP_TO, Request
from forebay.runtime.parking import Parking
from forebay.runtime.records import LOST, ParkedMessage
from forebay.runtime.sequences import ranges
from forebay.runtime.stores.place import StorePlace
from forebay.runtime.stores.port import Delete, WriteBatch
from forebay.runtime.takeover import Takeover
from forebay.runtime.wording import counted

_log = logging.getLogger(__name__)
STORED_WITHIN_S = 15.0


class Answers:
    """Dispatches one engine's questions. `broken` is set when a rebuild broke off while it swapped stores."""

    def __init__(self, engine: Engine, log: LogReader, health: Health, place: StorePlace) -> None:
        self._engine = engine
        self._log = log
        self._health = health
        self._place = place
        self._takeover: Takeover | None = None
        self._taking: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._own: dict[str, Callable[[Request], Awaitable[dict[str, Any]]]] = {
            "health": self._report,
            "digest": self._digest,
            "dead": self._dead,
            "dead-retry": self._retry,
            "dead-dismiss": self._dismiss,
            "rebuild": self._rebuild,
        }

    async def ask(self, project: str, question: str, data: bytes, job: str | None = None) -> dict[str, Any]:
        """Answer one request; never raises for what a client sent. With `job`, only if it is about that job."""
        started = time.monotonic()
        known = True
        try:
            body = _body(data)
            request = request_of(body, project=project, now=datetime.now(UTC), job=job)
            result = await self._dispatch(question, request)
        except Refused as refused:
            known = refused.code != "unknown-question"
            return {"ok": False, "error": refused.to_json(), **self._as_of()}
        except StoreNotFitError as error:  # no room, for instance: said with what to do, and no defect
            message = f"{self._engine.service.name} cannot answer {question!r} now: {error}"
            return {"ok": False, "error": Refused("store", message).to_json(), **self._as_of()}
        except Exception as error:  # noqa: BLE001 one bad question must not end the service
            _log.exception("question %s failed", question)
            message = f"{self._engine.service.name} failed to answer {question!r}: {type(error).__name__}: {error}"
            advice = "its log has the details; please report it"
            return {"ok": False, "error": Refused("internal", message, advice).to_json(), **self._as_of()}
        else:
            return {"ok": True, "result": result, **self._as_of()}
        finally:
            label = question if known else "unknown"
            telemetry.ASKED.labels(self._engine.service.name, label).observe(time.monotonic() - started)

    def _as_of(self) -> dict[str, int]:
        return {"as_of_seq": self._engine.position, "lag": self._engine.lag}

    async def _dispatch(self, question: str, request: Request) -> dict[str, Any]:
        service = self._engine.service
        own = self._own.get(question)
        if own is not None:
            return await own(request)
        if question in service.questions:
            return self._with_losses(await self._engine.question(question, request))
        if question in service.commands:
            return await self._command(question, request)
        known = ", ".join(sorted({*service.questions, *service.commands, *self._own}))
        raise Refused("unknown-question", f"{service.name} has no question {question!r}; it answers: {known}")

    def _with_losses(self, result: dict[str, Any]) -> dict[str, Any]:
        """No answer is complete while the log lacks messages that an operator has accepted as lost."""
        gaps = self._engine.gaps
        if not gaps or "complete" not in result:
            return result
        lost = {"id": "log", "reason": f"the log lost {counted(len(gaps), 'message')}: {ranges(sorted(gaps))}"}
        return {**result, "complete": False, "missing": [*result.get("missing", ()), lost]}

    async def _report(self, _: Request) -> dict[str, Any]:
        return self._health.report()

    async def _digest(self, _: Request) -> dict[str, Any]:
        position, digest, documents = await self._engine.digest()
        return {
            "position": position,
            "digest": digest,
            "documents": documents,
            "fold_version": self._engine.service.fold_version,
        }

    async def _command(self, name: str, request: Request) -> dict[str, Any]:
        if not self._health.caught_up:
            raise Refused(
                "catching-up", f"{self._engine.service.name} is still reading the log", "try again in a moment"
            )
        after = request.args.get(READ_UP_TO)
        if isinstance(after, int) and self._engine.position < after:
            raise Refused(
                "catching-up",
                f"{self._engine.service.name} has read the log up to {self._engine.position}, not yet to {after}",
                "try again in a moment",
            )
        if not request.id:
            request = Request(
                id=uuid.uuid4().hex, project=request.project, by=request.by, args=request.args, now=request.now
            )
        with telemetry.span(f"command {name}", kind=SpanKind.SERVER, service=self._engine.service.name):
            result, waiting = await self._engine.command(name, request)
        if waiting:
            stored = asyncio.gather(*waiting)
            await asyncio.wait((stored, self._closing), timeout=STORED_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
            if not stored.done():
                raise Refused(
                    "not-stored-yet",
                    f"{name} was decided, but its events are not in the log yet;"
                    " they are in the outbox and will be published when the bus takes them",
                    "ask again with the same id to see the answer",
                )
        return result

    async def _rebuild(self, request: Request) -> dict[str, Any]:
        """Start a rebuild that takes over (`start`: true), or say how far the last one is."""
        running = self._taking is not None and not self._taking.done()
        if request.args.get("start") and not running:
            if not self._health.caught_up:
                raise Refused(
                    "catching-up", f"{self._engine.service.name} is still reading the log", "try again in a moment"
                )
            self._takeover = Takeover(self._engine, self._place, self._log)
            self._taking = asyncio.create_task(self._takeover.run(), name="rebuild")
            self._taking.add_done_callback(self._rebuilt)
        if self._takeover is None:
            raise Refused("never-rebuilt", f"{self._engine.service.name} was not rebuilt since it started")
        return self._takeover.progress.to_json()

    def _rebuilt(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.broken.done():
            self.broken.set_exception(error)

    async def close(self) -> None:
        """Answer commands that still wait, and end a rebuild that is under way; the live store stays as it is."""
        self._closing.cancel()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)

    async def _dead(self, _: Request) -> dict[str, Any]:
        """What is parked and not dismissed; how much of the list is shown when it is long."""
        found = await Parking(self._engine).now()
        shown = [
            {
                "what": "message",
                "seq": one.seq,
                "subject": one.subject,
                "stage": one.stage,
                "cause": one.cause,
                "at": one.at,
            }
            if isinstance(one, ParkedMessage)
            else {"what": "work", "work": one.key, "cause": one.last_error or "", "at": one.asked_at}
            for one in found
        ]
        total = len(self._engine.decisions.parked) + len(self._engine.decisions.parked_work)
        lost = await lost_tail(self._engine.store)
        return {
            "dead": shown,
            "total": total,
            "lost_tail": None if lost is None else {"at": lost.at, "text": lost.describe(self._engine.service.name)},
        }

    async def _dismiss(self, request: Request) -> dict[str, Any]:
        if request.args.get("lost_tail"):
            await self._engine.store.write(WriteBatch(deletes=[Delete(LOST, NEWEST)]))
            self._health.problem("lost tail", lambda: "")
            return {"dismissed": "lost-tail"}
        if request.args.get("all"):
            return {"dismissed": await Parking(self._engine).dismiss_all(by=request.by, project=request.project)}
        if work := request.args.get("work"):
            await Parking(self._engine).dismiss(by=request.by, work=str(work))
            return {"dismissed": work}
        seq = _seq(request)
        await Parking(self._engine).dismiss(by=request.by, seq=seq)
        return {"dismissed": seq}

    async def _retry(self, request: Request) -> dict[str, Any]:
        if work := request.args.get("work"):
            await Parking(self._engine).retry_work(str(work))
            return {"work": work, "state": "open"}
        seq = _seq(request)
        message = await self._log.one(seq)
        if message is None:
            raise Refused("not-in-log", f"the log holds no message {seq}", "it can be seen with: forebay dead show")
        return {"seq": seq, "folded": await self._engine.retry_parked(message)}


def _seq(request: Request) -> int:
    try:
        return int(request.args["seq"])
    except (KeyError, TypeError, ValueError):
        raise Refused("bad-request", "it needs 'seq' (a number) or 'work'") from None


def _body(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused("bad-request", f"the question is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused("bad-request", "the question must be a JSON object: {'id', 'by', 'args': {…}}")
    return body


def request_of(data: dict[str, Any], *, project: str, now: datetime, job: str | None = None) -> Request:
    """Read a question's JSON; raises `Refused` when it is not one, or not about the job that it came for."""
    args = data.get("args", {})
    if not isinstance(args, dict) or not isinstance(data.get("id", ""), str):
        raise Refused("bad-request", "a question is JSON: {'id', 'by', 'args': {…}}")
    if job is not None and args.get("job") != job:
        raise Refused("not-yours", f"whoever may ask about job {job} may ask about no other")
    return Request(
        id=str(data.get("id") or ""), project=project, by=str(data.get("by") or "unknown"), args=args, now=now
    )
