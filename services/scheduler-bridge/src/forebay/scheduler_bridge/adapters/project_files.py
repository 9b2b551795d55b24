"""Reads the project files of a folder: `*.yaml`, one project each. Every problem of every file at once."""

from __future__ import annotations

from pathlib import Path

import yaml

from forebay.scheduler_bridge.domain.project import ProjectFile, parse_project
from forebay.scheduler_bridge.errors import ProjectFilesError


def read_projects(folder: Path) -> dict[str, ProjectFile]:
    """Project -> its file. Raises `ProjectFilesError` when one cannot be used: half a permission is none."""
    found: dict[str, ProjectFile] = {}
    problems: list[str] = []
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if not files:
        problems.append(f"{folder}: no project file (*.yaml) in it")
    for path in files:
        try:
            parsed = parse_project(yaml.safe_load(path.read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            problems.append(f"{path}: {error}")
            continue
        if not isinstance(parsed, ProjectFile):
            problems += [f"{path}: {item.field}: {item.message}" for item in parsed]
        elif parsed.project in found:
            problems.append(f"{path}: project {parsed.project} has another file already")
        else:
            found[parsed.project] = parsed
    if problems:
        raise ProjectFilesError(problems)
    return found
