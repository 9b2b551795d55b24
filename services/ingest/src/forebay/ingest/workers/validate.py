"""The work `validate`: check the files of one upload, give every episode its verdict.

Idempotent: the verdict of an episode has one identity, so a second run says the
same again and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forebay.contracts.body import FileRef
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeHeld, EpisodeRejected, Finding
from forebay.ingest.adapters.carried_meta import read_labels
from forebay.ingest.adapters.dataset_folder import MAX_JSON_BYTES, DatasetFolder
from forebay.ingest.adapters.landing_folder import LandingFolders
from forebay.ingest.adapters.metadata_tables import read_tasks
from forebay.ingest.adapters.policy_file import project_policy
from forebay.ingest.adapters.report_files import ReportFiles
from forebay.ingest.adapters.task_references import check_references
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.claims import as_event, compare
from forebay.ingest.domain.collection_request import CollectionRequest, RequestError, parse_request
from forebay.ingest.domain.documents import (
    Dataset,
    Episode,
    Recording,
    Upload,
    Version,
    Waivers,
    place,
    recording_key,
    version_key,
)
from forebay.ingest.domain.evolve import episode_id
from forebay.ingest.domain.info_file import INFO_FILE, parse_info, read_document
from forebay.ingest.domain.labels import difference
from forebay.ingest.domain.policy import FIXED, Change, Policy
from forebay.ingest.domain.recording import Info
from forebay.ingest.domain.report import EpisodeReport, Report, judge
from forebay.ingest.domain.rules import RULES_VERSION
from forebay.ingest.domain.verdict_values import Content
from forebay.ingest.domain.version_plan import features_digest
from forebay.ingest.errors import LandingRefusedError, PolicyRefusedError, StorageUnavailableError
from forebay.ingest.inspection import Inspection, inspect
from forebay.ingest.workers.telling import Teller, tell_done
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.regular_files import read_regular
from forebay.runtime.work import WorkContext, WorkItem

_WAIT_FOR_POOL_S = 5.0
_WAIT_FOR_POLICY_S = 30.0
"""A policy that cannot be followed is corrected by a person; until then nothing is judged by another one."""


@dataclass(frozen=True, slots=True)
class Validator:
    """Judges one upload."""

    landings: LandingFolders
    reports: ReportFiles
    policies: Path
    """Folder of the projects' policies."""

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        upload = await context.get(Upload, place(item.project, str(item.payload["upload"])))
        if upload is None or upload.state != "VALIDATING":
            return ()
        root = None if upload.replaces else await _trunk_root(upload, context)
        waivers = await context.get(Waivers, upload.dataset_key)
        policy = with_waivers(await policy_of(self.policies, upload.project, context), waivers)
        try:
            episodes = await _episodes(upload, context)
            report, contents, reference = await context.in_process(self.report_on, upload, root, episodes, policy)
        except (StorageUnavailableError, OSError) as error:
            raise RetryLater(_WAIT_FOR_POOL_S, str(error)) from error
        judge_ = _Judge(upload, report, contents, reference)
        again = policy.changes.get(rules.ALREADY_THERE.id, Change()).waive
        verdicts: list[Emit] = []
        reused: set[str] = set()
        for episode in episodes:
            line = judge_.line(episode)
            known = None if again and not upload.replaces else await _known(upload, line, episode, context)
            same = known.id if known is not None and upload.replaces and known.withdrawn is None else None
            if same is not None and same not in reused:
                reused.add(same)
                verdicts.append(judge_.verdict(episode, None, same))
            else:
                twin = None if known is None or same is not None else _twin(known, episode)
                verdicts.append(judge_.verdict(episode, twin))
        tell_done(context, judged=len(verdicts))
        return verdicts

    def report_on(
        self,
        upload: Upload,
        root: Path | None,
        episodes: list[Episode],
        policy: Policy,
        report: Callable[[Mapping[str, Any]], None],
    ) -> tuple[Report, dict[int, Content], FileRef]:
        """Look at the files, hold what was claimed of them against that, and write the report. Runs in a process of its own."""
        inspection = self._inspect(upload, root, Teller(report), policy)
        contents = _compare_claims(inspection, episodes, policy)
        found = inspection.report
        return found, contents, self.reports.write(upload.project, upload.id, found.to_json())

    def _inspect(self, upload: Upload, root: Path | None, tell: Teller, policy: Policy) -> Inspection:
        try:
            folder = self.landings.folder(upload.project, upload.id, upload.landing_uri)
            announced = self.landings.manifest(folder, upload.manifest)
        except LandingRefusedError as error:
            expected = "the upload's own folder and manifest"
            breach = Breach(rule=rules.MANIFEST, message=str(error), expected=expected, found=str(error))
            return Inspection(report=judge("unknown", [], [breach]))
        total = sum(size for _, size in announced.files.values())
        checked = self.landings.check(folder, announced.files, tell.counter("checking", total))
        request, problem = _order(upload)
        files = DatasetFolder(folder)
        files.refused.update(announced.left_out)
        inspection = inspect(files, tell.stage, checked.distrusted, policy=policy, request=request)
        return _compare_features(_told(inspection, problem, policy), folder, root, policy)


async def policy_of(folder: Path, project: str, context: WorkContext) -> Policy:
    """The project's policy; while it cannot be followed, the work waits and says why."""
    try:
        return await context.in_thread(project_policy, folder, project)
    except PolicyRefusedError as error:
        raise RetryLater(_WAIT_FOR_POLICY_S, str(error)) from error


def _order(upload: Upload) -> tuple[CollectionRequest | None, list[Breach]]:
    """What was ordered; an order that cannot be used rejects nobody."""
    if upload.request is None:
        return None, []
    try:
        return parse_request(upload.request.encode()), []
    except RequestError as error:
        expected = "a collection request that can be used"
        breach = Breach(rule=rules.REQUEST, lowered="warning", message=str(error), expected=expected, found=str(error))
        return None, [breach]


def _told(inspection: Inspection, more: list[Breach], policy: Policy) -> Inspection:
    """The inspection with further breaches."""
    if more:
        report = inspection.report
        breaches = [*more, *report.breaches]
        inspection.report = judge(
            report.format,
            report.episodes,
            breaches,
            files=report.files,
            size=report.bytes,
            on_bad_episode=policy.on_bad_episode,
        )
    return inspection


def _compare_claims(inspection: Inspection, episodes: list[Episode], policy: Policy) -> dict[int, Content]:
    """Tell what the collector claimed otherwise; returns what the files hold of those episodes."""
    if inspection.info is None:
        return {}
    claimed = {episode.source_index: episode.claimed for episode in episodes if episode.claimed is not None}
    breaches, contents = compare(claimed, inspection.report.episodes, inspection.episodes, inspection.info)
    _told(inspection, policy.apply(breaches), policy)
    return contents


def with_waivers(policy: Policy, waivers: Waivers | None) -> Policy:
    """Rules that are waived for the whole dataset are waived for new uploads too."""
    now = datetime.now(UTC)
    changes = dict(policy.changes)
    for waiver in () if waivers is None else waivers.all:
        if waiver.holds(now) and not waiver.episodes and waiver.rule not in FIXED:
            changes[waiver.rule] = Change(waive=True, reason=f"{waiver.reason} ({waiver.by})")
    return replace(policy, changes=changes)


async def _trunk_root(upload: Upload, context: WorkContext) -> Path | None:
    dataset = await context.get(Dataset, upload.dataset_key)
    if dataset is None or not dataset.trunk:
        return None
    version = await context.get(Version, version_key(upload.project, upload.dataset, dataset.trunk))
    return Path(version.root) if version is not None else None


def _compare_features(inspection: Inspection, folder: Path, root: Path | None, policy: Policy) -> Inspection:
    """The rows must fit into the tables that the dataset already has."""
    if root is None or inspection.info is None:
        return inspection
    if not root.exists() and root.parent.is_dir():
        return inspection  # somebody deleted that version; conversion compares the uploads themselves
    try:
        document, _ = read_document(read_regular(root / INFO_FILE, limit=MAX_JSON_BYTES))
    except OSError as error:
        msg = f"the dataset's latest version {root} cannot be read: {error.strerror}"
        raise StorageUnavailableError(msg) from error
    before, _ = parse_info(document or {})
    text = None if before is None else _difference(before, root, inspection.info, folder)
    if text is None:
        return _told(inspection, _unknown_tasks(inspection, inspection.info, folder, root), policy)
    breach = Breach(
        rule=rules.OTHER_FEATURES,
        file=INFO_FILE,
        expected="the features, frame rate and labels of the dataset",
        found=text,
        message=f"the upload does not fit into the dataset: {text}",
    )
    return _told(inspection, [breach], policy)


def _difference(before: Info, root: Path, info: Info, folder: Path) -> str | None:
    """Why the rows of an upload cannot stand in the tables of a version; None when they can."""
    if features_digest(before) != features_digest(info):
        have, new = {f.key: f for f in before.features}, {f.key: f for f in info.features}
        shapes = {
            key: [(f.dtype, f.shape) for f in (have.get(key), new.get(key)) if f is not None] for key in have | new
        }
        differ = sorted(key for key, found in shapes.items() if len(found) == 1 or found[0] != found[1])
        text = f"features {listed(differ)}" if differ else f"frame rates {before.fps:g} and {info.fps:g}"
        return f"{text} differ"
    labels = (read_labels(DatasetFolder(place), one) for place, one in ((root, before), (folder, info)))
    return difference((before, next(labels)), (info, next(labels)))


def _unknown_tasks(inspection: Inspection, info: Info, folder: Path, root: Path) -> list[Breach]:
    """Task numbers that the upload's own table does not list and that the version cannot keep."""
    files = DatasetFolder(folder)
    tasks = (read_tasks(DatasetFolder(root))[0] or {}, inspection.tasks)
    return check_references(files, info, read_labels(files, info), inspection.episodes, tasks)


async def _episodes(upload: Upload, context: WorkContext) -> list[Episode]:
    """Every episode that was announced; their ids follow from their numbers."""
    found = []
    for number in range(upload.highest + 1):
        id_ = episode_id(upload.project, upload.dataset, upload.id, number)
        episode = await context.get(Episode, place(upload.project, id_))
        if episode is not None:
            found.append(episode)
    return found


async def _known(
    upload: Upload, judged: EpisodeReport | None, episode: Episode, context: WorkContext
) -> Episode | None:
    """The episode of another upload that has brought the same rows into the dataset before."""
    if judged is None or judged.digest is None:
        return None
    known = await context.get(Recording, recording_key(upload.project, upload.dataset, judged.digest))
    if known is None or known.episode == episode.id:
        return None
    return await context.get(Episode, place(upload.project, known.episode))


def _twin(known: Episode, episode: Episode) -> Finding:
    there = f"was withdrawn ({known.withdrawn})" if known.withdrawn is not None else "is in the dataset already"
    message = f"episode {episode.source_index} has the same rows as {known.id}, which {there}"
    breach = Breach(rule=rules.ALREADY_THERE, message=message, expected="a new recording", found=known.id)
    return breach.finding(episode.source_index)


class _Judge:
    """Turns the report's line about an episode into its verdict event."""

    def __init__(self, upload: Upload, report: Report, contents: Mapping[int, Content], reference: FileRef) -> None:
        self._upload = upload
        self._report = report
        self._contents = contents
        self._reference = reference
        self._lines = {line.index: line for line in report.episodes}
        self._breaches = report.breaches_by_episode()

    def line(self, episode: Episode) -> EpisodeReport | None:
        return self._lines.get(episode.source_index)

    def verdict(self, episode: Episode, twin: Finding | None, same: str | None = None) -> Emit:
        judged = self.line(episode)
        own = self._breaches.get(episode.source_index, [])
        findings = self._report.findings_of(episode.source_index, own)
        body: EpisodeAccepted | EpisodeHeld | EpisodeRejected
        common: dict[str, Any] = {
            "episode": episode.id,
            "upload": self._upload.id,
            "dataset": self._upload.dataset,
            "source_index": episode.source_index,
            "length": episode.length if judged is None else judged.frames,
            "rules_version": RULES_VERSION,
        }
        if (content := self._contents.get(episode.source_index)) is not None:
            common["as_read"] = as_event(content)
        if judged is None or judged.outcome == "reject":
            findings = findings or (_not_listed(episode),)
            body = EpisodeRejected.model_validate({**common, "findings": findings, "report": self._reference})
        elif judged.outcome == "hold" or twin is not None:
            body = EpisodeHeld.model_validate(
                {
                    **common,
                    "findings": (*((twin,) if twin else ()), *findings),
                    "tasks": judged.tasks,
                    "sha256": judged.digest,
                }
            )
        else:
            extra = {"tasks": judged.tasks, "warnings": findings, "sha256": judged.digest, "same_as": same}
            body = EpisodeAccepted.model_validate({**common, **extra})
        return Emit(project=self._upload.project, body=body, dedupe=(episode.id,))


def _not_listed(episode: Episode) -> Finding:
    message = f"episode {episode.source_index} was announced, but the uploaded folder does not list it"
    return Breach(rule=rules.EPISODE_ROW, message=message, expected="an entry in meta/episodes", found="none").finding(
        episode.source_index
    )
