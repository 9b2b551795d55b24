"""What happens to a table in its life, as steps that a generated history is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance

from .lance_kinds import table_of
from .lance_tables import Version

ROWS = 300


@dataclass(slots=True)
class Life:
    """A table on its way through a history."""

    path: Path
    kinds: list[str]
    version: Version
    stable_rows: bool
    steps: int = 0
    columns: list[str] = field(default_factory=list)

    def write(self, mode: str = "create") -> None:
        self.steps += 1
        rows = table_of(self.kinds, ROWS, seed=self.steps, first=ROWS * self.steps)
        options: dict[str, Any] = {} if mode == "append" else {"data_storage_version": self.version}
        options |= {"enable_stable_row_ids": True} if self.stable_rows else {}
        lance.write_dataset(rows, self.path, mode=mode, max_rows_per_file=200, **options)
        self.columns = [*(["index", "episode_index"] if mode != "append" else []), *self.kinds]

    @property
    def table(self) -> Any:
        return lance.dataset(str(self.path))


def append(life: Life) -> None:
    """Fragments with all columns; what was added or renamed before is null in them."""
    there = set(life.table.schema.names)
    rows = table_of([kind for kind in life.kinds if kind in there], ROWS, seed=life.steps, first=ROWS * life.steps)
    if there == set(rows.column_names):
        lance.write_dataset(rows, life.path, mode="append", max_rows_per_file=200)


def delete_some(life: Life) -> None:
    life.table.delete(f"index % 7 = {life.steps % 7}")


def delete_most(life: Life) -> None:
    life.table.delete("index % 50 <> 1")


def delete_all(life: Life) -> None:
    life.table.delete("index >= 0")


def update(life: Life) -> None:
    life.table.update({"episode_index": "episode_index + 100"}, where="index % 5 = 0")


def add_column(life: Life) -> None:
    life.table.add_columns({f"added_{life.steps}": "index * 2 + 1"})


def rename(life: Life) -> None:
    for kind in life.kinds[:1]:
        if kind in life.table.schema.names:
            life.table.alter_columns({"path": kind, "name": f"renamed_{kind}"})


def drop(life: Life) -> None:
    for kind in life.kinds[1:2]:
        if kind in life.table.schema.names:
            life.table.drop_columns([kind])


def compact(life: Life) -> None:
    life.table.optimize.compact_files()


def overwrite(life: Life) -> None:
    life.write("overwrite")


def tree_index(life: Life) -> None:
    life.table.create_scalar_index("episode_index", "BTREE", replace=True)


def bitmap_index(life: Life) -> None:
    life.table.create_scalar_index("episode_index", "BITMAP", replace=True)


def restore(life: Life) -> None:
    first: Any = lance.dataset(str(life.path), version=1)
    first.restore()


def merge(life: Life) -> None:
    """Some rows are replaced by key, some are new."""
    table = life.table
    if {"index", "episode_index", *life.kinds} == set(table.schema.names):
        new = table_of(life.kinds, 60, seed=99, first=ROWS * life.steps + 250)
        table.merge_insert("index").when_matched_update_all().when_not_matched_insert_all().execute(new)


Step = Callable[[Life], None]
STEPS: tuple[Step, ...] = (
    append,
    delete_some,
    delete_most,
    delete_all,
    update,
    add_column,
    rename,
    drop,
    compact,
    overwrite,
    tree_index,
    bitmap_index,
    restore,
    merge,
)
