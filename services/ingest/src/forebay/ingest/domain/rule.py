"""What a validation rule is; the rules themselves are in `rules` and `rules_content`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "hold", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One named rule, with the sentences a person reads."""

    id: str
    title: str
    severity: Severity
    question: str
    why: str
    fix: str
