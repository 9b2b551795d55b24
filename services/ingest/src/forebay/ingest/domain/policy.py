"""A project's own judgement: rules raised, lowered or waived, thresholds set, and what one bad episode means.

    rules:
      LR-VIDEO-004: error            # or hold, warning, info
      LR-META-003: {severity: info, reason: names are not used here}
      LR-VIDEO-008: {waive: true, reason: top camera is a still picture in this simulation}
    limits:
      lenient_frames: 2
    on_bad_episode: drop             # or reject_dataset
    min_accepted_share: 0.8          # an upload with a smaller share of accepted episodes gets no train-ready

A rule that says whether the data can be read at all can be neither lowered nor waived.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.info_file import shown
from forebay.ingest.domain.limits import DEFAULT_LIMITS, Limits
from forebay.ingest.domain.rule import Severity

OnBadEpisode = Literal["drop", "reject_dataset"]
SEVERITIES: tuple[Severity, ...] = ("error", "hold", "warning", "info")
BAD_EPISODE: tuple[OnBadEpisode, ...] = ("drop", "reject_dataset")
_KEYS = ("rules", "limits", "on_bad_episode", "min_accepted_share")
_RULE_KEYS = ("severity", "waive", "reason", "episodes")
FIXED = frozenset(
    {
        rules.NOT_A_DATASET.id,
        rules.VERSION.id,
        rules.TEMPLATE.id,
        rules.IMAGE_UNREADABLE.id,
        rules.METADATA_UNREADABLE.id,
        rules.UNSAFE_PATH.id,
        rules.MISSING_FILE.id,
        rules.LFS_POINTER.id,
        rules.PARQUET_UNREADABLE.id,
        rules.COLUMNS.id,
        rules.MANIFEST.id,
        rules.EMPTY_EPISODE.id,
        rules.LENGTH.id,
        rules.EPISODE_ROW.id,
        rules.DIMENSIONS.id,
        rules.VIDEO_UNREADABLE.id,
        rules.OTHER_FEATURES.id,
        rules.TASK_UNKNOWN.id,
    }
)
"""Rules that no policy lowers and nobody waives: what breaks them cannot become rows of a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a policy says about one rule."""

    severity: Severity | None = None
    waive: bool = False
    reason: str = ""
    episodes: tuple[int, ...] | None = None
    """Source indices that the change is for; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A whole policy. The default one changes nothing."""

    changes: Mapping[str, Change] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    on_bad_episode: OnBadEpisode | None = None
    min_accepted_share: float | None = None
    """Share of an upload's episodes that must be accepted before its version is tagged `train-ready`."""

    def withholds(self, accepted: int, judged: int) -> str | None:
        """Why the version of an upload is not tagged `train-ready`; None: it may be."""
        if self.min_accepted_share is None or not judged or accepted >= self.min_accepted_share * judged:
            return None
        share, least = 100 * accepted / judged, 100 * self.min_accepted_share
        return f"{accepted} of {judged} episodes of the upload were accepted ({share:.3g} %), the policy demands {least:.3g} %"

    def apply(self, breaches: Iterable[Breach]) -> list[Breach]:
        """The breaches with the severities of this policy; where it is for some episodes only, they are told apart."""
        return [part for breach in breaches for part in self._apply(breach)]

    def _apply(self, breach: Breach) -> list[Breach]:
        change = self.changes.get(breach.rule.id)
        if change is None:
            return [breach]
        if change.episodes is None or breach.episodes is None:
            return [breach if change.episodes is not None else _changed(breach, change)]
        inside = tuple(index for index in breach.episodes if index in change.episodes)
        outside = tuple(index for index in breach.episodes if index not in change.episodes)
        parts = [_changed(replace(breach, episodes=inside), change)] if inside else []
        return [*parts, *([replace(breach, episodes=outside)] if outside else [])]


NO_POLICY = Policy()


def _changed(breach: Breach, change: Change) -> Breach:
    if change.waive:
        return waived(breach, f"by the policy: {change.reason}")
    # a breach that a check told as slight stays below the rule's full weight, unless the rule is raised
    weight = {name: number for number, name in enumerate(SEVERITIES)}
    if change.severity is None:
        return breach
    slight = breach.lowered is not None and weight[change.severity] < weight[breach.rule.severity]
    lowering = weight[change.severity] > weight[breach.severity]
    return replace(breach, lowered=change.severity if lowering or slight or breach.lowered is None else breach.lowered)


def waived(breach: Breach, how: str) -> Breach:
    """The same breach as something that is only told."""
    return replace(breach, lowered="info", message=f"{breach.message} [waived {how}]")


class PolicyError(ValueError):
    """A policy that cannot be used; the text names every problem."""


def parse_policy(document: Any) -> Policy:
    """A policy from what its file holds; raises `PolicyError` with all problems at once."""
    if document is None:
        return NO_POLICY
    if not isinstance(document, dict):
        msg = f"a policy is {shown(document)}, expected keys {', '.join(_KEYS)}"
        raise PolicyError(msg)
    problems = [_unknown("key", key, _KEYS) for key in document if key not in _KEYS]
    changes = _changes(document.get("rules"), problems)
    limits = _limits(document.get("limits"), problems)
    bad = document.get("on_bad_episode")
    if bad is not None and bad not in BAD_EPISODE:
        problems.append(f"on_bad_episode is {shown(bad)}, expected {' or '.join(BAD_EPISODE)}")
    share = document.get("min_accepted_share")
    if share is not None and (not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1):
        problems.append(f"min_accepted_share is {shown(share)}, expected a number from 0 to 1")
    if problems:
        raise PolicyError("; ".join(problems))
    return Policy(changes=changes, limits=limits, on_bad_episode=bad, min_accepted_share=share)


def _unknown(what: str, name: object, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(str(name).upper() if what == "rule" else str(name), names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"known are {', '.join(names[:12])}"
    return f"unknown {what} {shown(name)}: {hint}"


def unknown_rule(name: str) -> str:
    """The sentence about a rule id that does not exist."""
    return _unknown("rule", name, rules.RULES) + " (forebay rules lists them)"


def _changes(value: Any, problems: list[str]) -> dict[str, Change]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(f"rules is {shown(value)}, expected rule ids with a severity each")
        return {}
    found: dict[str, Change] = {}
    for id_, text in value.items():
        if id_ not in rules.RULES:
            problems.append(unknown_rule(str(id_)))
            continue
        change = _change(str(id_), text, problems)
        if change is not None:
            found[str(id_)] = change
    return found


def _change(id_: str, value: Any, problems: list[str]) -> Change | None:
    entry = {"severity": value} if isinstance(value, str) else value
    if not isinstance(entry, dict):
        problems.append(f"{id_} is {shown(value)}, expected a severity or {{severity, waive, reason, episodes}}")
        return None
    before = len(problems)
    problems += [_unknown(f"key of {id_}", key, _RULE_KEYS) for key in entry if key not in _RULE_KEYS]
    severity, waive, reason = entry.get("severity"), entry.get("waive", False), entry.get("reason", "")
    if severity is not None and severity not in SEVERITIES:
        problems.append(f"{id_}: severity is {shown(severity)}, expected {', '.join(SEVERITIES)}")
    if not isinstance(waive, bool):
        problems.append(f"{id_}: waive is {shown(waive)}, expected true or false")
    if not isinstance(reason, str):
        problems.append(f"{id_}: reason is {shown(reason)}, expected text")
    elif waive and not reason.strip():
        problems.append(f"{id_}: a waiver needs a reason")
    episodes = _episodes(id_, entry.get("episodes"), problems)
    if id_ in FIXED and (waive is True or severity in {"hold", "warning", "info"}):
        problems.append(f"{id_} ({rules.RULES[id_].title}) cannot be lowered or waived: what breaks it cannot be read")
    if len(problems) > before:
        return None
    return Change(severity=severity, waive=waive, reason=reason, episodes=episodes)


def _episodes(id_: str, value: Any, problems: list[str]) -> tuple[int, ...] | None:
    if value is None:
        return None
    whole = isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)
    if not whole:
        problems.append(f"{id_}: episodes is {shown(value)}, expected a list of whole numbers")
        return None
    return tuple(value)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 1_000_000, "a whole number from 0"),
    "float": (lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 1e9, "a number from 0"),
}


def _limits(value: Any, problems: list[str]) -> Limits:
    if value is None:
        return DEFAULT_LIMITS
    if not isinstance(value, dict):
        problems.append(f"limits is {shown(value)}, expected keys with numbers")
        return DEFAULT_LIMITS
    kinds = {entry.name: str(entry.type) for entry in fields(Limits)}
    good: dict[str, Any] = {}
    for key, number in value.items():
        if key not in kinds:
            problems.append(_unknown("limit", key, kinds))
            continue
        check, wanted = _CHECKS[kinds[key]]
        if check(number):
            good[key] = float(number) if kinds[key] == "float" else number
        else:
            problems.append(f"limit {key} is {shown(number)}, expected {wanted}")
    return replace(DEFAULT_LIMITS, **good)
