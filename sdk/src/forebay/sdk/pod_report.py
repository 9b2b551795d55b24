"""The report of the checks as a container's termination message: JSON, at most 4,096 bytes, no secret."""

from __future__ import annotations

import json
from collections.abc import Sequence

from forebay.contracts.masking import mask
from forebay.contracts.v1.jobs import PreflightCheck
from forebay.sdk.pod_checks import Finding

MAX_BYTES = 4096
"""The kubelet cuts longer messages in the middle of a word."""
_ORDER = {"fail": 0, "warn": 1, "pass": 2}
_SHORTEST = 40


def masked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The same findings with everything that looks like a credential replaced."""
    return tuple(
        Finding(check=item.check.model_copy(update={"message": mask(item.check.message)}), code=item.code)
        for item in findings
    )


def termination_message(checks: Sequence[PreflightCheck], *, attempt: int, exit_code: int) -> bytes:
    """Failures first; sentences are shortened and what passed is left out before a failure is."""
    ordered = sorted(checks, key=lambda check: _ORDER[check.status])
    longest = 1024
    while True:
        text = _encode(ordered, longest, attempt=attempt, exit_code=exit_code, left_out=len(checks) - len(ordered))
        if len(text) <= MAX_BYTES:
            return text
        if ordered[-1].status == "pass" or longest <= _SHORTEST:
            ordered = ordered[:-1]
        else:
            longest //= 2


def _encode(checks: Sequence[PreflightCheck], longest: int, *, attempt: int, exit_code: int, left_out: int) -> bytes:
    shown = [
        {"name": _cut(item.name, longest), "status": item.status, "reason": item.reason.value,
         "message": _cut(item.message, longest)}
        for item in checks
    ]  # fmt: skip
    report = {"attempt": attempt, "exit_code": exit_code, "checks": shown}
    if left_out:
        report["left_out"] = left_out
    return json.dumps(report, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
