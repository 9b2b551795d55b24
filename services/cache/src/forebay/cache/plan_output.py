"""A plan for people and for programs: the table, the JSON object and the lines for JuiceFS of `forebay plan`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from forebay.cache.domain.plan import DEFAULT_BLOCK_BYTES, PlannedFile, ReadPlan
from forebay.cache.domain.plan_difference import Difference
from forebay.cache.domain.warm_list import write_line
from forebay.cache.domain.wording import show_bytes, show_share

_SHOWN_FILES = 40


def plan_as_json(found: ReadPlan, compared: Difference | None) -> dict[str, Any]:
    """`digest`, `total_bytes`, `aligned_bytes`, `files`, and what else is known."""
    told = found.to_json()
    if compared is not None:
        told["since"] = {
            "digest": compared.older_digest,
            "reused_bytes": compared.reused_bytes,
            "new_bytes": compared.new_bytes,
            "new_files": [{"path": one.path, "size": one.size, "ranges": one.ranges} for one in compared.new_files],
        }
    return told


def warm_lines(root: str, files: Iterable[PlannedFile]) -> list[str]:
    """Lines for `juicefs warmup -f`; raises `ValueError` when a path cannot stand in one."""
    return [write_line(file.path if _is_absolute(file.path) else f"{root}/{file.path}", file) for file in files]


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path


def show_plan(found: ReadPlan, compared: Difference | None, console: Console) -> None:
    """One line per file with the share that is needed, the largest first, and the sum."""
    table = Table(title=escape(found.root), title_justify="left")
    table.add_column("file", overflow="fold")
    for heading in ("planned", "of", "share", "ranges"):
        table.add_column(heading, justify="right")
    largest = sorted(found.files, key=lambda file: -file.planned_bytes)
    for file in largest[:_SHOWN_FILES]:
        ranges = "whole" if file.ranges is None else str(len(file.ranges))
        share = show_share(file.planned_bytes, file.size)
        table.add_row(escape(file.path), show_bytes(file.planned_bytes), show_bytes(file.size), share, ranges)
    if len(largest) > _SHOWN_FILES:
        rest = largest[_SHOWN_FILES:]
        planned, size = sum(file.planned_bytes for file in rest), sum(file.size for file in rest)
        table.add_row(
            f"… and {len(rest)} more files", show_bytes(planned), show_bytes(size), show_share(planned, size), ""
        )
    console.print(table)
    aligned = found.aligned_bytes(DEFAULT_BLOCK_BYTES)
    console.print(
        f"{show_bytes(found.total_bytes)} of {show_bytes(found.whole_bytes)} "
        f"({show_share(found.total_bytes, found.whole_bytes)}); a cache of {show_bytes(DEFAULT_BLOCK_BYTES)} blocks "
        f"fetches {show_bytes(aligned)}. Plan {found.id}",
        highlight=False,
    )
    for note in found.notes:
        console.print(escape(note), highlight=False)
    if compared is not None:
        console.print(
            f"Beside plan {compared.older_digest[:32]}: {show_bytes(compared.reused_bytes)} are the same, "
            f"{show_bytes(compared.new_bytes)} in {len(compared.new_files)} files are new",
            highlight=False,
        )
