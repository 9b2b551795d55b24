"""Metrics from files: a flat JSON object, or the `eval_info.json` that `lerobot-eval` writes; and release policies."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

_TOTALS = ("overall", "aggregated")
"""Where `lerobot-eval` puts the means over all episodes, newer and older."""
_NOT_METRICS = frozenset({"video_paths", "eval_s", "eval_ep_s"})
"""What eval_info.json holds beside metrics: file names and how long the evaluation took."""


def read_metrics(file: Path | None, pairs: list[str]) -> dict[str, float]:
    """Numbers by name, from a file and from NAME=VALUE pairs."""
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        try:
            values[name] = float(value)
        except ValueError as error:
            msg = f"{pair!r}: write NAME=VALUE with a number"
            raise typer.BadParameter(msg) from error
        if not equals:
            msg = f"{pair!r}: write NAME=VALUE"
            raise typer.BadParameter(msg)
    if not values:
        msg = "give --metrics FILE or --metric NAME=VALUE"
        raise typer.BadParameter(msg)
    return values


def evidence_of(file: Path | None, pairs: list[str], job: str | None) -> dict[str, Any]:
    """Where the numbers come from: the file with its digest, the job that wrote it, the names that were typed."""
    if file is None:
        return {"kind": "typed"}
    try:
        content = file.read_bytes()
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}"
        raise typer.BadParameter(msg) from error
    said = {"kind": "file" if job is None else "job", "file": str(file.resolve())}
    typed = [pair.partition("=")[0] for pair in pairs]
    return {**said, "sha256": hashlib.sha256(content).hexdigest(), "job": job, "typed": typed}


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{file} cannot be read as JSON: {error}"
        raise typer.BadParameter(msg) from error
    if not isinstance(content, dict):
        msg = f"{file} must hold an object of numbers, or be an eval_info.json of lerobot-eval"
        raise typer.BadParameter(msg)
    totals = next((content[name] for name in _TOTALS if isinstance(content.get(name), dict)), None)
    if totals is None:
        return content
    found = _numbers(totals)
    groups = content.get("per_group")
    for group, metrics in groups.items() if isinstance(groups, Mapping) else ():
        if isinstance(metrics, Mapping):
            found |= {f"{group}/{name}": value for name, value in _numbers(metrics).items()}
    if not found:
        msg = f"{file} looks like an eval_info.json, but it holds no finite number"
        raise typer.BadParameter(msg)
    return found


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in metrics.items()
        if name not in _NOT_METRICS
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def read_policy(file: Path) -> Any:
    """A release policy, YAML or JSON; the registry checks what it says."""
    import yaml  # noqa: PLC0415 only for policies

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        msg = f"{file} cannot be read as YAML: {error}"
        raise typer.BadParameter(msg) from error
