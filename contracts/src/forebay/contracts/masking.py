"""Take credentials out of texts before they go on record: a log line may hold a key."""

from __future__ import annotations

import re

MASK = "****"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # user:password@ in any URL
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]*@", re.IGNORECASE), rf"\1{MASK}@"),
    # query parameters of signed URLs
    (
        re.compile(
            r"([?&](?:X-Amz-Signature|X-Amz-Credential|X-Amz-Security-Token|sig|signature|token|access_token|key)=)[^&\s]+",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # Authorization headers
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    # name=value and name: value, also as JSON
    (
        re.compile(
            r"([\"']?\b[A-Za-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)[A-Za-z0-9_]*[\"']?\s*[:=]\s*)(?!\*{4})(\"[^\"]*\"|'[^']*'|[^\s,;]+)",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # keys that are known by their form
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"\bS[UAONCX][A-Z2-7]{54,}\b"), MASK),  # nkey seeds
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MASK),
)


def mask(text: str) -> str:
    """The text with everything that looks like a credential replaced."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
