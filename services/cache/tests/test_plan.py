"""Plans as values: ranges merge and align exactly, and the digest is the plan's identity."""

from __future__ import annotations

import itertools
import json

import pytest
from forebay.cache.domain.plan import (
    ByteRange,
    PlannedFile,
    ReadPlan,
    align_ranges,
    merge_ranges,
    plan_from_json,
    planned_file,
    range_bytes,
    unite_files,
)
from forebay.cache.domain.plan_difference import difference
from hypothesis import given
from hypothesis import strategies as st

SIZE = 400
ranges = st.lists(
    st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: ByteRange(min(pair), max(pair))), max_size=12
)
blocks = st.integers(1, 130)


def covered(parts: list[ByteRange] | tuple[ByteRange, ...]) -> set[int]:
    return {byte for start, end in parts for byte in range(start, end)}


@given(ranges)
def test_merging_keeps_every_byte_and_no_other(parts: list[ByteRange]) -> None:
    """Merged ranges hold the same bytes, sorted, with a gap between each two."""
    merged = merge_ranges(parts)
    assert covered(merged) == covered(parts)
    assert range_bytes(merged) == len(covered(parts))
    assert all(before.end < after.start for before, after in itertools.pairwise(merged))


@given(ranges, blocks)
def test_alignment_adds_the_rest_of_touched_blocks_only(parts: list[ByteRange], block: int) -> None:
    """Aligned ranges are exactly the blocks that hold a planned byte."""
    aligned = align_ranges(parts, block_bytes=block, size=SIZE)
    touched = {byte // block for byte in covered(parts)}
    assert covered(aligned) == {byte for byte in range(SIZE) if byte // block in touched}


@given(ranges, blocks)
def test_alignment_again_changes_nothing(parts: list[ByteRange], block: int) -> None:
    """Aligning what is aligned is the same."""
    once = align_ranges(parts, block_bytes=block, size=SIZE)
    assert align_ranges(once, block_bytes=block, size=SIZE) == once


@given(ranges, ranges)
def test_uniting_files_is_the_union(one: list[ByteRange], two: list[ByteRange]) -> None:
    """Two entries of one path become one with the bytes of both."""
    (united,) = unite_files([planned_file("a", SIZE, one), planned_file("a", SIZE, two)])
    assert covered(united.spans) == covered([*one, *two])


@given(st.permutations(["a", "b", "c"]), ranges)
def test_a_stored_plan_is_the_plan(order: list[str], parts: list[ByteRange]) -> None:
    """JSON and back gives an equal plan, and the order of discovery does not matter."""
    files = unite_files(planned_file(name, SIZE, parts) for name in order)
    plan = ReadPlan(root="/pool/v1", files=files, whole_bytes=9 * SIZE, columns=("state",), episodes=(0, 3))
    again = plan_from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert again.digest == plan.digest
    assert again.id == plan.id


def test_the_digest_follows_bytes_not_spelling() -> None:
    """Neither columns nor place are part of the digest; size, ranges and the version's digest are. A warm-up has a place."""
    file = planned_file("data/x", 10, [ByteRange(0, 4)])
    plan = ReadPlan(root="/pool/v1", files=(file,), whole_bytes=10, columns=("observation.state",))
    same = ReadPlan(root="/pool/v1", files=(file,), whole_bytes=10, columns=("observation_state",))
    elsewhere = ReadPlan(root="/pool/v2", files=(file,), whole_bytes=10)
    others = [
        ReadPlan(root="/pool/v1", files=(planned_file("data/x", 10, [ByteRange(0, 5)]),), whole_bytes=10),
        ReadPlan(root="/pool/v1", files=(file,), whole_bytes=10, source="ab"),
    ]
    assert plan.digest == same.digest
    assert len({plan.digest, *(other.digest for other in others)}) == 3
    assert (elsewhere.digest, elsewhere.id == plan.id) == (plan.digest, False)


@given(ranges, ranges)
def test_what_is_new_and_what_is_not_make_the_plan(old: list[ByteRange], new: list[ByteRange]) -> None:
    """The new ranges are exactly the bytes that the older plan lacks."""
    older, newer = (
        ReadPlan(root="/pool/v1", files=(planned_file("data/x", SIZE, one),), whole_bytes=1) for one in (old, new)
    )
    found = difference(newer, older)
    fresh = [span for file in found.new_files for span in file.spans]
    assert covered(fresh) == covered(new) - covered(old)
    assert found.reused_bytes == len(covered(new) & covered(old))


def test_what_is_the_same_in_another_root() -> None:
    """Lance names a data file once and for all; `meta/info.json` is written anew for every version."""
    names = (
        "frames.lance/data/0011.lance",
        "videos.lance/data/0011/1000.blob",
        "meta/info.json",
        "data/chunk-000/file-000.parquet",
    )
    older, newer = (
        ReadPlan(root=root, files=unite_files(planned_file(name, 100) for name in names), whole_bytes=1)
        for root in ("/pool/v1", "/pool/v2")
    )
    assert [file.path for file in difference(newer, older).new_files] == [names[3], names[2]]
    assert difference(older, older).new_files == ()


def test_an_etag_is_part_of_the_plan_where_there_is_one() -> None:
    """An object that was exchanged for another of its size makes another plan; files of a disk have no etag."""
    plain, named = (PlannedFile(path="a", size=9, ranges=None, etag=etag) for etag in (None, "d41d8"))
    one, two = (ReadPlan(root="s3://b/x", files=(file,), whole_bytes=9) for file in (plain, named))
    assert one.digest != two.digest
    assert plan_from_json(two.to_json()) == two
    assert "etag" not in one.to_json()["files"][0]


def test_a_changed_stored_plan_is_refused() -> None:
    """A plan file that someone edited does not pass for the plan."""
    stored = ReadPlan(root="/r", files=(planned_file("a", 10),), whole_bytes=10).to_json()
    stored["files"][0]["size"] = 11
    with pytest.raises(ValueError, match="plan again"):
        plan_from_json(stored)


def test_ranges_beyond_the_file_are_refused() -> None:
    """A range that ends after the file is a bug of the planner and is not kept."""
    with pytest.raises(ValueError, match="has 5 bytes"):
        planned_file("a", 5, [ByteRange(0, 6)])


def test_a_block_has_a_size() -> None:
    """Blocks of nothing make no sense."""
    with pytest.raises(ValueError, match="at least one byte"):
        align_ranges([], block_bytes=0, size=1)
