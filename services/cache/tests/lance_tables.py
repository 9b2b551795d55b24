"""Small Lance tables of every shape that planning must get right, and the zero-outside oracle.

Used by `test_lance_ranges.py` and `test_version_root.py`; `python lance_tables.py TABLE COLUMN…`
reads a table in a process of its own, because a broken page may take the process down.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import lance
import numpy as np
import pyarrow as pa
from forebay.cache.domain.plan import PlannedFile

ROWS = 600
Version = Literal["2.0", "2.1", "2.2"]


def vectors(random: np.random.Generator, rows: int, width: int) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(random.random(rows * width, dtype=np.float32)), width)


def frame_table(rows: int = ROWS, first: int = 0) -> pa.Table:
    """One column per kind of encoding."""
    random = np.random.default_rng(first)
    index = np.arange(first, first + rows)
    return pa.table(
        {
            "index": index,
            "episode_index": index // 100,
            "observation_state": vectors(random, rows, 14),
            "action": vectors(random, rows, 7),
            "note": [f"frame {number} {random.random()}" for number in index],
            "blob": pa.array([random.bytes(300) for _ in index], pa.large_binary()),
            "lengths": [list(range(number % 5)) for number in index],
            "boxes": [[{"x": float(number), "label": f"b{number % 7}"}] * (number % 3) for number in index],
            "pose": [{"position": {"x": random.random(), "y": 1.0}, "frame": f"base{number % 3}"} for number in index],
            "maybe": [None if number % 3 else int(number) for number in index],
        }
    )


def blob_table(sizes: Iterable[int], keys: Iterable[str]) -> pa.Table:
    """Videos in the blob encoding, one row per size."""
    random = np.random.default_rng(1)
    names = list(keys)
    values = [random.bytes(size) if size >= 0 else None for size in sizes]
    blob: Any = lance.blob_field("video_bytes")
    schema = pa.schema(
        [
            pa.field("video_key", pa.string()),
            pa.field("chunk_index", pa.int64()),
            pa.field("file_index", pa.int64()),
            pa.field("kf_positions", pa.list_(pa.int64())),
            blob,
        ]
    )
    count = len(values)
    return pa.table(
        {
            "video_key": names,
            "chunk_index": [0] * count,
            "file_index": [names[:row].count(names[row]) for row in range(count)],
            "kf_positions": [list(range(row + 3)) for row in range(count)],
            "video_bytes": lance.blob_array(values),
        },
        schema=schema,
    )


def write_pages(table: pa.Table, path: Path, version: Version, *, rows_per_file: int) -> None:
    """Write with many small pages in each column, as large tables have them."""
    starts = range(0, table.num_rows, 40)
    # Copies and no slices: the writer of 2.0 does not take slices of every kind.
    copies = [table.take(list(range(start, min(start + 40, table.num_rows)))) for start in starts]
    batches = pa.RecordBatchReader.from_batches(table.schema, [batch for one in copies for batch in one.to_batches()])
    lance.write_dataset(
        batches, path, data_storage_version=version, max_rows_per_file=rows_per_file, data_cache_bytes=10_000
    )


def zero_outside(source: Path, copy: Path, files: Iterable[PlannedFile]) -> int:
    """Copy a tree with every unplanned byte zeroed; returns how many bytes that were.

    Files that the plan does not name at all are zeroed whole: their names and sizes
    stay, because listings are not part of a plan.
    """
    planned = {str(source / file.path): file for file in files}
    zeroed = 0
    for path in sorted(one for one in source.rglob("*") if one.is_file()):
        target = copy / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        kept = bytearray(len(content))
        file = planned.pop(str(path), None)
        for start, end in file.spans if file else ():
            kept[start:end] = content[start:end]
        zeroed += int(np.count_nonzero(np.frombuffer(content, np.uint8) != np.frombuffer(kept, np.uint8)))
        target.write_bytes(kept)
    assert not planned, f"planned but not there: {sorted(planned)}"
    return zeroed


def read_columns(table: Path, columns: list[str], *, rows: str | None = None) -> Any:
    """The columns as a job would read them, from a dataset opened afresh."""
    return lance.dataset(str(table)).to_table(columns=columns, filter=rows)


def read_videos(table: Path, rows: str | None = None) -> list[tuple[int, str]]:
    """(row, sha256) of every video payload."""
    dataset = lance.dataset(str(table))
    scanner = dataset.scanner(columns=[], filter=rows, with_row_address=True)
    addresses: list[Any] = scanner.to_table().column("_rowaddr").to_pylist()
    found = dataset.read_blobs("video_bytes", addresses=addresses, preserve_order=True)
    return [(address, hashlib.sha256(content or b"").hexdigest()) for address, content in found]


def fresh(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    return path


Change = Callable[[Path, Version], None]


def plain(path: Path, version: Version) -> None:
    lance.write_dataset(frame_table(), path, data_storage_version=version)


def appended(path: Path, version: Version) -> None:
    plain(path, version)
    lance.write_dataset(frame_table(200, first=ROWS), path, mode="append")


def column_added(path: Path, version: Version) -> None:
    plain(path, version)
    lance.dataset(str(path)).add_columns({"reward": "index * 2"})


def rows_deleted(path: Path, version: Version) -> None:
    plain(path, version)
    lance.dataset(str(path)).delete("index % 10 = 3 OR index < 50")


def many_pages(path: Path, version: Version) -> None:
    """Wide enough that one column spreads over several pages."""
    lance.write_dataset(frame_table(4000), path, data_storage_version=version, max_rows_per_group=500)


def copy_with_zeros(source: Path, copy: Path, path: str, ranges: Iterable[tuple[int, int]]) -> None:
    """The same table with some bytes of one file zeroed; the other files are the same files."""
    shutil.copytree(source, copy, copy_function=os.link)
    content = bytearray((source / path).read_bytes())
    for start, end in ranges:
        content[start:end] = bytes(end - start)
    (copy / path).unlink()
    (copy / path).write_bytes(content)


def same_as(original: Path, trials: list[tuple[Path, list[str], str | None]]) -> list[int]:
    """Which trials read like the original. Reads in other processes, because a broken page may take one down."""
    same: list[int] = []
    done = 0
    while done < len(trials):
        jobs = [[str(original), str(path), columns, rows] for path, columns, rows in trials[done:]]
        reader = subprocess.run(
            [sys.executable, __file__], input=json.dumps(jobs), check=False, capture_output=True, text=True
        )
        answers = reader.stdout.split()
        same += [done + number for number, answer in enumerate(answers) if answer == "same"]
        # The trial that nobody answered for took the process down: it is not the same.
        done += len(answers) + (0 if len(answers) == len(jobs) else 1)
    return same


@cache
def _original(path: str, columns: tuple[str, ...], rows: str | None) -> Any:
    return read_columns(Path(path), list(columns), rows=rows)


def _answer(original: str, copy: str, columns: list[str], rows: str | None) -> str:
    expected = _original(original, tuple(columns), rows)
    try:
        return "same" if read_columns(Path(copy), columns, rows=rows).equals(expected) else "other"
    except BaseException as error:  # noqa: BLE001 a panic of the library is an answer too
        return type(error).__name__


if __name__ == "__main__":
    for job in json.load(sys.stdin):
        sys.stdout.write(f"{_answer(*job)}\n")
        sys.stdout.flush()
    os._exit(0)
