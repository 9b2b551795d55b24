"""Makes a large LeRobot v3.0 dataset out of a small one: its episodes again and again, numbered on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_PER_CHUNK = 1000


def size_of(folder: Path) -> int:
    """Bytes of every file."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def replicate(source: Path, target: Path, size: int) -> None:
    """Write copies of `source` into `target` until they take `size` bytes; at least one copy."""
    copies = max(1, round(size / size_of(source)))
    _Replicas(source, target).write(copies)


class _Replicas:
    """One dataset on its way into another folder, again and again."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target
        self._info: dict[str, Any] = json.loads((source / "meta/info.json").read_text())
        cameras = [key for key, value in self._info["features"].items() if value["dtype"] == "video"]
        self._kinds = ["data", *(f"videos/{camera}" for camera in cameras)]
        self._numbers = {kind: count() for kind in self._kinds}

    def write(self, copies: int) -> None:
        info, episodes = self._info, self._target / "meta/episodes/chunk-000/file-000.parquet"
        shutil.copytree(self._source / "meta", self._target / "meta", ignore=shutil.ignore_patterns("episodes"))
        tables = [pq.read_table(path) for path in sorted((self._source / "meta/episodes").rglob("*.parquet"))]
        entries = pa.concat_tables(tables)
        rows = [row for number in range(copies) for row in self._copy(entries.to_pylist(), number)]
        episodes.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=entries.schema), episodes)
        info["splits"] = {"train": f"0:{info['total_episodes'] * copies}"}
        info |= {name: info[name] * copies for name in ("total_episodes", "total_frames")}
        (self._target / "meta/info.json").write_text(json.dumps(info))
        (self._target / "meta/stats.json").unlink(missing_ok=True)

    def _copy(self, entries: list[dict[str, Any]], number: int) -> Iterator[dict[str, Any]]:
        """One more copy of every file; yields its entries of the episode table."""
        placed: dict[tuple[str, int, int], tuple[int, int]] = {}
        shifts = {
            "episode_index": number * self._info["total_episodes"],
            "index": number * self._info["total_frames"],
        }
        for row in entries:
            row["episode_index"] += shifts["episode_index"]
            for end in ("dataset_from_index", "dataset_to_index"):
                row[end] += shifts["index"]
            for kind in self._kinds:
                old = (kind, row[f"{kind}/chunk_index"], row[f"{kind}/file_index"])
                if old not in placed:
                    fresh = next(self._numbers[kind])
                    placed[old] = (fresh // _PER_CHUNK, fresh % _PER_CHUNK)
                    self._write(old, placed[old], shifts)
                row[f"{kind}/chunk_index"], row[f"{kind}/file_index"] = placed[old]
            yield row

    def _write(self, old: tuple[str, int, int], new: tuple[int, int], shifts: dict[str, int]) -> None:
        kind, chunk, file = old
        template = self._info["data_path"] if kind == "data" else self._info["video_path"]
        camera = kind.partition("/")[2]
        before = self._source / template.format(chunk_index=chunk, file_index=file, video_key=camera)
        after = self._target / template.format(chunk_index=new[0], file_index=new[1], video_key=camera)
        after.parent.mkdir(parents=True, exist_ok=True)
        if kind != "data":
            shutil.copyfile(before, after)
            return
        table = pq.read_table(before)
        for name, shift in shifts.items():
            at = table.column_names.index(name)
            field = table.schema.field(at)
            table = table.set_column(at, field, pc.cast(pc.add(table[name], shift), field.type))
        pq.write_table(table, after)
