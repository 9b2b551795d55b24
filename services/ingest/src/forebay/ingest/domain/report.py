"""The answer about one dataset: an outcome per episode and one for the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from forebay.contracts.v1.episodes import Finding
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import REPORT_TEXT, Breach
from forebay.ingest.domain.policy import OnBadEpisode

Outcome = Literal["accept", "accept_with_warning", "hold", "reject", "incomplete", "empty", "truncated", "partial"]
EpisodeOutcome = Literal["accept", "accept_with_warning", "hold", "reject"]

GOOD = ("accept", "accept_with_warning")
RANK = {"error": 0, "hold": 1, "warning": 2, "info": 3}
"""The worst comes first."""
CUT_RULES = {rules.PARQUET_UNREADABLE.id, rules.VIDEO_UNREADABLE.id}
MAX_FINDINGS = 12
"""Findings that travel with one episode's verdict; the report has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeReport:
    """One episode's verdict."""

    index: int
    outcome: EpisodeOutcome
    frames: int
    tasks: tuple[str, ...] = ()
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that validation found."""

    format: str
    outcome: Outcome
    episodes: tuple[EpisodeReport, ...] = ()
    breaches: tuple[Breach, ...] = ()
    files: int = 0
    bytes: int = 0

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def breaches_by_episode(self) -> dict[int, list[Breach]]:
        """The breaches that name episodes, spread over them."""
        spread: dict[int, list[Breach]] = {}
        for told in self.breaches:
            for breach in told.parts or (told,):
                for index in breach.episodes or ():
                    spread.setdefault(index, []).append(breach)
        return spread

    def findings_of(self, episode: int, own: Sequence[Breach]) -> tuple[Finding, ...]:
        """What hits this episode: its own breaches, and errors and holds of the whole dataset; the worst come first."""
        shared = [b for b in self.breaches if b.episodes is None and b.severity in {"error", "hold"}]
        hit = sorted([*shared, *own], key=lambda breach: RANK[breach.severity])
        # every rule once before any rule twice: a held episode is judged again by the rules that it names
        first = {breach.rule.id: breach for breach in reversed(hit)}
        ordered = [*(b for b in hit if first[b.rule.id] is b), *(b for b in hit if first[b.rule.id] is not b)]
        return tuple(breach.finding(episode) for breach in ordered[:MAX_FINDINGS])

    def to_json(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        severities = [breach.severity for breach in self.breaches]
        outcomes = [episode.outcome for episode in self.episodes]
        keys = ("rule", "severity", "episode", "feature", "file", "frame", "expected", "found", "message")
        findings = []
        for breach in self.breaches:
            entry = breach.finding(limit=REPORT_TEXT).model_dump(mode="json")
            ordered: dict[str, Any] = {key: entry[key] for key in keys} | {"advice": breach.what_to_do}
            if breach.episodes is not None and len(breach.episodes) > 1:
                ordered["episodes"] = list(breach.episodes)
            findings.append(ordered)
        return {
            "outcome": self.outcome,
            "format": self.format,
            "episodes": [{"id": e.index, "outcome": e.outcome, "frames": e.frames} for e in self.episodes],
            "findings": findings,
            "counts": {
                "episodes": len(self.episodes),
                "accepted": sum(outcome in GOOD for outcome in outcomes),
                "held": outcomes.count("hold"),
                "rejected": outcomes.count("reject"),
                "frames": sum(episode.frames for episode in self.episodes),
                "files": self.files,
                "bytes": self.bytes,
                "errors": severities.count("error"),
                "warnings": severities.count("warning"),
            },
        }


def judge(
    format_: str,
    episodes: Sequence[EpisodeReport],
    breaches: Sequence[Breach],
    *,
    files: int = 0,
    size: int = 0,
    on_bad_episode: OnBadEpisode | None = None,
) -> Report:
    """Put the outcomes on the episodes and on the whole. The given episodes' outcomes are filled in here.

    A policy may say what one bad episode means: `drop` makes the rest a good part of a
    dataset, `reject_dataset` rejects the good ones with it. Without one the dataset is
    rejected and each episode keeps its own outcome.
    """
    worst: dict[int, set[str]] = {}
    whole: set[str] = set()
    for breach in breaches:
        if breach.episodes is None:
            whole.add(breach.severity)
        for index in breach.episodes or ():
            worst.setdefault(index, set()).add(breach.severity)
    shared = whole & {"error", "hold"}
    judged = tuple(
        EpisodeReport(
            index=episode.index,
            outcome=_outcome(worst.get(episode.index, set()) | shared),
            frames=episode.frames,
            tasks=episode.tasks,
            digest=episode.digest,
        )
        for episode in episodes
    )
    outcome = _overall(breaches, judged)
    good = [episode for episode in judged if episode.outcome in GOOD]
    if on_bad_episode == "drop" and outcome in {"reject", "truncated"} and good:
        outcome = "partial"
    elif on_bad_episode == "reject_dataset" and any(episode.outcome == "reject" for episode in judged):
        judged = tuple(replace(episode, outcome="reject") for episode in judged)
    return Report(
        format=format_,
        outcome=outcome,
        episodes=judged,
        breaches=tuple(breaches),
        files=files,
        bytes=size,
    )


def _outcome(severities: set[str]) -> EpisodeOutcome:
    if "error" in severities:
        return "reject"
    if "hold" in severities:
        return "hold"
    return "accept_with_warning" if "warning" in severities else "accept"


def _overall(breaches: Sequence[Breach], episodes: Sequence[EpisodeReport]) -> Outcome:
    errors = {breach.rule.id for breach in breaches if breach.severity == "error"}
    if errors == {rules.MISSING_FILE.id}:
        return "incomplete"
    if errors and errors <= CUT_RULES and all(_is_cut(breach) for breach in breaches if breach.severity == "error"):
        # cut off, and nothing is left: another upload may mend it, recording again need not
        return "reject" if any(episode.outcome in GOOD for episode in episodes) else "truncated"
    if errors:
        return "reject"
    if any(breach.rule.id == rules.EMPTY_DATASET.id for breach in breaches) and not episodes:
        return "empty"
    return _outcome({breach.severity for breach in breaches})


def _is_cut(breach: Breach) -> bool:
    """A file whose end is missing, as against one that is damaged, empty or something else."""
    found = breach.found or ""
    return "does not end with PAR1" in found or "cut off" in found
