"""What a version says beside numbers: carried files, fields per episode, names of values, texts of tasks; written and compared.

Rows are compared elsewhere. Here the version's own `meta/` is read back and must mean
what every origin means.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forebay.ingest.adapters import metadata_tables
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.episode_fields import EpisodeFields, read_fields, together
from forebay.ingest.adapters.exact_columns import decoded
from forebay.ingest.adapters.linked_tables import share_file
from forebay.ingest.adapters.origins import Origin
from forebay.ingest.adapters.task_numbers import same_tasks
from forebay.ingest.domain.info_file import INFO_FILE, parse_info, read_document
from forebay.ingest.domain.labels import is_task_number, names_of
from forebay.ingest.domain.recording import Info
from forebay.ingest.domain.version_plan import Source, VersionPlan
from forebay.ingest.errors import ConversionError, ReadBackError
from forebay.runtime.regular_files import open_regular


def write_carried(plan: VersionPlan, origins: Mapping[str, Origin], draft: Path) -> None:
    """Files that are carried along; those of an earlier version are shared like its tables."""
    for file in plan.carried:
        source, target = origins[file.origin].meta(file.source), draft / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if plan.sources[file.origin].version:
            share_file(source, target)
            continue
        with open_regular(source, links=False) as before, target.open("wb") as after:
            shutil.copyfileobj(before, after)


def version_fields(plan: VersionPlan, origins: Mapping[str, Origin]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Further columns of the episode table, in the order of the version; and names of columns that are left out."""
    left_out: dict[str, None] = {}

    def parts() -> Iterator[tuple[EpisodeFields, int]]:
        for source in plan.sources.values():
            fields, count = _fields(plan, source, origins[source.origin])
            left_out.update(dict.fromkeys(fields.left_out))
            yield fields.mapped(plan.numbers[source.origin]), count

    return together(parts()), tuple(left_out)


def _fields(plan: VersionPlan, source: Source, origin: Origin) -> tuple[EpisodeFields, int]:
    numbers = [episode.accepted.declared.index for episode in plan.of(source.origin)]
    return read_fields(DatasetFolder(origin.folder), source.info, numbers), len(numbers)


def read_back_tasks(draft: Path) -> list[str]:
    """The texts by number, out of the version's own task table."""
    tasks, broken = metadata_tables.read_tasks(DatasetFolder(draft))
    if tasks is None or broken or sorted(tasks) != [*range(len(tasks))]:
        msg = f"the task table was read back with other numbers than were written ({draft / 'meta/tasks.parquet'})"
        raise ReadBackError(msg)
    return [tasks[number] for number in range(len(tasks))]


def compare_meanings(plan: VersionPlan, origins: Mapping[str, Origin], draft: Path) -> None:
    """Raise `ReadBackError` when the version's `meta/` means something else than that of an origin."""
    folder = DatasetFolder(draft)
    document, _ = read_document(folder.read(INFO_FILE))
    info, _ = parse_info(document or {})
    if info is None:
        msg = "info.json of the version cannot be read back"
        raise ReadBackError(msg)
    tasks = read_back_tasks(draft)
    stored = read_fields(folder, info, [episode.index for episode in plan.episodes])
    for source in plan.sources.values():
        numbers = plan.numbers[source.origin]
        wrong = [n for n, text in source.tasks.items() if tasks[numbers[n]] != text]
        if wrong:
            msg = f"task {wrong[0]} of {source.origin} was read back as {tasks[numbers[wrong[0]]]!r}"
            raise ReadBackError(msg)
        _compare_names(info, source)
        _compare_fields(plan, source, origins[source.origin], (stored, tasks))
    for file in plan.carried:
        with open_regular(draft / file.path, links=True) as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest != file.sha256:
            where = origins[file.origin].meta(file.source)
            msg = f"{where} is not the file that was announced; upload it again"
            raise ConversionError(msg)


def _compare_names(info: Info, source: Source) -> None:
    """Every column has the values that it had, under the names that they had."""
    features = {feature.key: feature for feature in info.features}
    for feature in source.info.features:
        found = features.get(feature.key)
        before, after = names_of(source.info, feature.key), names_of(info, feature.key)
        named = feature.is_video or feature.is_image or not before or not after or before == after
        if found is None or found.dtype != feature.dtype or found.shape != feature.shape or not named:
            msg = (
                f"{feature.key} of {source.origin} was read back as another feature, or with other names of its values"
            )
            raise ReadBackError(msg)


def _compare_fields(
    plan: VersionPlan, source: Source, origin: Origin, version: tuple[EpisodeFields, list[str]]
) -> None:
    stored, tasks = version
    before, _ = _fields(plan, source, origin)
    for name, column in before.columns.items():
        named = is_task_number(name)
        found = stored.columns[name]
        for value, episode in zip(column.to_pylist(), plan.of(source.origin), strict=True):
            after = decoded(found[episode.index].as_py(), value)
            if not same_tasks(value, after, source.tasks, tasks, named=named):
                msg = f"episode {episode.accepted.id}: {name} was read back as another value"
                raise ReadBackError(msg)
