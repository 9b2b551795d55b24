"""Names in the metadata: of a feature's values, and of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.info_file import INFO_FILE
from forebay.ingest.domain.recording import ACTIONS, ROW_COLUMNS, STATES, Feature, Info

_MOST = 100_000


def check_names(info: Info) -> list[Breach]:
    """Features whose names do not fit their values. No names at all are fine for what is no camera."""
    raw = info.document.get("features")
    found = _check_order(info, raw)
    for feature in info.features:
        entry = raw.get(feature.key) if isinstance(raw, dict) else None
        names = entry.get("names") if isinstance(entry, dict) else None
        if feature.is_video or feature.is_image or feature.key in ROW_COLUMNS or not isinstance(names, list | dict):
            continue
        found += _check(feature, names)
    return found


def _check_order(info: Info, raw: Any) -> list[Breach]:
    """State and action of the same joints, named in two orders: one of them is wrong, or a policy must know."""
    keys = {feature.key: feature for feature in info.row_features}
    action = next((keys[key] for key in ACTIONS if key in keys), None)
    state = next((keys[key] for key in STATES if key in keys), None)
    if action is None or state is None or not isinstance(raw, dict):
        return []
    left, right = (raw[one.key].get("names") if isinstance(raw.get(one.key), dict) else None for one in (action, state))
    if not isinstance(left, list) or not isinstance(right, list) or left == right or len(left) > 1000:
        return []
    if not all(isinstance(name, str) for name in (*left, *right)) or sorted(left) != sorted(right):
        return []
    first = next(number for number, (one, other) in enumerate(zip(left, right, strict=True)) if one != other)
    return [
        _breach(action, f"the order of {state.key}: {right[first]!r} at {first}", f"another order: {left[first]!r}")
    ]


def _check(feature: Feature, names: list[Any] | dict[Any, Any]) -> list[Breach]:
    leaves = _leaves(names)
    # one name per value, or per axis, or per entry of one axis, or of every axis
    usual = {feature.width, len(feature.shape), *feature.shape, sum(feature.shape)}
    if leaves and len(leaves) not in usual:
        missing = "joints cannot be mapped by name" if feature.is_signal else "values cannot be mapped by name"
        return [_breach(feature, f"{feature.width} names", f"{len(leaves)} names; {missing}")]
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        twice = sorted({name for name in names if names.count(name) > 1}) if len(names) <= 1000 else []
        if twice:
            return [_breach(feature, "each name once", f"{listed(twice)} more than once")]
    return []


def joint_names(info: Info) -> dict[str, tuple[str, ...]]:
    """The names of a feature's values, where there is one for each."""
    raw = info.document.get("features")
    found: dict[str, tuple[str, ...]] = {}
    for feature in info.row_features:
        entry = raw.get(feature.key) if isinstance(raw, dict) else None
        names = entry.get("names") if isinstance(entry, dict) else None
        leaves = _leaves(names) if isinstance(names, list | dict) else []
        if len(leaves) == feature.width and all(isinstance(name, str) for name in leaves):
            found[feature.key] = tuple(leaves)
    return found


def _breach(feature: Feature, expected: str, found: str) -> Breach:
    return Breach(
        rule=rules.SIGNAL_NAMES,
        feature=feature.key,
        file=INFO_FILE,
        expected=expected,
        found=found,
        message=f"{feature.key} of shape {list(feature.shape)}: expected {expected}, info.json has {found}",
    )


def _leaves(names: list[Any] | dict[Any, Any]) -> list[Any]:
    """The names in nested lists (`[["a", "b"]]`) and groups (`{"motors": ["a", "b"]}` or `{"a": 0, "b": 1}`)."""
    found: list[Any] = []
    waiting: list[Any] = [names]
    while waiting and len(found) < _MOST:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, dict):
            entries = [entry if isinstance(entry, list | dict) else key for key, entry in value.items()]
            waiting.extend(reversed(entries))
        else:
            found.append(value)
    return found


def check_task_texts(tasks: Mapping[int, str], file: str) -> list[Breach]:
    """Tasks without a text, and texts that two tasks share."""
    found: list[Breach] = []
    blank = sorted(number for number, text in tasks.items() if not text.strip())
    numbers: dict[str, list[int]] = {}
    for number, text in sorted(tasks.items()):
        numbers.setdefault(text.strip(), []).append(number)
    doubled = {text: found_at for text, found_at in numbers.items() if text and len(found_at) > 1}
    if blank:
        found.append(_task(file, "a text", "no text", f"tasks {listed(blank)} have no text"))
    for text, at in list(doubled.items())[:20]:
        found.append(_task(file, "a text of its own", text, f"tasks {listed(at)} have the same text {text!r}"))
    return found


def _task(file: str, expected: str, actual: str, text: str) -> Breach:
    return Breach(
        rule=rules.TASK_TABLE,
        feature="task_index",
        file=file,
        expected=expected,
        found=actual,
        message=f"{file}: {text}",
    )
