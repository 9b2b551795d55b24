"""Answers the bus about pods that connect: a companion of the service on a cluster (ADR 0007).

The API server says whose token it is; the record says of which job that pod is. What
the pod may then do is held by the bus. Nothing is kept: a restart forgets nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.permissions import WHO_IS_IT, permission_of_attempt
from forebay.runtime.errors import Unreachable
from forebay.runtime.state import State
from forebay.scheduler_bridge.adapters.user_jwt import Issuer
from forebay.scheduler_bridge.domain.speakers import (
    NOT_SEEN,
    Asked,
    asked_of,
    ends_at,
    proof_of,
    refusal_of,
    review_of,
)
from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError

_log = logging.getLogger(__name__)
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
WITHIN_S = 1.7
"""The server gives up on an answer after two seconds."""
_LOOK_EVERY_S = 0.05
_CHECK_S = 5.0
_LATE = "neither the API server nor the watch told of it in time; it tries again"
_CLOSED = "the connection on which the bus asks about pods was closed for good"
_REMEMBERED = 1_000
_QUEUE = "door"
"""Of several bridges one answers."""


class Reviewer(Protocol):
    """Whoever can ask the API server about a token."""

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...


class Record(Protocol):
    """What the service knows, and its health (`Company`)."""

    async def read(self, question: Callable[[State], str | None]) -> str | None: ...

    def probe(self, name: str, value: Callable[[], Any]) -> None: ...


class Doorkeeper:
    """Lets the pods of our jobs onto the bus, each for its own job."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[NatsClient]],
        api: Reviewer,
        issuer: Issuer,
        namespaces: Mapping[str, str],
    ) -> None:
        self._connect = connect
        self._api = api
        self._issuer = issuer
        self._namespaces = namespaces
        """Project -> where its jobs run."""
        self._admitted = 0
        self._refused = 0
        self._said: dict[tuple[str, str], str] = {}

    async def __call__(self, company: Record) -> None:
        """Answer until cancelled."""
        company.probe("pods", lambda: f"{self._admitted} admitted, {self._refused} refused")
        client = await self._connect()
        try:
            async with asyncio.TaskGroup() as group:

                async def somebody_connects(message: Msg) -> None:
                    group.create_task(self._answer(message, company))

                await client.subscribe(WHO_IS_IT, queue=_QUEUE, cb=somebody_connects)
                while not client.is_closed:
                    await asyncio.sleep(_CHECK_S)
                raise Unreachable(_CLOSED)  # the service ends and is started again
        finally:
            await client.close()

    async def _answer(self, message: Msg, company: Record) -> None:
        try:
            asked = asked_of(message.data)
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("the bus asked in a way that is not understood (%s)", error)
            return  # nothing to make an answer out to; the server refuses by itself
        answer = await self._judge(asked, company)
        try:
            await message.respond(answer)
        except NatsError as error:
            _log.warning("the bus was not answered about a pod of %s/%s: %s", asked.project, asked.job, error)

    async def _judge(self, asked: Asked, company: Record) -> bytes:
        now = int(time.time())
        try:
            permission = permission_of_attempt(asked.project, asked.job)
            async with asyncio.timeout(WITHIN_S):
                why = await self._refusal(asked, company)
        except (ApiSilentError, ApiRefusedError, InvalidNameError) as error:
            why = str(error)
        except TimeoutError:
            why = _LATE
        if why is not None:
            self._refused += 1
            self._say(asked, why)
            return self._issuer.refuse(asked, why, now=now)
        self._admitted += 1
        self._said.pop((asked.project, asked.job), None)
        return self._issuer.admit(asked, permission, now=now, until=ends_at(asked.token, now))

    def _say(self, asked: Asked, why: str) -> None:
        """A pod tries again many times a minute; each reason is said once."""
        if len(self._said) > _REMEMBERED:  # whoever reaches the bus chooses these names
            self._said.clear()
        if self._said.get((asked.project, asked.job)) != why:
            self._said[asked.project, asked.job] = why
            _log.warning("not let onto the bus as %r of %r: %s", asked.job, asked.project, why)

    async def _refusal(self, asked: Asked, company: Record) -> str | None:
        pod = proof_of(await self._api.post(REVIEWS, review_of(asked.token)))
        if pod is None:
            return "the API server does not vouch for its token"
        namespace = self._namespaces.get(asked.project)
        while (why := await company.read(lambda state: refusal_of(state, asked, pod, namespace))) == NOT_SEEN:
            await asyncio.sleep(_LOOK_EVERY_S)
        return why
