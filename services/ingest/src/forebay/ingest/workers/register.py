"""The work `register`: validate a dataset where it lies, and commit it as a version of access plan A.

Idempotent: a root that a killed run had finished is taken over, and the committed
event has one identity. Whatever is wrong with the data or its place ends the
registration: a person asked, and others of the dataset wait behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forebay.contracts.v1.datasets import DatasetRegistrationFailed, DatasetVersionCommitted
from forebay.contracts.v1.episodes import EpisodeAccepted, Finding
from forebay.ingest.adapters.episode_records import EpisodeRecords
from forebay.ingest.adapters.policy_file import project_policy
from forebay.ingest.adapters.registered_place import RegisteredRoot, describe_files, write_root
from forebay.ingest.adapters.report_files import ReportFiles
from forebay.ingest.domain.breach import Breach, printable
from forebay.ingest.domain.documents import Registration, Waivers, place
from forebay.ingest.domain.evolve import episode_id
from forebay.ingest.domain.place_uri import S3Place, parse_place
from forebay.ingest.domain.policy import Policy
from forebay.ingest.domain.report import RANK, Report
from forebay.ingest.domain.rules import RULES_VERSION
from forebay.ingest.errors import IngestError, StorageUnavailableError
from forebay.ingest.inspection import inspect
from forebay.ingest.places import open_place
from forebay.ingest.settings import s3_settings
from forebay.ingest.workers.telling import Teller, tell_done
from forebay.ingest.workers.validate import with_waivers
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

_WAIT_S = 5.0
_FINDINGS = 12


@dataclass(frozen=True, slots=True)
class _Answer:
    """What validation said, and the root when it was good."""

    report: Report
    made: RegisteredRoot | None
    revision: str | None


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers one dataset."""

    reports: ReportFiles
    roots: Path
    """`<home>/registered`"""
    policies: Path
    """Folder of the projects' policies."""
    records: EpisodeRecords

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        wish = await context.get(Registration, place(item.project, item.key))
        if wish is None or wish.state != "WRITING" or wish.version is None:
            return ()
        waivers = await context.get(Waivers, place(item.project, wish.dataset))
        try:
            policy = with_waivers(await context.in_thread(project_policy, self.policies, item.project), waivers)
            answer = await context.in_process(self.look, wish, policy)
            if answer.made is not None:
                tell_done(context, version=wish.version, episodes=len(answer.report.episodes))
                kept = await context.in_thread(self.records.keep, answer.made.episodes.uri)
                made = replace(answer.made, episodes=kept or answer.made.episodes)
                return [*_verdicts(wish, answer.report), _committed(wish, answer, made)]
            failed = await context.in_thread(self._refusal, wish, answer.report)
        except StorageUnavailableError as error:
            raise RetryLater(_WAIT_S, str(error)) from error
        except (IngestError, OSError) as error:
            failed = DatasetRegistrationFailed(
                registration=wish.id, dataset=wish.dataset, message=printable(str(error), 1000)
            )
        tell_done(context, failed=failed.message)
        return [Emit(project=item.project, body=failed, dedupe=(wish.id,))]

    def look(self, wish: Registration, policy: Policy, report_progress: Callable[[Mapping[str, Any]], None]) -> _Answer:
        """Inspect it where it lies, and write its root when it is good. Runs in a process of its own."""
        tell = Teller(report_progress)
        where = parse_place(wish.uri, wish.endpoint)
        with open_place(where, s3_settings()) as folder:
            report = inspect(folder, tell.stage, policy=policy).report
            if not report.good or _misread(report):
                return _Answer(report, None, None)
            files = describe_files(folder, tell.counter("digests", report.bytes))
            source = {
                "uri": wish.uri if isinstance(where, S3Place) else str(folder.root),
                "endpoint": wish.endpoint,
                "revision": wish.revision or _snapshot(folder.root),
            }
            root = self.roots / wish.project / wish.dataset / f"v{wish.version}"
            made = write_root(folder, files, _episodes(wish, report), root, source)
            return _Answer(report, made, source["revision"])

    def _refusal(self, wish: Registration, report: Report) -> DatasetRegistrationFailed:
        reference = self.reports.write(wish.project, wish.id, report.to_json())
        findings = _worst(report)
        first = f": {findings[0].message}" if findings else ""
        text = f"{wish.uri} is judged {report.outcome!r}, only accepted datasets are registered{first}"
        misread = _misread(report)
        if report.good and misread:
            findings = tuple(breach.finding() for breach in misread)
            text = f"{wish.uri} would be misread where it lies: {findings[0].message}; upload it instead, or write it anew in order"
        return DatasetRegistrationFailed(
            registration=wish.id,
            dataset=wish.dataset,
            message=printable(text, 1000),
            outcome=report.outcome,
            findings=findings,
            report=reference,
        )


def _verdicts(wish: Registration, report: Report) -> list[Emit]:
    """Lineage knows episodes by their verdicts; these came by a registration instead of an upload."""
    spread = report.breaches_by_episode()
    return [
        Emit(
            project=wish.project,
            body=EpisodeAccepted(
                episode=(id_ := episode_id(wish.project, wish.dataset, wish.id, episode.index)),
                upload=wish.id,
                dataset=wish.dataset,
                source_index=episode.index,
                length=episode.frames,
                rules_version=RULES_VERSION,
                tasks=episode.tasks,
                warnings=report.findings_of(episode.index, spread.get(episode.index, [])),
                sha256=episode.digest,
            ),
            dedupe=(id_,),
        )
        for episode in report.episodes
    ]


def _committed(wish: Registration, answer: _Answer, made: RegisteredRoot) -> Emit:
    number = wish.version or 0
    body = DatasetVersionCommitted(
        dataset=wish.dataset,
        number=number,
        root=made.root,
        access_plan="A",
        format=answer.report.format,
        episodes=made.episodes,
        episode_count=len(answer.report.episodes),
        frame_count=sum(episode.frames for episode in answer.report.episodes),
        bytes=made.bytes,
        manifest_sha256=made.manifest.sha256,
        checksums=made.manifest,
        uploads=(wish.id,),
        source_ref=wish.uri,
        source_revision=answer.revision,
        rules_version=RULES_VERSION,
    )
    return Emit(project=wish.project, body=body, dedupe=(wish.dataset, number))


def _episodes(wish: Registration, report: Report) -> list[dict[str, Any]]:
    """Stable ids in the order of the source; the data stays, so its own numbers stay too."""
    return [
        {
            "episode": episode_id(wish.project, wish.dataset, wish.id, episode.index),
            "index": episode.index,
            "length": episode.frames,
            "upload": wish.id,
            "source_index": episode.index,
        }
        for episode in report.episodes
    ]


def _misread(report: Report) -> list[Breach]:
    """What versions mend, and a version that is the source itself cannot: readers take episodes and rows by their place."""
    return [breach for breach in report.breaches if breach.by_place and breach.severity == "warning"][:_FINDINGS]


def _worst(report: Report) -> tuple[Finding, ...]:
    ordered = sorted(report.breaches, key=lambda breach: RANK[breach.severity])
    return tuple(breach.finding() for breach in ordered[:_FINDINGS])


def _snapshot(root: Path) -> str | None:
    """The commit that a Hugging Face cache has the dataset from."""
    return root.name if root.parent.name == "snapshots" else None
