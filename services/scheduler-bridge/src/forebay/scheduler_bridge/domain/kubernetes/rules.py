"""What a rule about messages is: a name, a version, when it speaks and what it says.

Rules are data. `pattern` makes one from a regular expression over the text; named groups fill
the sentence and the fields `need`, `have` and `place`. The tables stand in `rules_*.py`, in
order of decisiveness; `classify.py` asks them one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.names import without_names
from forebay.scheduler_bridge.domain.kubernetes.templates import Template
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Finding, Fits, Message, finding

_LONGEST_PART = 240
_LONGEST = 2048
"""Kubernetes cuts events at 1 KiB; what is longer says nothing new, and expressions stay quick."""
_ESCAPED = re.compile(r'\\"')
_ECHO = re.compile(r"Error: ([A-Z]\w+)")
"""An event that only repeats a reason: `Error: ErrImageNeverPull`."""
_COMBINED = re.compile(r"^\(combined from similar events\): ?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Text:
    """A message with its text made flat: one line, quotes as they were meant."""

    message: Message
    flat: str
    token: str
    """The reason in small letters without spaces."""
    bare: str
    """The flat text without quoted names: no name may decide."""


@dataclass(frozen=True, slots=True)
class MessageRule:
    """One small versioned judgement about one message. Raise `version` whenever it may answer differently."""

    name: str
    version: int
    judge: Callable[[Text, str], Finding | None]
    templates: tuple[Template, ...] = ()
    """What it says and what it advises, where that is fixed."""

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"


def flatten(message: Message) -> Text:
    """The message in the form that rules look at."""
    flat = _COMBINED.sub("", " ".join(_ESCAPED.sub('"', message.text[:_LONGEST]).split()))
    echo = _ECHO.fullmatch(flat)
    reason = echo.group(1) if echo is not None else message.reason.replace(" ", "")
    return Text(message, flat, reason.casefold(), without_names(flat))


def pattern(
    name: str,
    cause: Cause,
    says: str,
    *texts: str,
    version: int = 1,
    tokens: str = "",
    like: str = "",
    where: str = "",
    kind: str = "",
    unless: str = "",
    also: str = "",
    names: str = "",
    do: str | None = None,
    code: Reason | None = None,
    layer: Layer | None = None,
    fits: Fits = "unknown",
    weight: int = 50,
    either: bool = False,
) -> MessageRule:
    """A rule that speaks when its conditions hold.

    `texts`: any of these expressions is found in the text. `tokens`: the reason is one of these words; `like`: it looks like this.
    `kind`: an expression for the object. `also`: must be found too. `names`: fills groups where it is found. `either`: text or token is enough, otherwise both must hold.
    The sentence and `do` are templates (`templates.py`); they may say `{said}`: the telling part of the text.
    """
    compiled = tuple(re.compile(text, re.IGNORECASE) for text in texts)
    words = frozenset(tokens.casefold().split())
    form = re.compile(like, re.IGNORECASE) if like else None
    places = frozenset(where.split())
    about = re.compile(kind, re.IGNORECASE) if kind else None
    never = re.compile(unless, re.IGNORECASE) if unless else None
    too = re.compile(also, re.IGNORECASE) if also else None
    naming = re.compile(names, re.IGNORECASE) if names else None
    sentence, advice = Template(says), Template(do) if do else None

    def judge(text: Text, rule: str) -> Finding | None:
        elsewhere = bool(places) and text.message.where not in places
        unlike = about is not None and not about.search(text.message.object)
        if elsewhere or unlike or (never is not None and never.search(text.bare)):
            return None
        if too is not None and not too.search(text.flat):
            return None
        match = next((found for one in compiled if (found := one.search(text.flat)) and one.search(text.bare)), None)
        by_token = text.token in words or (form is not None and form.search(text.token) is not None)
        if either:
            if match is None and not by_token:
                return None
        elif (compiled and match is None) or ((words or form) and not by_token):
            return None
        named = naming.search(text.flat) if naming else None
        parts = {**(named.groupdict() if named else {}), **(match.groupdict() if match else {})}
        groups = {key: value for key, value in parts.items() if value}
        shown = {"said": telling(text.flat)} | {key: _tidy(value) for key, value in groups.items()}
        return finding(
            cause,
            sentence.fill(shown),
            rule,
            reason=code,
            layer=layer,
            next_action=advice.fill(shown) if advice else None,
            need=groups.get("need"),
            have=groups.get("have"),
            where=groups.get("place"),
            fits=fits,
            weight=weight,
        )

    return MessageRule(name, version, judge, (sentence, *([advice] if advice else [])))


_BEFORE = re.compile(
    r'.*\bdesc = |.*? failed for volume "[^"]*"\s*:\s*|.*unable to start container process: |.*, stderr: |error: '
    r"|can't (?:admit|submit) new workloads[:;] |pod was rejected: |failed to create pod sandbox: ",
    re.IGNORECASE,
)


def telling(flat: str) -> str:
    """What a message says itself, without who called whom before it."""
    while (before := _BEFORE.match(flat)) is not None and before.end() < len(flat):
        flat = flat[before.end() :]
    return flat[:200].strip(" .:")


def _tidy(value: str) -> str:
    """Without the marks around it; a quote that belongs to a pair inside stays."""
    bare = value.strip(" `'.,;:")
    if bare.startswith("[") == bare.endswith("]"):
        bare = bare.strip("[]")
    around = bare.count('"') == 2 and bare.startswith('"') and bare.endswith('"')
    shown = bare.strip('"') if around or bare.count('"') % 2 else bare
    return shown if len(shown) <= _LONGEST_PART else f"{shown[: _LONGEST_PART - 1]}…"
