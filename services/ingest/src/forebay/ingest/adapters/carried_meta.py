"""What a dataset has below meta/ beside its tables: carried along byte for byte, and read as far as rows refer to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from forebay.ingest.adapters.dataset_folder import MAX_JSON_BYTES, DatasetFolder
from forebay.ingest.adapters.lerobot_tables import written_anew
from forebay.ingest.adapters.parquet_tables import ParquetTable, plain_columns
from forebay.ingest.domain.info_file import INFO_FILE, is_count, strict_json
from forebay.ingest.domain.labels import MODALITY_FILE, Labels, own_table
from forebay.ingest.domain.recording import Info
from forebay.ingest.errors import IngestError
from forebay.runtime.regular_files import open_regular

_MAX_TABLE_BYTES = 16 << 20
_MAX_LABELS = 1_000_000


def carried_files(folder: DatasetFolder, info: Info, sha256: Mapping[str, str]) -> dict[str, str]:
    """Every file below meta/ that versions do not write themselves, with its digest; and info.json, for its notes."""
    anew = written_anew(folder, info) - {INFO_FILE}
    names = sorted(name for name in folder.files if name.startswith("meta/") and name not in anew)
    return {name: sha256.get(name) or _digest(folder, name) for name in names}


def _digest(folder: DatasetFolder, name: str) -> str:
    with open_regular(folder.path(name), links=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_labels(folder: DatasetFolder, info: Info) -> Labels:
    """What those files say about numbers in rows. A file that cannot be read says nothing; it is carried all the same."""
    tables: dict[str, Mapping[int, Any]] = {}
    for feature in info.features:
        file = own_table(feature.key, folder.files)
        if file is not None:
            tables[feature.key] = dict(_labels(folder, file, feature.key.rpartition(".")[2]))
    return Labels(modality=_json(folder, MODALITY_FILE), tables=tables)


def _json(folder: DatasetFolder, name: str) -> Any:
    if name not in folder.files:
        return None
    try:
        return strict_json(folder.read(name, MAX_JSON_BYTES))
    except (ValueError, IngestError):
        return None


def _labels(folder: DatasetFolder, file: str, column: str) -> Iterable[tuple[int, Any]]:
    """Number -> the rest of its row."""
    if folder.files[file] > _MAX_TABLE_BYTES:
        return
    try:
        rows = _lines(folder, file) if file.endswith(".jsonl") else _rows(folder, file)
    except (ValueError, IngestError):
        return
    for row in rows[:_MAX_LABELS]:
        if isinstance(row, dict) and is_count(row.get(column)):
            rest = {key: value for key, value in row.items() if key != column}
            yield row[column], next(iter(rest.values())) if len(rest) == 1 else rest


def _lines(folder: DatasetFolder, file: str) -> list[Any]:
    return [strict_json(line) for line in folder.read(file).splitlines() if line.strip()]


def _rows(folder: DatasetFolder, file: str) -> list[Any]:
    with ParquetTable(folder.path(file)) as table:
        if table.doubled:
            return []
        columns = plain_columns(table.read(table.schema.names))
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def beside(folder: DatasetFolder, used: Iterable[str], announced: Iterable[str] | None) -> list[str]:
    """Files outside of meta/ that no episode uses, so that no version holds them."""
    known = set(used)
    names = folder.files if announced is None else [name for name in announced if name in folder.files]
    return sorted(name for name in names if name not in known and not name.startswith("meta/"))
