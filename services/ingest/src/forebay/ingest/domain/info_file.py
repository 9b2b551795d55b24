"""meta/info.json: bytes from outside become an `Info`, or breaches that say what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed, printable
from forebay.ingest.domain.recording import (
    CLOCK_COLUMN,
    COUNTED,
    INDEX_COLUMNS,
    ROW_COLUMNS,
    SPLIT_RANGES,
    Feature,
    Info,
)

INFO_FILE = "meta/info.json"
SUPPORTED = ("v3.0", "v2.1", "v2.0")
"""Versions of the format that are read."""
MAX_COUNT = 2**53
"""Larger counts cannot be exact in JSON, so they are not counts."""
MAX_WIDTH = 1 << 20
_WHOLE = ("total_episodes", "total_frames", "total_tasks", "chunks_size")
_SUPPORTED = ", ".join(SUPPORTED)
_ROW_DTYPES = {name: "float32" if name == CLOCK_COLUMN else "int64" for name in ROW_COLUMNS}
_USUAL_PATHS = (
    (
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    ),
    (
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    ),
)
"""Templates of data and videos, before v3.0 and from it on."""
_FIELD_ADVICE = "Correct the field in meta/info.json, or write the file again from the recorder."
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?")


class NotStrictJsonError(ValueError):
    """The text has NaN or Infinity, which JSON does not know."""


def strict_json(raw: bytes) -> Any:
    """Parse JSON; raises `ValueError` for anything that is not strict JSON."""
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except RecursionError as error:
        msg = "it is nested too deeply"
        raise ValueError(msg) from error


def _no_constant(name: str) -> Any:
    msg = f"it contains the bare word {name}"
    raise NotStrictJsonError(msg)


class _Problems:
    """Collects every wrong field, so that one run names them all."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def take(self, document: dict[str, Any], key: str, wanted: str, check: Callable[[Any], bool]) -> Any:
        value = document.get(key)
        if key not in document:
            self.texts.append(f"{key} is missing, expected {wanted}")
        elif not check(value):
            self.texts.append(f"{key} is {shown(value)}, expected {wanted}")
        else:
            return value
        return None


def shown(value: Any) -> str:
    """A value from outside, short enough for a sentence."""
    return printable(repr(value), 80)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 100_000


def read_document(raw: bytes) -> tuple[dict[str, Any] | None, list[Breach]]:
    """The JSON object in the file."""
    if not raw.strip():
        return None, [
            _broken(
                f"meta/info.json is empty ({len(raw)} bytes): cut upload or recorder crash", found=f"{len(raw)} bytes"
            )
        ]
    try:
        document = strict_json(raw)
    except ValueError as error:
        return None, [_broken(f"meta/info.json cannot be read as JSON: {error}", found=f"{len(raw)} bytes")]
    if not isinstance(document, dict):
        return None, [_broken("meta/info.json holds no JSON object", found=shown(document))]
    return document, []


def _broken(message: str, found: str | None = None, *, slight: bool = False, advice: str | None = None) -> Breach:
    lowered: rules.Severity | None = "warning" if slight else None
    return Breach(
        rule=rules.NOT_A_DATASET, lowered=lowered, message=message, file=INFO_FILE, found=found, advice=advice
    )


def check_storage(document: dict[str, Any]) -> list[Breach]:
    """A dataset whose rows and videos lie in Lance tables, as those of every version do, has no files to judge."""
    if document.get("storage_format") != "lance":
        return []
    text = "the dataset is stored as Lance (frames.lance, videos.lance); validate, convert and upload take parquet and mp4 files"
    advice = "Give the folder that it was made from. If it is a version of Forebay, check it with: forebay dataset check NAME@vN"
    expected, found = "parquet and mp4 files", "storage_format lance"
    return [Breach(rule=rules.VERSION, message=text, file=INFO_FILE, expected=expected, found=found, advice=advice)]


def check_version(document: dict[str, Any], layout: str) -> list[Breach]:
    """The label must be a version that is read, and the files must lie as it says. `layout` is what they look like."""
    label = document.get("codebase_version")
    found = _VERSION.fullmatch(label) if isinstance(label, str) else None
    looks = (
        "the files lie as in no version, or as in several" if layout == "unknown" else f"the files look like {layout}"
    )
    if label is None:
        message = f"info.json has no codebase_version ({looks}); write the one that the recorder used"
        advice = "Write the codebase_version that the recorder used into meta/info.json."
    elif found is None:
        message = f"codebase_version is {shown(label)}, which is no version ({looks})"
        advice = "Write the codebase_version that the recorder used into meta/info.json."
    elif (version := f"v{int(found.group(1))}.{int(found.group(2))}") in SUPPORTED:
        if layout == "unknown" or layout[:2] == version[:2]:
            return []
        message = (
            f"codebase_version says {label}, but the files lie as in {layout}: label and layout disagree; "
            "correct the label, or convert the files"
        )
        advice = "Correct codebase_version when only the label is wrong, else finish the conversion."
    elif (int(found.group(1)), int(found.group(2))) > (3, 0):
        message = f"codebase_version {label} is newer than what is supported here ({_SUPPORTED}); update Forebay"
        advice = "Update Forebay, or write the dataset in a version that it reads."
    else:
        message = (
            f"codebase_version {label} is not supported, supported are {_SUPPORTED}; "
            "convert the dataset with LeRobot's own converters first"
        )
        advice = "Convert the dataset with LeRobot's own converters."
    return [
        Breach(
            rule=rules.VERSION,
            advice=advice,
            message=message,
            file=INFO_FILE,
            expected=_SUPPORTED,
            found=f"{label}, layout {layout}",
        )
    ]


def is_readable_as(document: dict[str, Any], layout: str) -> bool:
    """Whether only the label is wrong: it is missing, or names another supported version than the files lie in."""
    label = document.get("codebase_version")
    found = _VERSION.fullmatch(label) if isinstance(label, str) else None
    other = found is not None and f"v{int(found.group(1))}.{int(found.group(2))}" in SUPPORTED
    return layout in SUPPORTED and (label is None or other)


def refused_label(document: dict[str, Any]) -> str | None:
    """The version that a document claims, when it is one that is not read; a claim that the files belie says nothing."""
    label = document.get("codebase_version")
    known = isinstance(label, str) and _VERSION.fullmatch(label) is not None
    return None if not known or label in SUPPORTED else str(label)


def version_of(document: dict[str, Any]) -> str:
    """The label of a document that `check_version` passed."""
    found = _VERSION.fullmatch(str(document.get("codebase_version")))
    return f"v{int(found.group(1))}.{int(found.group(2))}" if found else SUPPORTED[0]


def whole_number(value: Any) -> Any:
    """3 for 3.0: some tools write every number as a float. Anything else is given back as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < MAX_COUNT else value


def _settled(document: dict[str, Any]) -> tuple[dict[str, Any], list[Breach]]:
    """The document with whole numbers where they belong, and a word about those that were written otherwise."""
    settled = {**document}
    told: list[str] = []

    def settle(holder: dict[str, Any], key: str, name: str) -> None:
        value = holder.get(key)
        holder[key] = [whole_number(n) for n in value] if isinstance(value, list) else whole_number(value)
        if repr(holder[key]) != repr(value):
            told.append(name)

    for key in _WHOLE:
        if key in settled:
            settle(settled, key, key)
    features = settled.get("features")
    if isinstance(features, dict):
        settled["features"] = {key: {**value} if isinstance(value, dict) else value for key, value in features.items()}
        for key, value in settled["features"].items():
            if isinstance(value, dict) and "shape" in value:
                settle(value, "shape", f"the shape of {shown(key)}")
    if not told:
        return document, []
    text = f"meta/info.json: {listed(told)} written with a decimal point, read as whole numbers; LeRobot stops at them"
    return settled, [_broken(text, found=listed(told), slight=True)]


def parse_info(document: dict[str, Any]) -> tuple[Info | None, list[Breach]]:
    """Check every field that is used later; None when the rest cannot be judged without one that is wrong."""
    problems = _Problems()
    document, told = _settled(document)
    fps = problems.take(document, "fps", "a positive number", _is_rate)
    raw_features = problems.take(document, "features", "an object", lambda v: isinstance(v, dict) and bool(v))
    data_path = problems.take(document, "data_path", "text", lambda v: isinstance(v, str))
    episodes = problems.take(document, "total_episodes", "a whole number", is_count)
    frames = problems.take(document, "total_frames", "a whole number", is_count)
    tasks = document.get("total_tasks")
    video_path = document.get("video_path")
    if video_path is not None and not isinstance(video_path, str):
        problems.texts.append(f"video_path is {shown(video_path)}, expected text or null")
    chunks = document.get("chunks_size", 1000)
    if not is_count(chunks) or not chunks:
        problems.texts.append(f"chunks_size is {shown(chunks)}, expected a whole number from 1")
    robot = document.get("robot_type")
    features = [] if raw_features is None else [_feature(key, value, problems) for key, value in raw_features.items()]
    known = tuple(feature for feature in features if feature is not None)
    undeclared = tuple(name for name in ROW_COLUMNS if raw_features is not None and name not in raw_features)
    known += tuple(_row_column(name) for name in undeclared)
    _check_features(known, video_path, problems)
    splits, odd = _splits(document.get("splits"))
    broken = [_broken(f"meta/info.json: {text}", advice=_FIELD_ADVICE) for text in problems.texts[:20]]
    if broken and (fps is None or not features or not any(features)):
        return None, broken
    declared = {feature.key for feature in known}
    known += tuple(_row_column(name) for name in ROW_COLUMNS if name not in declared)
    counts = {"total_episodes": episodes, "total_frames": frames}
    unread = [key for key, feature in zip(raw_features, features, strict=True) if feature is None]
    version = version_of(document)
    data_path, video_path = _paths(version, data_path, video_path, known)
    return Info(
        version=version,
        fps=float(fps),
        features=known,
        data_path=data_path,
        video_path=video_path,
        total_episodes=episodes or 0,
        total_frames=frames or 0,
        total_tasks=tasks if is_count(tasks) else None,
        chunks_size=chunks if is_count(chunks) and chunks else 1000,
        splits=splits,
        robot=robot if isinstance(robot, str) else None,
        unknown=(*(key for key, count in counts.items() if count is None), *unread),
        undeclared=undeclared,
        document=_declaring(document, undeclared),
    ), [*broken, *told, *_undeclared(undeclared), *odd]


def _row_column(name: str) -> Feature:
    return Feature(key=name, dtype=_ROW_DTYPES[name], shape=(1,), names_known=False)


def _paths(version: str, data: str | None, video: Any, features: tuple[Feature, ...]) -> tuple[str, str | None]:
    """The templates, with the usual ones of the version in place of those that cannot be read."""
    usual_data, usual_video = _USUAL_PATHS[version == "v3.0"]
    if not isinstance(video, str):
        video = usual_video if any(feature.is_video for feature in features) else None
    return data or usual_data, video


def _declaring(document: dict[str, Any], undeclared: tuple[str, ...]) -> dict[str, Any]:
    """The document with every row column among its features."""
    if not undeclared:
        return document
    added = {name: {"dtype": _ROW_DTYPES[name], "shape": [1], "names": None} for name in undeclared}
    return {**document, "features": {**document["features"], **added}}


def _undeclared(names: tuple[str, ...]) -> list[Breach]:
    if not names:
        return []
    needed = [name for name in names if name != COUNTED]
    means = f"; LeRobot v3.0 reads declared columns only and stops without {listed(needed)}" if needed else ""
    text = f"meta/info.json: features does not list the row columns {listed(list(names))}{means}; versions list them"
    return [
        Breach(
            rule=rules.NOT_A_DATASET,
            lowered="warning",
            file=INFO_FILE,
            feature=names[0] if len(names) == 1 else "features",
            expected=f"{listed(list(names))} among the features",
            found="not listed",
            message=text,
        )
    ]


def _feature(key: str, value: Any, problems: _Problems) -> Feature | None:
    where = f"feature {shown(key)}"
    if not isinstance(value, dict):
        problems.texts.append(f"{where} is {shown(value)}, expected an object")
        return None
    dtype, shape, info = value.get("dtype"), value.get("shape"), value.get("info")
    if not isinstance(dtype, str) or not dtype:
        problems.texts.append(f"{where}: dtype is {shown(dtype)}, expected text")
        return None
    usable = isinstance(shape, list) and len(shape) <= 5 and all(is_count(n) and n > 0 for n in shape)
    if not usable or not isinstance(shape, list) or (dtype != "video" and math.prod(shape) > MAX_WIDTH):
        problems.texts.append(f"{where}: shape is {shown(shape)}, expected a list of positive whole numbers")
        return None
    codec = next(
        (text for holder in (info, value.get("video_info")) if isinstance(holder, dict) and (text := _codec(holder))),
        None,
    )
    return Feature(
        key=key, dtype=dtype, shape=tuple(shape), names_known=isinstance(value.get("names"), list | dict), codec=codec
    )


def _codec(holder: dict[str, Any]) -> str | None:
    for name in ("video.codec", "codec"):
        if isinstance(holder.get(name), str):
            return str(holder[name])
    return None


def _check_features(features: tuple[Feature, ...], video_path: Any, problems: _Problems) -> None:
    by_key = {feature.key: feature for feature in features}
    for name in ROW_COLUMNS:
        feature = by_key.get(name)
        kind = "a float" if name == CLOCK_COLUMN else "an integer"
        if feature is not None and (
            feature.width != 1 or not feature.dtype.startswith(("int", "uint") if name in INDEX_COLUMNS else "float")
        ):
            problems.texts.append(
                f"feature '{name}' is {feature.dtype} of shape {list(feature.shape)}, expected {kind} of shape [1]"
            )
    columns: dict[str, str] = {}
    for feature in features:
        other = columns.setdefault(feature.column, feature.key)
        if other != feature.key:
            problems.texts.append(
                f"features {shown(other)} and {shown(feature.key)} would share the column {shown(feature.column)}"
            )
    if video_path is None and any(feature.is_video for feature in features):
        problems.texts.append("video_path is null, but there are cameras")


def _splits(value: Any) -> tuple[tuple[tuple[str, int], ...], list[Breach]]:
    """The splits that say where they end. LeRobot itself never reads them, so others are only told."""
    found: list[tuple[str, int]] = []
    odd: list[str] = []
    for name, text in (value if isinstance(value, dict) else {}).items():
        if isinstance(text, str) and SPLIT_RANGES.fullmatch(text):
            found.append((name, max(int(part.partition(":")[2]) for part in text.split(","))))
        else:
            odd.append(f"split {shown(name)} is {shown(text)}")
    if value is not None and not isinstance(value, dict):
        odd.append(f"splits is {shown(value)}")
    breaches = [
        Breach(
            rule=rules.TOTALS,
            lowered="warning",
            file=INFO_FILE,
            feature="splits",
            expected="ranges of episodes such as '0:12'",
            found=text,
            message=f"meta/info.json: {text}, expected for example '0:12', so it is not known which episodes it names",
        )
        for text in odd[:20]
    ]
    return tuple(found), breaches
