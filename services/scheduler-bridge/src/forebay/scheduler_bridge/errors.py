"""Errors of the scheduler bridge that are not an answer: what a backend cannot do."""

from __future__ import annotations


class BridgeError(Exception):
    """Root of the bridge's own errors."""


class StartError(BridgeError):
    """An attempt's agent could not be started; trying again changes nothing until the cause is mended."""

    def __init__(self, attempt: str, cause: str) -> None:
        super().__init__(f"attempt {attempt} could not be started: {cause}")
        self.attempt = attempt
        self.cause = cause
