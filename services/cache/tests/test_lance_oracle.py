"""The proof of planning, over generated tables: every column kind, file version and history, and the reverse.

Enough: with every byte outside the plan zeroed, the read is the same. Not padded: with
one planned page or payload zeroed, it is not.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pytest
from forebay.cache.adapters.lance_format import TAIL_BYTES, read_layout
from forebay.cache.adapters.lance_ranges import LanceTable
from forebay.cache.adapters.origin import FolderOrigin
from forebay.cache.domain.plan import ByteRange, PlannedFile, merge_ranges
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from . import lance_histories as histories
from . import lance_tables as tables
from .lance_kinds import ENTROPY, KINDS, table_of

VERSIONS: tuple[tables.Version, ...] = ("2.0", "2.1", "2.2")
NO_STRUCT_NULLS = frozenset({"structs_with_nulls"})
"""2.0 does not store which structs are null, and says so."""
ONE = "episode_index = 1"
"""Rows 50 to 100."""
EPISODES = "episode_index >= 4 AND episode_index < 6"
FILTERS = (None, EPISODES, "index % 97 = 3", "episode_index = 104", "index < 0")


def plan_of(table: Path, columns: list[str], rows: str | None, version: int | None = None) -> list[PlannedFile]:
    """The plan, with paths relative to the table even where they lead out of it."""
    files = LanceTable(FolderOrigin(), str(table), version=version).ranges(columns, rows=rows)
    return [PlannedFile(path=os.path.relpath(file.path, table), size=file.size, ranges=file.ranges) for file in files]


def read(table: Path, columns: list[str], rows: str | None, version: int | None = None) -> Any:
    return lance.dataset(str(table), version=version).to_table(columns=columns, filter=rows)


def assert_enough(table: Path, columns: list[str], rows: str | None, version: int | None = None) -> None:
    copy = tables.fresh(table.with_name("zeroed.lance"))
    tables.zero_outside(table, copy, plan_of(table, columns, rows, version))
    assert read(copy, columns, rows, version).equals(read(table, columns, rows, version))


def kinds_of(version: tables.Version) -> list[str]:
    return [kind for kind in KINDS if version != "2.0" or kind not in NO_STRUCT_NULLS]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rows", [None, EPISODES])
def test_every_kind_alone(tmp_path: Path, version: tables.Version, rows: str | None) -> None:
    """Each kind of column, read alone and whole or for some episodes, needs nothing but its plan."""
    table = tmp_path / "frames.lance"
    kinds = kinds_of(version)
    tables.write_pages(table_of(kinds, 400), table, version, rows_per_file=250)
    for kind in kinds:
        assert_enough(table, [kind], rows)


@pytest.mark.parametrize("version", VERSIONS)
def test_single_rows_of_every_kind(tmp_path: Path, version: tables.Version) -> None:
    """Readers that take rows by number, as training does, need nothing but the plan either."""
    table, copy = tmp_path / "frames.lance", tmp_path / "zeroed.lance"
    kinds = kinds_of(version)
    tables.write_pages(table_of(kinds, 200), table, version, rows_per_file=120)
    lance.dataset(str(table)).delete("index % 9 = 4")
    for kind in kinds:
        tables.zero_outside(table, tables.fresh(copy), plan_of(table, [kind], None))
        expected, found = (lance.dataset(str(one)).take([3, 50, 51, 130, 170], columns=[kind]) for one in (table, copy))
        assert found.equals(expected)


@st.composite
def lives(draw: st.DrawFn) -> tuple[tables.Version, bool, list[str], list[histories.Step], str | None, int]:
    version = draw(st.sampled_from(VERSIONS))
    kinds = draw(st.lists(st.sampled_from(kinds_of(version)), min_size=1, max_size=3, unique=True))
    steps = draw(st.lists(st.sampled_from(histories.STEPS), max_size=5))
    return version, draw(st.booleans()), kinds, steps, draw(st.sampled_from(FILTERS)), draw(st.integers(0, 6))


H = histories


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(lives())
@example(("2.2", False, ["texts"], [H.tree_index, H.append, H.delete_some], EPISODES, 0))
@example(("2.2", True, ["lists_of_structs"], [H.update, H.tree_index, H.compact, H.append], EPISODES, 0))
@example(("2.1", True, ["texts", "vectors"], [H.delete_some, H.merge, H.compact], None, 1))
@example(("2.2", False, ["structs", "texts"], [H.add_column, H.rename, H.drop, H.append], None, 2))
@example(("2.1", False, ["long_texts"], [H.tree_index, H.append], EPISODES, 0))
@example(("2.0", False, ["vectors"], [H.delete_all, H.append, H.restore], "index % 97 = 3", 0))
def test_any_history(life: tuple[tables.Version, bool, list[str], list[histories.Step], str | None, int]) -> None:
    """After any history, the latest version and one of the past read the same from their plans alone."""
    version, stable_rows, kinds, steps, rows, back = life
    with TemporaryDirectory() as folder:
        path = Path(folder) / "frames.lance"
        one = histories.Life(path, kinds, version, stable_rows)
        one.write()
        for step in steps:
            one.steps += 1
            step(one)
        latest = one.table.version
        for number in {latest, max(1, latest - back)}:
            names = [name for name in lance.dataset(str(path), version=number).schema.names if name != "index"]
            assert_enough(path, names[:1], rows, number)
            assert_enough(path, names[1:] or names, rows, number)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clone_needs_its_own_files_and_the_sources(tmp_path: Path, version: tables.Version) -> None:
    """A shallow clone, one that was written to since, and a branch need what their plan names, here and there."""
    source, clone = tmp_path / "pool" / "all.lance", tmp_path / "pool" / "v1.lance"
    life = histories.Life(source, ["texts", "vectors"], version, stable_rows=False)
    life.write()
    histories.delete_some(life)
    histories.tree_index(life)
    life.table.shallow_clone(str(clone), life.table.version)
    histories.append(life)
    lance.write_dataset(table_of(["texts", "vectors"], 100, seed=5), clone, mode="append")
    lance.dataset(str(clone)).delete("index % 11 = 2")
    for number in (life.table.version - 1, None):
        expected = read(clone, ["texts"], EPISODES, number)
        files = plan_of(clone, ["texts"], EPISODES, number)
        assert any(file.path.startswith("../all.lance/_versions/") for file in files)
        kept = zero_in_place(clone, tmp_path / "pool", files)
        assert read(clone, ["texts"], EPISODES, number).equals(expected)
        for path, content in kept.items():
            path.write_bytes(content)
    life.table.create_branch("trial", life.table.version)
    branch = source / "tree" / "trial"
    assert_same_in_place(branch, tmp_path / "pool", ["vectors"])


@pytest.mark.parametrize("is_root", [True, False], ids=["a table of its own", "a bare folder"])
def test_files_in_another_base(tmp_path: Path, is_root: bool) -> None:  # noqa: FBT001 a parameter of the test
    """Data files that a table keeps in another declared place are planned there."""
    table, base = tmp_path / "pool" / "frames.lance", tmp_path / "pool" / "fast"
    base.mkdir(parents=True)
    bases = [lance.DatasetBasePath(str(base), name="fast", is_dataset_root=is_root)]
    lance.write_dataset(table_of(["texts", "vectors"], 200), table, initial_bases=bases, target_bases=["fast"])
    lance.write_dataset(table_of(["texts", "vectors"], 200, first=200), table, mode="append")
    lance.dataset(str(table)).delete("index % 5 = 1")
    assert any(file.path.startswith("../fast/") for file in plan_of(table, ["texts"], None))
    assert_same_in_place(table, tmp_path / "pool", ["texts"])


def test_one_leaf_of_a_list_of_structs(tmp_path: Path) -> None:
    """A leaf inside a list is planned without its siblings, with or without the list's items in its name."""
    table = tmp_path / "frames.lance"
    lance.write_dataset(table_of(["lists_of_structs", "embeddings"], 3000), table)
    (whole, leaf, item) = (plan_of(table, [f"lists_of_structs{rest}"], None) for rest in ("", ".label", ".item.label"))
    assert leaf == item
    assert sum(file.planned_bytes for file in leaf) < sum(file.planned_bytes for file in whole)


def assert_same_in_place(table: Path, pool: Path, columns: list[str]) -> None:
    expected = read(table, columns, None)
    zero_in_place(table, pool, plan_of(table, columns, None))
    assert read(table, columns, None).equals(expected)


def zero_in_place(table: Path, pool: Path, files: list[PlannedFile]) -> dict[Path, bytes]:
    """The oracle where copies would not do, because clones name absolute paths. Returns what was there."""
    planned = {(table / file.path).resolve(): file for file in files}
    kept: dict[Path, bytes] = {}
    for path in sorted(one for one in pool.rglob("*") if one.is_file()):
        content = path.read_bytes()
        left = bytearray(len(content))
        file = planned.pop(path, None)
        for start, end in file.spans if file else ():
            left[start:end] = content[start:end]
        kept[path] = content
        path.write_bytes(left)
    assert not planned
    return kept


@pytest.mark.parametrize(("version", "rows"), [("2.0", None), ("2.1", None), ("2.2", None), ("2.1", ONE), ("2.2", ONE)])
def test_no_planned_page_is_padding(tmp_path: Path, version: tables.Version, rows: str | None) -> None:
    """Each page that is planned for a column of its own is read: zeroed, it makes another table or an error."""
    table = tmp_path / "frames.lance"
    kinds = [kind for kind in kinds_of(version) if kind in ENTROPY]
    tables.write_pages(table_of(kinds, 240), table, version, rows_per_file=160)
    trials: list[tuple[Path, list[str], str | None]] = []
    for kind in kinds:
        planned = {file.path: file for file in plan_of(table, [kind], rows)}
        for path, page in pages(table, kind, rows):
            assert all(holds(planned[path], buffer) for buffer in page)
            broken = tmp_path / f"broken-{len(trials)}.lance"
            tables.copy_with_zeros(table, broken, path, page)
            trials.append((broken, [kind], rows))
    untouched = (table, kinds, rows)
    same = tables.same_as(table, [*trials, untouched])
    assert same == [len(trials)], f"nobody reads {[trials[number][1] for number in same[:-1]]}"


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pages_of_other_rows_stay_cold(tmp_path: Path, version: tables.Version) -> None:
    """Of kinds that are picked by row the pages with wanted rows are planned and no other; of narrow ones, which are scanned, all."""
    table = tmp_path / "frames.lance"
    kinds = {"texts": False, "vectors": False, "big_bytes": False, "hashes": False, "floats": True, "timestamps": True}
    tables.write_pages(table_of(list(kinds), 240), table, version, rows_per_file=160)
    for kind, scanned in kinds.items():
        planned = {file.path: file for file in plan_of(table, [kind], ONE)}
        for fragment in lance.dataset(str(table)).get_fragments():
            (file,) = fragment.data_files()
            layout = read_layout(FolderOrigin(), str(table / "data" / file.path))
            key, column = layout.column(1), layout.column(2 + list(kinds).index(kind))
            firsts = [sum(page.rows for page in column.pages[:number]) for number in range(len(column.pages))]
            here = fragment.fragment_id == 0
            picked = [
                page
                for first, page in zip(firsts, column.pages, strict=True)
                if scanned or (here and first < 100 and first + page.rows > 50)
            ]
            assert kind != "big_bytes" or len(picked) < len(column.pages)
            expected = [layout.tail, *(buffer for page in [*key.pages, *picked] for buffer in page.buffers)]
            assert planned[f"data/{file.path}"].spans == merge_ranges(expected)


def holds(file: PlannedFile, buffer: ByteRange) -> bool:
    return merge_ranges([*file.spans, buffer]) == merge_ranges(file.spans)


def pages(table: Path, kind: str, rows: str | None) -> list[tuple[str, tuple[ByteRange, ...]]]:
    """The first pages of one column in each file, or those that hold rows 50 to 100."""
    dataset = lance.dataset(str(table))
    field = next(one for one in dataset.lance_schema.fields() if one.name() == kind)
    wanted = {one.id() for one in below(field)}
    found: list[tuple[str, tuple[ByteRange, ...]]] = []
    for fragment in dataset.get_fragments()[: None if rows is None else 1]:
        for file in fragment.data_files():
            path = f"data/{file.path}"
            layout = read_layout(FolderOrigin(), str(table / path))
            for one, place in zip(file.fields, file.column_indices, strict=True):
                if one in wanted and place >= 0:
                    column = layout.column(place).pages
                    firsts = [sum(page.rows for page in column[:number]) for number in range(len(column))]
                    spans = zip(firsts, column, strict=True)
                    picked = [page for first, page in spans if rows is None or (first < 100 and first + page.rows > 50)]
                    found += [(path, page.buffers) for page in picked[:2] if page.buffers]
    return found


def below(field: Any) -> list[Any]:
    return [field, *(one for child in field.children() for one in below(child))]


def test_planning_reads_manifests_and_tails_only(tmp_path: Path) -> None:
    """Columns cost one manifest and one tail per file, read once; episodes only bytes that are planned too."""
    table = tmp_path / "frames.lance"
    life = histories.Life(table, ["embeddings", "texts"], "2.2", stable_rows=False)
    life.write()
    histories.append(life)
    origin = FolderOrigin()
    opened = LanceTable(origin, str(table))
    planned = opened.ranges(["texts"])
    manifest = next(file.size for file in planned if file.path.endswith(".manifest"))
    files = [file for file in planned if "/data/" in file.path]
    assert origin.read_bytes <= manifest + TAIL_BYTES * len(files)
    opened.ranges(["embeddings"])
    assert origin.read_bytes <= manifest + TAIL_BYTES * len(files)
