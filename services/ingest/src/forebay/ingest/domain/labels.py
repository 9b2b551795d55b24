"""What the numbers of a dataset's rows mean: tasks, other tables of labels, names of values, and the columns that refer to them.

A version may hold what several uploads brought. Their rows go together only when equal
numbers mean equal things; task numbers can be mapped, because it is declared which
columns hold them. Pure: adapters read the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay.ingest.domain.breach import listed
from forebay.ingest.domain.info_file import shown
from forebay.ingest.domain.recording import ROW_COLUMNS, Info

TASK_COLUMN = "task_index"
MODALITY_FILE = "meta/modality.json"
"""GR00T's description of a dataset's columns; its annotations name tasks by number."""
MOST_NUMBERS = 100_000
"""Task numbers up to this one are kept as they are, whatever lies between them."""
_INTEGERS = ("int", "uint")
_ANNOTATIONS = "annotation."
_WRITTEN_ANEW = frozenset(
    {
        "codebase_version",
        "total_episodes",
        "total_frames",
        "total_tasks",
        "total_chunks",
        "total_videos",
        "chunks_size",
        "data_files_size_in_mb",
        "video_files_size_in_mb",
        "splits",
        "data_path",
        "video_path",
        "storage_format",
    }
)
"""Keys of info.json that say how a dataset is stored; every version has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What a dataset's metadata says beside info.json, the task table and the episode table."""

    modality: Any = None
    """The content of `MODALITY_FILE`."""
    tables: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    """Other tables of labels, such as meta/subtasks.parquet: the column that refers to it -> number -> label."""


def is_task_number(name: str) -> bool:
    """Whether a name says that it holds task numbers: `task_index`, `coarse_task_index`, `annotation.subtask_index`."""
    return name.rpartition(".")[2].endswith(TASK_COLUMN)


def own_table(column: str, files: Iterable[str]) -> str | None:
    """The file that a column such as `subtask_index` refers to: `meta/subtasks.parquet` or `.jsonl`."""
    name = column.rpartition(".")[2]
    stem = name.removesuffix("_index")
    if name in ROW_COLUMNS or stem == name:
        return None
    wanted = {f"meta/{stem}s{ending}" for ending in (".parquet", ".jsonl")}
    return next((file for file in sorted(files) if file in wanted), None)


def task_columns(info: Info, labels: Labels) -> tuple[str, ...]:
    """Features whose whole numbers are task numbers, by what info.json and modality.json declare.

    These are `task_index`, what is named like it or whose values are, GR00T's annotations, and what modality.json calls one.
    """
    declared = _annotated(labels.modality)
    found = []
    for feature in info.features:
        key = feature.key
        if key in labels.tables or (key in ROW_COLUMNS and key != TASK_COLUMN):
            continue
        names = names_of(info, key)
        named = is_task_number(key) or key.startswith(_ANNOTATIONS) or key in declared
        named = named or (bool(names) and all(is_task_number(str(name)) for name in names))
        if named and (feature.dtype.startswith(_INTEGERS) or feature.is_free):
            found.append(key)
    return tuple(found)


def referring_columns(info: Info, labels: Labels) -> dict[str, bool]:
    """Columns beside `task_index` that may hold task numbers -> whether all whole numbers in them are some.

    In columns of any shape only fields that are named like task numbers are.
    """
    free = [feature.key for feature in info.row_features if feature.is_free]
    return dict.fromkeys(free, False) | {key: True for key in task_columns(info, labels) if key != TASK_COLUMN}


def _annotated(modality: Any) -> set[str]:
    """Columns that modality.json lists as annotations."""
    section = modality.get("annotation") if isinstance(modality, dict) else None
    found: set[str] = set()
    for name, entry in section.items() if isinstance(section, dict) else ():
        original = entry.get("original_key") if isinstance(entry, dict) else None
        found |= {original} if isinstance(original, str) else {f"{_ANNOTATIONS}{name}", str(name)}
    return found


def number_tasks(tables: Mapping[str, Mapping[int, str]]) -> tuple[tuple[str, ...], dict[str, dict[int, int]]]:
    """One task table for all origins, and what each origin's numbers become in it.

    Readers of LeRobot take a text by its place, so place and number are one. The first
    origin keeps its numbers; numbers that it does not use get a text that says so.
    """
    texts: list[str] = []
    numbers: dict[str, dict[int, int]] = {}
    for origin, table in tables.items():
        if not texts:
            texts, numbers[origin] = _first_table(table)
        else:
            numbers[origin] = _add_table(texts, table)
    return tuple(texts), numbers


def _first_table(table: Mapping[int, str]) -> tuple[list[str], dict[int, int]]:
    most = max(table, default=-1)
    if most >= MOST_NUMBERS:
        ordered = sorted(table)
        return [table[number] for number in ordered], {number: place for place, number in enumerate(ordered)}
    return [table.get(n, f"(no task {n})") for n in range(most + 1)], {number: number for number in table}


def _add_table(texts: list[str], table: Mapping[int, str]) -> dict[int, int]:
    places: dict[str, int] = {}
    for place, text in enumerate(texts):
        places.setdefault(text, place)
    found: dict[int, int] = {}
    for number, text in sorted(table.items()):
        if number < len(texts) and texts[number] == text:
            found[number] = number
            continue
        if text not in places:
            places[text] = len(texts)
            texts.append(text)
        found[number] = places[text]
    return found


def notes_of(info: Info) -> dict[str, Any]:
    """What info.json says of the recording, without how it is stored."""
    return {key: value for key, value in info.document.items() if key not in _WRITTEN_ANEW}


def other_notes(base: Info, new: Info) -> list[str]:
    """Notes of `new` that differ from those of `base`, in words."""
    have, want = notes_of(base), notes_of(new)
    found = []
    for key in sorted(have.keys() | want.keys()):
        if have.get(key) == want.get(key):
            continue
        if key == "features":
            differ = sorted(k for k in have[key] | want[key] if have[key].get(k) != want[key].get(k))
            found.append(f"descriptions of {listed(differ)}")
        else:
            found.append(f"{key} {shown(want.get(key))} (the version has {shown(have.get(key))})")
    return found


def difference(base: tuple[Info, Labels], new: tuple[Info, Labels]) -> str | None:
    """Why equal numbers mean different things in two datasets, so that their rows cannot share a table; None: they do not."""
    return _other_names(base[0], new[0]) or _other_modality(base[1], new[1]) or _other_labels(base[1], new[1])


def _other_names(base: Info, new: Info) -> str | None:
    """Names of the values of one column, which must be equal and in the same order."""
    for feature in base.row_features:
        left, right = names_of(base, feature.key), names_of(new, feature.key)
        if left and right and left != right:
            at = next((n for n, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), len(left))
            one, other = (names[at] if at < len(names) else "nothing" for names in (left, right))
            return (
                f"{feature.key} has other names or another order of them: value {at} is {shown(one)} in the dataset and"
                f" {shown(other)} in the upload; write the values in the order of the dataset, or use another dataset name"
            )
    return None


def names_of(info: Info, key: str) -> tuple[Any, ...]:
    """The names of a feature's values, in order; none when it has none."""
    features = info.document.get("features")
    document = features.get(key) if isinstance(features, dict) else None
    return _leaves(document.get("names")) if isinstance(document, dict) else ()


def _leaves(names: Any) -> tuple[Any, ...]:
    """The names in nested lists (`[["a", "b"]]`) and groups (`{"motors": ["a", "b"]}` or `{"a": 0, "b": 1}`), in order."""
    if isinstance(names, list):
        return tuple(leaf for entry in names for leaf in _leaves(entry))
    if isinstance(names, dict):
        if names and all(isinstance(place, int) for place in names.values()):
            return tuple(sorted(names, key=lambda name: names[name]))
        return tuple(leaf for value in names.values() for leaf in _leaves(value))
    return () if names is None else (names,)


def _other_modality(base: Labels, new: Labels) -> str | None:
    if base.modality is None or new.modality is None or base.modality == new.modality:
        return None
    return (
        f"{MODALITY_FILE} describes the columns differently than in the dataset; make the two files equal, or use another"
        " dataset name"
    )


def _other_labels(base: Labels, new: Labels) -> str | None:
    for column in base.tables.keys() & new.tables.keys():
        have, want = base.tables[column], new.tables[column]
        number = next((n for n in sorted(have.keys() & want.keys()) if have[n] != want[n]), None)
        if number is not None:
            return (
                f"{column} {number} means {shown(have[number])} in the dataset and {shown(want[number])} in the upload;"
                " use the dataset's table of labels and add to its end, or use another dataset name"
            )
    return None
