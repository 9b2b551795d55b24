"""A LeRobot folder -> a version root, without a server: what `forebay convert` does.

Every episode is judged by the same rules as an upload, and the result is read back
in the same way before it gets its name. That a conversion ended well is said by what
was read back, never by an exit code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.ingest.adapters.lance_version import CommittedVersion, commit_version
from forebay.ingest.adapters.origins import UploadOrigin
from forebay.ingest.conversion import Accepted, Share, share_source
from forebay.ingest.domain.report import GOOD, EpisodeReport, Report
from forebay.ingest.domain.version_plan import Source, VersionPlan, plan_version
from forebay.ingest.inspection import inspect
from forebay.runtime.regular_files import open_regular

Progress = Callable[[str, int, int], None]
_CHUNK = 1 << 20
_SOURCE = "source"


class TargetTakenError(Exception):
    """There is something at the place that the version would get."""


class NotAcceptedError(Exception):
    """Not every episode may be taken over, so nothing was written."""

    def __init__(self, report: Report) -> None:
        self.report = report
        bad = [episode.index for episode in report.episodes if episode.outcome not in GOOD]
        super().__init__(f"{len(bad)} of {len(report.episodes)} episodes are not accepted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A finished conversion."""

    report: Report
    plan: VersionPlan
    version: CommittedVersion

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        skipped = skipped_episodes(self.report)
        return {
            "outcome": "partial" if skipped else "converted",
            "root": str(self.version.root),
            "format": self.version.format,
            "verified": True,
            "source_format": self.report.format,
            "source_episodes": len(self.report.episodes),
            "source_frames": sum(episode.frames for episode in self.report.episodes),
            "episodes": len(self.plan.episodes),
            "frames": self.plan.frames,
            "videos": len(self.plan.videos),
            "bytes": self.version.bytes,
            "tables": self.version.tables,
            "manifest_sha256": self.version.manifest.sha256,
            "skipped": skipped,
            "carried": list(self.version.carried),
            "notes": list(self.version.notes),
        }


def convert_folder(source: Path, target: Path, progress: Progress, *, partial: bool = False) -> Converted:
    """Judge, write, read back. Raises `TargetTakenError`, `NotAcceptedError` or an `IngestError`; leaves nothing half."""
    source, target = source.resolve(), target.absolute()
    if target.exists() or target.is_symlink():
        msg = f"{target} exists already; name a folder that does not, nothing is ever overwritten"
        raise TargetTakenError(msg)
    if target.resolve().is_relative_to(source):
        msg = f"{target} lies inside the source {source}; name a folder outside of it"
        raise TargetTakenError(msg)
    report = inspect(source, progress).report
    good = [episode for episode in report.episodes if episode.outcome in GOOD]
    if not good or (len(good) < len(report.episodes) and not partial) or (not report.good and not partial):
        raise NotAcceptedError(report)
    plan = plan_version([_hashed(source, good, progress)])
    version = commit_version(plan, {_SOURCE: UploadOrigin(source)}, target, progress)
    return Converted(report=report, plan=plan, version=version)


def skipped_episodes(report: Report) -> list[dict[str, Any]]:
    """Episodes that are not taken over, each with the rules that keep it out."""
    breaches = report.breaches_by_episode()
    whole = [b.rule.id for b in report.breaches if b.episodes is None and b.severity in {"error", "hold"}]
    return [
        {
            "id": episode.index,
            "outcome": episode.outcome,
            "frames": episode.frames,
            "rules": list(dict.fromkeys([*whole, *(b.rule.id for b in breaches.get(episode.index, []))])),
        }
        for episode in report.episodes
        if episode.outcome not in GOOD
    ]


def _hashed(folder: Path, good: list[EpisodeReport], progress: Progress) -> Source:
    """The folder as a source, with the digest that every video must still have when it was written."""
    episodes = [
        Accepted(
            id=f"episode-{line.index}",
            source_index=line.index,
            length=line.frames,
            tasks=line.tasks,
            digest=line.digest or "",
        )
        for line in good
    ]
    digests: dict[str, str] = {}
    source = share_source(Share(upload=_SOURCE, landing=folder, sha256=digests, episodes=episodes))
    files = sorted({window.file for episode in source.episodes for window in episode.declared.windows})
    for number, name in enumerate(files, 1):
        digest = hashlib.sha256()
        with open_regular(folder / name) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        digests[name] = digest.hexdigest()
        progress("hashed", number, len(files))
    return source
