"""A fetch hands on what there is, and the end of its time is one kind of error, so that no collected message is dropped."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from forebay.runtime.bus import FETCH, hand_on_at_once
from nats.errors import TimeoutError as NatsTimeout


@dataclass(frozen=True)
class Metadata:
    num_pending: int


@dataclass(frozen=True)
class Message:
    """What was delivered, and how many wait behind it."""

    text: str
    metadata: Metadata


def waiting(*texts: str) -> list[Message]:
    return [Message(text, Metadata(len(texts) - 1 - place)) for place, text in enumerate(texts)]


class Subscription:
    """A pull subscription over a consumer with these messages, like nats-py's."""

    def __init__(self, there: list[Message], error: Exception | None = None) -> None:
        self.there = there
        self.error = error or NatsTimeout()
        self.asked: list[int] = []

    async def fetch(self, batch: int = 1, timeout: float | None = 5) -> list[Message]:  # noqa: ASYNC109 nats-py's signature
        del timeout
        self.asked.append(batch)
        if not self.there:
            raise self.error
        found, self.there = self.there[:batch], self.there[batch:]
        return found


@pytest.mark.parametrize("raised", [TimeoutError(), NatsTimeout()])
async def test_both_kinds_of_time_out_become_the_one_that_is_expected(raised: Exception) -> None:
    """nats-py raises the built-in error when its time ends between two requests."""
    subscription = Subscription([], raised)
    hand_on_at_once(subscription)
    with pytest.raises(NatsTimeout):
        await subscription.fetch(batch=FETCH, timeout=0.05)


async def test_no_request_is_made_when_no_time_is_left() -> None:
    """The server would get a negative time and answer 400, which ends the loop."""
    subscription = Subscription(waiting("a"))
    hand_on_at_once(subscription)
    with pytest.raises(NatsTimeout):
        await subscription.fetch(batch=FETCH, timeout=0.0000001)
    assert subscription.asked == []


async def test_what_is_there_comes_at_once_and_nothing_is_waited_for() -> None:
    """The first message says how many are behind it; with some in hand, FastStream is told that there are no more."""
    subscription = Subscription(waiting("a", "b", "c"))
    hand_on_at_once(subscription)
    found = await subscription.fetch(batch=FETCH, timeout=0.05)
    assert [message.text for message in found] == ["a", "b", "c"]
    assert subscription.asked == [1, 2]
    with pytest.raises(NatsTimeout):
        await subscription.fetch(batch=FETCH - len(found), timeout=0.05)
    assert subscription.asked == [1, 2]


async def test_other_errors_pass_through() -> None:
    """Only the end of the time is translated."""
    subscription = Subscription([], ConnectionError("gone"))
    hand_on_at_once(subscription)
    with pytest.raises(ConnectionError):
        await subscription.fetch(batch=FETCH, timeout=0.05)
