"""What can go wrong on one machine, each with what to do next."""

from __future__ import annotations

from forebay.runtime.errors import Refused, Unreachable


class LocalError(Refused):
    """The installation on this machine cannot do what was asked."""

    def __init__(self, message: str, next_action: str = "", code: str = "local") -> None:
        super().__init__(code, message, next_action)


class StartError(Unreachable):
    """Something that the installation needs did not come up."""
