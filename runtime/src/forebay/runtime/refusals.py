"""Whether the bus will ever take a message: an answer about the message itself, or trouble that may pass."""

from __future__ import annotations

from nats.errors import BadSubjectError, MaxPayloadError
from nats.js.errors import APIError

_ABOUT_THE_MESSAGE = 400
"""JetStream answers 400 when the request is wrong, 5xx when the stream cannot store anything just now."""
_ACCOUNT_IS_FULL = 10002
"""The one 400 that passes when there is room again."""


def refused_for_good(error: BaseException) -> str | None:
    """Why this very message will never be stored; None when trying again may help."""
    if isinstance(error, (MaxPayloadError, BadSubjectError)):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, APIError) and error.code == _ABOUT_THE_MESSAGE and error.err_code != _ACCOUNT_IS_FULL:
        return f"{error.description} (code {error.err_code})"
    return None
