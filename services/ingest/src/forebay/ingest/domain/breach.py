"""A broken rule as the checks report it, before it is spread over the episodes that it hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forebay.contracts.v1.episodes import Finding
from forebay.ingest.domain.rules import Rule, Severity
from forebay.runtime.escaping import shortened, visible

MAX_TEXT = 200
"""Longest text taken over from an upload into a finding that travels in an event."""
REPORT_TEXT = 2000
"""The same in a report."""
_SEVERAL = 3
"""Episodes from which on a breach that they share is told once."""
MAX_LISTED = 12
"""Longest list written out in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """Which rule, where, what was expected and what was found."""

    rule: Rule
    message: str
    episodes: tuple[int, ...] | None = None
    """Source indices that are hit; None: the dataset as a whole."""
    feature: str | None = None
    file: str | None = None
    frame: int | None = None
    expected: str | None = None
    found: str | None = None
    lowered: Severity | None = None
    """A milder severity than the rule's own."""
    parts: tuple[Breach, ...] = ()
    """What was told of each episode or file before it became one; an episode's own verdict says its own."""
    advice: str | None = None
    """What to do in this case, where it is not what the rule advises."""
    by_place: bool = False
    """Whoever reads the source itself gets other rows, videos or texts without a word; versions have them right."""

    @property
    def severity(self) -> Severity:
        return self.lowered or self.rule.severity

    @property
    def what_to_do(self) -> str:
        return self.advice or self.rule.fix

    @property
    def dataset_wide(self) -> bool:
        return self.episodes is None

    def finding(self, episode: int | None = None, *, limit: int = MAX_TEXT) -> Finding:
        """The finding as it travels; names the episode when exactly one is hit."""
        if episode is None and self.episodes is not None and len(self.episodes) == 1:
            episode = self.episodes[0]
        return Finding(
            rule=self.rule.id,
            severity=self.severity,
            message=printable(self.message, 2 * limit),
            episode=episode,
            feature=_maybe(self.feature, limit),
            file=_maybe(self.file, limit),
            frame=self.frame,
            expected=_maybe(self.expected, limit),
            found=_maybe(self.found, limit),
        )


def gathered(breaches: Sequence[Breach]) -> list[Breach]:
    """Breaches that file after file repeats with the same words about the same column or camera become one."""
    kept: list[Breach] = []
    first: dict[tuple[object, ...], int] = {}
    groups: dict[int, list[Breach]] = {}
    for breach in breaches:
        key = (breach.rule.id, breach.severity, breach.feature, breach.expected, breach.found)
        if breach.feature is None or breach.file is None or breach.frame is not None:
            kept.append(breach)
            continue
        at = first.setdefault(key, len(kept))
        if at == len(kept):
            kept.append(breach)
            continue
        if kept[at].file == breach.file or not breach.message.startswith(f"{breach.file}: "):
            kept.append(breach)
            continue
        groups.setdefault(at, [kept[at]]).append(breach)
    for at, group in groups.items():
        every = [breach.episodes for breach in group if breach.episodes is not None]
        episodes = tuple(index for some in every for index in some) if len(every) == len(group) else None
        text = f"{group[0].message}; the same in {len(group) - 1} more files"
        kept[at] = replace(group[0], episodes=episodes, message=text, parts=tuple(group))
    return _of_many_episodes(kept)


def _of_many_episodes(breaches: Sequence[Breach]) -> list[Breach]:
    """Mild breaches that one episode after the other repeats, word by word or about one camera, become one."""
    alike: dict[tuple[str, str, str | None, str], list[Breach]] = {}
    for breach in breaches:
        said = _without_episode(breach)
        if said is not None:
            alike.setdefault((breach.rule.id, breach.severity, breach.feature, said), []).append(breach)
    merged: dict[int, Breach | None] = {}
    for (*_, text), group in alike.items():
        if len(group) < _SEVERAL:
            continue
        episodes = tuple(sorted(index for breach in group for index in breach.episodes or ()))
        such = f"{group[0].message} ({len(group)} such episodes: {listed(episodes)})"
        message = f"episodes {listed(episodes)}: {text}" if text else such
        merged |= {id(breach): None for breach in group}
        merged[id(group[0])] = replace(group[0], episodes=episodes, message=message, parts=tuple(group))
    kept = (merged.get(id(breach), breach) for breach in breaches)
    return [breach for breach in kept if breach is not None]


def _without_episode(breach: Breach) -> str | None:
    """What a mild breach says about its one episode, without its number; nothing when it is about one of its videos."""
    if breach.severity not in {"warning", "info"} or breach.episodes is None or len(breach.episodes) != 1:
        return None
    start = f"episode {breach.episodes[0]}"
    if breach.message.startswith(f"{start}, {breach.feature}: "):
        return ""
    words = breach.message.removeprefix(f"{start}: ")
    return words if words != breach.message and breach.frame is None else None


def printable(text: str, limit: int = MAX_TEXT) -> str:
    """Text from outside made safe to print and to send: no control characters, bounded."""
    return shortened(visible(text), limit)


def listed(values: tuple[object, ...] | list[object] | list[int] | list[str]) -> str:
    """`0, 1, 2 and 40 more`: a bounded list for a sentence."""
    head = ", ".join(str(value) for value in values[:MAX_LISTED])
    rest = len(values) - MAX_LISTED
    return f"{head} and {rest} more" if rest > 0 else head


def episodes_named(indices: Sequence[int]) -> str:
    """`episode 3`, or `episodes 0, 1 and 2 more`."""
    return f"episode{'' if len(indices) == 1 else 's'} {listed(list(indices))}"


def _maybe(text: str | None, limit: int) -> str | None:
    return None if text is None else printable(text, limit)
