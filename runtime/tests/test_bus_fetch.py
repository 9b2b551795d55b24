"""The end of a fetch's time is one kind of error, so that no collected message is dropped with it."""

from __future__ import annotations

import pytest
from forebay.runtime.bus import time_out_in_one_way
from nats.errors import TimeoutError as NatsTimeout


class Subscription:
    """A pull subscription that answers with what it is given, like nats-py's."""

    def __init__(self, answer: list[str] | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.window: float | None = None

    async def fetch(self, batch: int = 1, timeout: float | None = 5) -> list[str]:  # noqa: ASYNC109 nats-py's signature
        self.asked += 1
        self.window = timeout
        if isinstance(self.answer, Exception):
            raise self.answer
        return [*self.answer][:batch]


@pytest.mark.parametrize("raised", [TimeoutError(), NatsTimeout()])
async def test_both_kinds_of_time_out_become_the_one_that_is_expected(raised: Exception) -> None:
    """nats-py raises the built-in error when its time ends between two requests."""
    subscription = Subscription(raised)
    time_out_in_one_way(subscription)
    with pytest.raises(NatsTimeout):
        await subscription.fetch(batch=10, timeout=0.05)


async def test_no_request_is_made_when_no_time_is_left() -> None:
    """The server would get a negative time and answer 400, which ends the loop."""
    subscription = Subscription(["a"])
    time_out_in_one_way(subscription)
    with pytest.raises(NatsTimeout):
        await subscription.fetch(batch=10, timeout=0.0000001)
    assert subscription.asked == 0


async def test_messages_and_other_errors_pass_through() -> None:
    """Only the end of the time is translated."""
    subscription = Subscription(["a", "b"])
    time_out_in_one_way(subscription)
    assert await subscription.fetch(batch=10, timeout=0.05) == ["a", "b"]
    subscription.answer = ConnectionError("gone")
    with pytest.raises(ConnectionError):
        await subscription.fetch(batch=10, timeout=0.05)
