"""Every error that reading or writing a contract can raise.

Each carries what was wrong, on which message, and what to do next; a caller
maps them to "park it" (`ContractError`), because none of them passes by waiting.
"""

from __future__ import annotations


class ContractError(ValueError):
    """A message or a name that breaks the contract. Waiting does not mend it."""


class InvalidNameError(ContractError):
    """An id, project, logical name or subject that is not in the agreed form."""


class UnknownEventError(ContractError):
    """The type or version of an event that this code has no model for.

    The message is kept (parked) so that newer code can read it later.
    """


class EnvelopeMismatchError(ContractError):
    """The envelope says something else than the subject it arrived on.

    NATS checks only the subject, so a sender may not be who the envelope claims.
    """


class InvalidBodyError(ContractError):
    """The body is not JSON, too large, or does not fit the event's model."""
