"""What can go wrong with the test cluster, each with what to do next."""

from __future__ import annotations

from pathlib import Path

from forebay.runtime.errors import Refused, Unreachable

_LAST_LINES = 25


class CannotRun(Refused):
    """The test cluster cannot run on this machine."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__(
            "cannot-run",
            "the test cluster cannot run here: " + "; ".join(reasons),
            "run it as root on Linux, or use any cluster with Kueue: KUBECONFIG=/path/to/its/kubeconfig make test-cluster",
        )


class ClusterError(Refused):
    """The cluster, or a command to it, said no."""

    def __init__(self, message: str, next_action: str = "") -> None:
        super().__init__("test-cluster", message, next_action)


class StepFailed(Unreachable):
    """A step of the start did not come to its end; carries the last lines of the log that tells why."""

    def __init__(self, message: str, log: Path) -> None:
        super().__init__(f"{message}\n--- the end of {log}\n{tail(log)}", f"the whole log is {log}")


def tail(log: Path, lines: int = _LAST_LINES) -> str:
    """The last lines of a log, or that there is none."""
    if not log.exists():
        return "(there is no such file yet)"
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]) or "(it is empty)"
