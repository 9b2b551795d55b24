"""The planning half of `make bench-cache`: how small plans are, what planning reads, and how it grows with fragments.

A version in LeRobot's Lance layout, at least 1 GB of noise: two cameras, state, action
and what robots record besides. Run alone: `python -m tests.performance.bench_cache_plan`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from forebay.cache.adapters.lance_format import Layouts
from forebay.cache.adapters.lance_ranges import LanceTable
from forebay.cache.adapters.origin import FolderOrigin
from forebay.cache.adapters.version_root import plan_folder

from tests.performance.figures import Figure

Report = Callable[[Figure], None]
FRONT, WRIST = "observation.images.front", "observation.images.wrist"
DATASET_BYTES = 1_050_000_000
FRAMES = 200_000
JOINTS, BESIDES = 14, 256
VIDEO_FILES = 4
"""Per camera."""
FRAGMENTS = (1, 100, 1000)
TRIES = 3
_BATCH = 20_000


def run(report: Report, *, dataset_bytes: int = DATASET_BYTES, fragments: tuple[int, ...] = FRAGMENTS) -> None:
    """Measure and report; needs `dataset_bytes` of room in the folder for temporary files."""
    with tempfile.TemporaryDirectory(prefix="bench-cache-plan-") as folder:
        shares(report, Path(folder) / "v1", dataset_bytes)
        growth(report, Path(folder) / "tables", fragments)


def shares(report: Report, root: Path, dataset_bytes: int) -> None:
    """Planned bytes over all bytes, and what working the plan out read of the origin."""
    write_version(root, dataset_bytes)
    whole = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    wanted = {
        "plan-two-narrow-columns": ("observation.state", "action"),
        "plan-one-of-two-cameras": ("observation.state", "action", FRONT),
    }
    for name, columns in wanted.items():
        origin = FolderOrigin()
        plan = plan_folder(root, columns=columns, origin=origin)
        report(_figure(name, plan.total_bytes / 1e6, "MB planned", "MB of the whole version", whole / 1e6))
        baseline = "kB planned"
        report(_figure(f"{name}-reads", origin.read_bytes / 1e3, "kB read to plan", baseline, plan.total_bytes / 1e3))


def growth(report: Report, folder: Path, fragments: tuple[int, ...]) -> None:
    """Milliseconds to plan two columns of a table, against opening it and listing its files with the library."""
    import lance  # noqa: PLC0415 slow to import, and nothing above needs it

    for count in fragments:
        table = folder / f"{count}.lance"
        rows = 10 * count
        states = _floats(np.random.default_rng(count), rows, JOINTS)
        columns = {
            "observation_state": states,
            "action": states,
            "note": pa.array([str(row) * 9 for row in range(rows)]),
        }
        lance.write_dataset(pa.table(columns), table, max_rows_per_file=10, max_rows_per_group=10)
        ours, theirs = [], []
        for _ in range(TRIES):
            began = time.perf_counter()
            opened = LanceTable(FolderOrigin(), str(table), layouts=Layouts())
            planned = opened.ranges(["observation_state", "action"])
            ours.append(1000 * (time.perf_counter() - began))
            began = time.perf_counter()
            listed = [file for one in lance.dataset(str(table)).get_fragments() for file in one.data_files()]
            theirs.append(1000 * (time.perf_counter() - began))
            assert len(listed) == count == len(planned) - 1
        name = f"plan-time-{count}-fragment{'s' if count > 1 else ''}"
        baseline = "ms for lance to open the table and list its files"
        report(_figure(name, statistics.median(ours), "ms", baseline, statistics.median(theirs)))


def write_version(root: Path, dataset_bytes: int) -> None:
    """Frames and videos of noise, as encoded video and floats of a robot nearly are."""
    import lance  # noqa: PLC0415 slow to import, and nothing above needs it

    frames = max(1000, int(FRAMES * min(1.0, dataset_bytes / DATASET_BYTES)))
    video_bytes = max(100_000, (dataset_bytes - frames * 4 * (2 * JOINTS + BESIDES)) // (2 * VIDEO_FILES))
    (root / "meta").mkdir(parents=True)
    features = {name: {"dtype": "video"} for name in (FRONT, WRIST)}
    info = {"codebase_version": "v3.0", "storage_format": "lance", "features": features, "fps": 30}
    (root / "meta" / "info.json").write_text(json.dumps(info))
    batches = _frames(frames)
    first = next(batches)
    reader = pa.RecordBatchReader.from_batches(first.schema, _again(first, batches))
    lance.write_dataset(reader, root / "frames.lance", data_storage_version="2.2")
    lance.dataset(str(root / "frames.lance")).create_scalar_index("episode_index", "BTREE")
    random = np.random.default_rng(1)
    for number in range(2 * VIDEO_FILES):
        blob: Any = lance.blob_field("video_bytes")
        keys = [("video_key", pa.string()), ("chunk_index", pa.int64()), ("file_index", pa.int64())]
        schema = pa.schema([*(pa.field(name, kind) for name, kind in keys), blob])
        videos: Any = lance.blob_array([random.bytes(video_bytes)])
        row = [pa.array([(FRONT, WRIST)[number % 2]]), pa.array([0]), pa.array([number // 2]), videos]
        lance.write_dataset(
            pa.table(row, schema=schema), root / "videos.lance", mode="append", data_storage_version="2.2"
        )


def _frames(frames: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(7)
    for start in range(0, frames, _BATCH):
        count = min(_BATCH, frames - start)
        index = np.arange(start, start + count)
        columns: dict[str, Any] = {
            "observation_state": _floats(random, count, JOINTS),
            "action": _floats(random, count, JOINTS),
            "observation_besides": _floats(random, count, BESIDES),
            "index": pa.array(index),
            "episode_index": pa.array(index // 500),
            "frame_index": pa.array(index % 500),
            "timestamp": pa.array((index % 500 / 30).astype(np.float32)),
            "task_index": pa.array(np.zeros(count, dtype=np.int64)),
        }
        yield pa.RecordBatch.from_pydict(columns)


def _again(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _floats(random: np.random.Generator, rows: int, width: int) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(random.standard_normal(rows * width, dtype=np.float32)), width)


def _figure(name: str, value: float, unit: str, baseline: str, baseline_value: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, baseline=baseline, baseline_value=baseline_value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--small", action="store_true", help="A few MB, to see that it works.")
    if parser.parse_args().small:
        run(Figure.print, dataset_bytes=20_000_000, fragments=(1, 10, 100))
    else:
        run(Figure.print)


if __name__ == "__main__":
    main()
