"""A lease, where anybody who opens the tables with Lance can see it: the tag `lease-<job>` on each of them.

Lance's own clean-up spares a tagged version, so even a clean-up past ingest cannot
take the data from under a job.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance


def place_tags(root: Path, job: str) -> None:
    """Tag every table of a version root, or none: what was placed is taken back when one table refuses."""
    placed: list[Any] = []
    name = tag_name(job)
    try:
        for path in sorted(root.glob("*.lance")):
            table = lance.dataset(str(path))
            if name not in table.tags.list():
                placed.append(table)
                table.tags.create(name, table.version)
    except BaseException:
        for table in placed:
            if name in table.tags.list():
                table.tags.delete(name)
        raise


def take_tags(root: Path, job: str) -> None:
    """Take the job's tags away, where there are any."""
    name = tag_name(job)
    for path in sorted(root.glob("*.lance")):
        if not (path / "_refs" / "tags" / f"{name}.json").exists():
            continue
        lance.dataset(str(path)).tags.delete(name)


def tag_name(job: str) -> str:
    """The tag of one job's lease."""
    return f"lease-{job}"
