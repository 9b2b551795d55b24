"""Hostile folders: no exception, no hang, nothing opened outside the folder, bounded memory.

The short runs are the same each time; `pytest --hypothesis-profile=long` tries others.
"""

from __future__ import annotations

import json
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.adapters.decoders import Decoders
from forebay.ingest.inspection import inspect
from forebay.runtime.processes import Limits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .opened_files import Canary
from .valid_datasets import EPISODES, Shape, build

LIMITS = Limits(memory_bytes=600 << 20, silent_s=20, cpu_s=40)
LONG = settings().max_examples > 100
RUN = settings(
    max_examples=settings().max_examples if LONG else 8,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=list(HealthCheck),
)
CAMERA = "observation.images.cam0"
VERSIONS = ("v3.0", "v2.1")
MAX_GROWTH = 300 << 20

EVIL: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**53, 2**63, 10**30, 10**400, [10**400] * 3, 0.5, 1e308, -0.0, float("nan"), float("inf"), "", "\x00", "a" * 5000,
    "../outside/secret.mp4", "{outside}/secret.mp4", "../outside", "..", "videos", "\u202e\ud800", [], {}, [[]] * 9, [2**40],
    "../outside/{chunk_index}{file_index}.parquet", "{outside}/{chunk_index}/{file_index}/{video_key}.mp4",
    "data/chunk-{chunk_index:03d}/file-{file_index:09d}.m3u8", "data/{chunk_index.__class__}/{file_index}",
    "videos/{video_key}/chunk-{chunk_index:03d}/../../../../outside/file-{file_index:03d}.mp4",
)  # fmt: skip
"""Values that something outside may put anywhere; {outside} stands for the canary's folder."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Valid datasets, and the canary's folder beside them."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for version in VERSIONS:
            shape = Shape(
                lengths=(9, 8),
                rate="30",
                data=(0, 1),
                videos={CAMERA: (0, 1)},
                tasks=(0, 1),
                width=3,
                seed=1,
                version=version,
            )
            build(place / version, shape)
        outside = place / "outside"
        outside.mkdir()
        (outside / "secret.mp4").write_bytes(next((place / "v3.0").rglob("*.mp4")).read_bytes())
        (outside / "secret.parquet").write_bytes((place / "v3.0" / EPISODES).read_bytes())
        yield place


def _answers(place: Path, root: Path, canary: Canary) -> None:
    """What must hold whatever lies in `root`."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = inspect(root, decoders=Decoders(limits=LIMITS)).report
    text = json.dumps(report.to_json(), allow_nan=False)
    assert not canary.touched()
    assert canary.opened_by_python() == []
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MAX_GROWTH
    assert len(text) < 10_000_000
    assert all(breach.rule.id.startswith("LR-") for breach in report.breaches)


def _copy(place: Path, version: str, folder: str) -> Path:
    return Path(shutil.copytree(place / version, Path(folder) / "dataset"))


def _damage(data: st.DataObject, content: bytes, other: bytes) -> bytes:
    """A few bit flips, cuts, repeats, splices or fillings."""
    for _ in range(data.draw(st.integers(1, 4))):
        if not content:
            return content
        at = data.draw(st.integers(0, len(content) - 1))
        end = min(len(content), at + data.draw(st.sampled_from([1, 4, 16, 200, 5000])))
        match data.draw(st.sampled_from(["flip", "cut", "remove", "repeat", "splice", "fill", "number"])):
            case "flip":
                content = content[:at] + bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))]) + content[at + 1 :]
            case "cut":
                content = content[:at]
            case "remove":
                content = content[:at] + content[end:]
            case "repeat":
                content = content[:end] + content[at:end] * data.draw(st.integers(1, 3)) + content[end:]
            case "splice":
                content = content[:at] + other[at:end] + content[end:]
            case "fill":
                content = content[:at] + data.draw(st.sampled_from([b"\x00", b"\xff"])) * (end - at) + content[end:]
            case "number":
                value = data.draw(st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**63]))
                content = content[:at] + value.to_bytes(8, "big") + content[at + 8 :]
    return content


@pytest.mark.parametrize("kind", ["*.parquet", "meta/*", "*.mp4"])
@RUN
@given(data=st.data())
def test_damaged_bytes(place: Path, kind: str, data: st.DataObject) -> None:
    """Bytes of one file are damaged."""
    version = data.draw(st.sampled_from(VERSIONS))
    with tempfile.TemporaryDirectory(dir=place) as folder, Canary(place / "outside") as canary:
        root = _copy(place, version, folder)
        names = sorted(p for p in root.rglob("*") if p.is_file() and p.relative_to(root).match(kind))
        path, other = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        path.write_bytes(_damage(data, path.read_bytes(), other.read_bytes()))
        _answers(place, root, canary)


def _evil(data: st.DataObject, place: Path) -> Any:
    value = data.draw(st.sampled_from(EVIL))
    return value.replace("{outside}", str(place / "outside")) if isinstance(value, str) else value


def _replace_somewhere(data: st.DataObject, document: Any, place: Path) -> Any:
    """Put an evil value in one place of a JSON document."""
    if isinstance(document, dict) and document and data.draw(st.integers(0, 5)):
        key = data.draw(st.sampled_from(sorted(document)))
        if not data.draw(st.integers(0, 9)):
            return {**document, str(_evil(data, place)): document[key]}
        return {**document, key: _replace_somewhere(data, document[key], place)}
    if isinstance(document, list) and document and data.draw(st.integers(0, 3)):
        at = data.draw(st.integers(0, len(document) - 1))
        return [*document[:at], _replace_somewhere(data, document[at], place), *document[at + 1 :]]
    return _evil(data, place)


@RUN
@given(data=st.data())
def test_evil_values_in_json(place: Path, data: st.DataObject) -> None:
    """Numbers, texts and templates of info.json and of JSON lines are anything."""
    version = data.draw(st.sampled_from(VERSIONS))
    with tempfile.TemporaryDirectory(dir=place) as folder, Canary(place / "outside") as canary:
        root = _copy(place, version, folder)
        path = data.draw(
            st.sampled_from(sorted(p for p in (root / "meta").iterdir() if p.suffix in {".json", ".jsonl"}))
        )
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for _ in range(data.draw(st.integers(1, 2))):
            at = data.draw(st.integers(0, len(lines) - 1))
            lines[at] = json.dumps(_replace_somewhere(data, json.loads(lines[at]), place))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
        _answers(place, root, canary)


@RUN
@given(data=st.data())
def test_evil_values_in_tables(place: Path, data: st.DataObject) -> None:
    """Cells of the parquet tables are anything, in any column type."""
    with tempfile.TemporaryDirectory(dir=place) as folder, Canary(place / "outside") as canary:
        root = _copy(place, "v3.0", folder)
        path = data.draw(st.sampled_from(sorted(root.rglob("*.parquet"))))
        table = pq.read_table(path)
        column = data.draw(st.sampled_from(table.column_names))
        values = table[column].to_pylist()
        value = _evil(data, place)
        one = data.draw(st.booleans())
        changed = [value if not one or number == 0 else old for number, old in enumerate(values)]
        try:
            made = pa.array(changed)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            made = pa.array([json.dumps(value)] * len(values))
        pq.write_table(table.set_column(table.column_names.index(column), column, made), path)
        _answers(place, root, canary)


PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{outside}/secret.mp4\n#EXT-X-ENDLIST\n"
CONCAT = "ffconcat version 1.0\nfile '{outside}/secret.mp4'\n"


@pytest.mark.parametrize("suffix", [".mp4", ".m3u8", ".ffconcat", ".txt"])
@pytest.mark.parametrize("content", [PLAYLIST, CONCAT], ids=["playlist", "concat"])
def test_a_playlist_in_place_of_a_video_opens_nothing(place: Path, suffix: str, content: str) -> None:
    """FFmpeg knows formats that name other files; the content never chooses the format."""
    with tempfile.TemporaryDirectory(dir=place) as folder, Canary(place / "outside") as canary:
        root = _copy(place, "v3.0", folder)
        document = json.loads((root / "meta/info.json").read_text())
        document["video_path"] = document["video_path"].replace(".mp4", suffix)
        (root / "meta/info.json").write_text(json.dumps(document))
        for video in sorted(root.rglob("*.mp4")):
            video.unlink()
            video.with_suffix(suffix).write_text(content.replace("{outside}", str(place / "outside")))
        _answers(place, root, canary)


def test_the_canary_sings(place: Path) -> None:
    """The watch itself works: an open by any process is seen."""
    with Canary(place / "outside") as canary:
        assert not canary.touched()
        (place / "outside/secret.mp4").read_bytes()
        assert canary.touched()
        assert canary.opened_by_python() == [str(place / "outside/secret.mp4")]
