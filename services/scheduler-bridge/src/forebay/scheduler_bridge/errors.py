"""Errors of the scheduler bridge that are not an answer: what a backend cannot do."""

from __future__ import annotations

from pathlib import Path

from forebay.runtime.errors import SettingsError


class BridgeError(Exception):
    """Root of the bridge's own errors."""


class StartError(BridgeError):
    """An attempt's agent could not be started; trying again changes nothing until the cause is mended."""

    def __init__(self, attempt: str, cause: str) -> None:
        super().__init__(f"attempt {attempt} could not be started: {cause}")
        self.attempt = attempt
        self.cause = cause


class ApiError(BridgeError):
    """The Kubernetes API did not do what it was asked."""


class ApiRefusedError(ApiError):
    """The API server answered, and the answer is no; `reason` and `message` are its own words."""

    def __init__(self, *, path: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{path}: {status} {reason}: {message}")
        self.path = path
        self.status = status
        self.reason = reason
        self.message = message


class ApiSilentError(ApiError):
    """No answer, or one that does not say whether it was done. A write may have happened: look first."""


class ProjectFilesError(SettingsError):
    """Project files that cannot be used, with every problem; the service says so and ends."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("the project files cannot be used: " + "; ".join(problems))
        self.problems = problems


class IssuerKeyError(SettingsError):
    """The key that answers about pods are signed with is none."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"FOREBAY_ATTEMPT_ISSUER: {path} holds no account key; forebay bus init makes one")


class ClusterUnknownError(SettingsError):
    """Nothing says which cluster is meant, or who we are there; the service says so and ends."""
