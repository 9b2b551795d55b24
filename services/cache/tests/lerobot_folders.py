"""Small LeRobot datasets with real video, for tests of access plan A."""

from __future__ import annotations

import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
FPS = 10
LENGTHS = (30, 45, 25, 40)
Codec = Literal["h264", "mpeg4", "av1"]
_ENCODERS: dict[Codec, str] = {"h264": "libx264", "mpeg4": "mpeg4", "av1": "libsvtav1"}


def write_video(
    path: Path, frames: int, *, codec: Codec = "h264", options: dict[str, str] | None = None, sound: bool = False
) -> None:
    """A video whose every picture is another one; `options` are the muxer's.

    SVT-AV1, run by root, gives the thread that calls it real-time priority and keeps it there. A thread of its own
    ends with it; else every server that this process starts later would inherit the priority and starve the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=1) as encoder:
        encoder.submit(_encode, path, frames, codec, options or {}, sound=sound).result()


def _encode(path: Path, frames: int, codec: Codec, options: dict[str, str], *, sound: bool) -> None:
    random = np.random.default_rng(frames)
    with av.open(str(path), "w", format="mp4", options=options) as container:
        stream: Any = container.add_stream(_ENCODERS[codec], rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        stream.gop_size = 6
        if codec == "h264":
            stream.options = {"bf": "2", "g": "6", "preset": "veryfast"}
        voice: Any = container.add_stream("aac", rate=8000) if sound else None
        for number in range(frames):
            if voice is not None:
                noise = random.integers(-9000, 9000, (1, 8000 // FPS), dtype=np.int16)
                heard = av.AudioFrame.from_ndarray(noise, format="s16", layout="mono")
                heard.sample_rate, heard.pts = 8000, number * 8000 // FPS
                container.mux(voice.encode(heard))
            picture = random.integers(0, 255, (96, 128, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))


def shown(path: Path, start_s: float, stop_s: float) -> list[tuple[float, str]]:
    """(second, digest) of the pictures in a window, decoded as a player does: seek to the key frame, go on from there."""
    found: list[tuple[float, str]] = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        assert stream.time_base is not None
        container.seek(int((start_s + 0.25 / FPS) / stream.time_base), stream=stream)
        for frame in container.decode(stream):
            assert frame.time is not None
            if frame.time >= stop_s - 0.5 / FPS:
                break
            if frame.time >= start_s - 0.5 / FPS:
                found.append((round(frame.time, 4), hashlib.sha256(frame.to_ndarray().tobytes()).hexdigest()))
    return found


def frame_rows(episodes: list[int], first: int) -> pa.Table:
    """Rows of some episodes, with a vector, a list and an image column that nobody asks for."""
    random = np.random.default_rng(first)
    index = np.concatenate([np.full(LENGTHS[episode], episode) for episode in episodes])
    frame = np.concatenate([np.arange(LENGTHS[episode]) for episode in episodes])
    rows = len(index)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random.random(rows * 7, dtype=np.float32)), 7)
    pictures = [{"bytes": random.bytes(2000), "path": None} for _ in range(rows)]
    return pa.table(
        {
            "observation.state": vectors,
            "observation.image": pa.array(pictures, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "action": pa.array([random.random(7).tolist() for _ in range(rows)], pa.list_(pa.float32())),
            "timestamp": pa.array((frame / FPS).astype(np.float32)),
            "frame_index": frame,
            "episode_index": index,
            "index": np.arange(first, first + rows),
            "task_index": np.zeros(rows, dtype=np.int64),
        }
    )


def _info(root: Path, version: str, **paths: str) -> None:
    features: dict[str, Any] = {name: {"dtype": "float32", "shape": [7]} for name in ("observation.state", "action")}
    features["observation.image"] = {"dtype": "image", "shape": [10, 10, 3]}
    features |= {
        name: {"dtype": "int64", "shape": [1]} for name in ("frame_index", "episode_index", "index", "task_index")
    }
    features |= {key: {"dtype": "video", "shape": [96, 128, 3]} for key in (FRONT, WRIST)}
    info = {
        "codebase_version": version,
        "fps": FPS,
        "total_episodes": len(LENGTHS),
        "total_frames": sum(LENGTHS),
        "chunks_size": 1000,
        "features": features,
        **paths,
    }
    (root / "meta").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    (root / "meta" / "stats.json").write_text("{}")


def write_v3(
    root: Path, *, codec: Codec = "h264", options: dict[str, str] | None = None, statistics: bool = True
) -> Path:
    """Episodes 0 to 2 in one data file with a row group each, 3 in another; front in one mp4, wrist in two."""
    _info(
        root,
        "v3.0",
        data_path="data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        video_path="videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    )
    data = root / "data" / "chunk-000"
    data.mkdir(parents=True)
    with pq.ParquetWriter(
        data / "file-000.parquet", frame_rows([0], 0).schema, write_statistics=statistics, write_page_index=statistics
    ) as writer:
        for episode in (0, 1, 2):
            writer.write_table(frame_rows([episode], sum(LENGTHS[:episode])))
    pq.write_table(frame_rows([3], sum(LENGTHS[:3])), data / "file-001.parquet")
    starts = [sum(LENGTHS[:episode]) for episode in range(4)]
    wrist = [0, 0, 1, 1]
    wrist_starts = [0, LENGTHS[0], 0, LENGTHS[2]]
    episodes: dict[str, Any] = {
        "episode_index": list(range(4)),
        "length": list(LENGTHS),
        "data/chunk_index": [0] * 4,
        "data/file_index": [0, 0, 0, 1],
    }
    for key, files, at in ((FRONT, [0] * 4, starts), (WRIST, wrist, wrist_starts)):
        episodes[f"videos/{key}/chunk_index"] = [0] * 4
        episodes[f"videos/{key}/file_index"] = files
        episodes[f"videos/{key}/from_timestamp"] = [start / FPS for start in at]
        episodes[f"videos/{key}/to_timestamp"] = [
            (start + length) / FPS for start, length in zip(at, LENGTHS, strict=True)
        ]
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    pq.write_table(pa.table(episodes), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    write_video(root / "videos" / FRONT / "chunk-000" / "file-000.mp4", sum(LENGTHS), codec=codec, options=options)
    for file in (0, 1):
        frames = sum(LENGTHS[2 * file : 2 * file + 2])
        write_video(root / "videos" / WRIST / "chunk-000" / f"file-00{file}.mp4", frames, codec=codec, options=options)
    return root


def write_v2(root: Path, version: str) -> Path:
    """One Parquet and one mp4 per episode and camera; 2 episodes to a chunk."""
    _info(
        root,
        version,
        data_path="data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        video_path="videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    )
    info = json.loads((root / "meta" / "info.json").read_text()) | {"chunks_size": 2}
    (root / "meta" / "info.json").write_text(json.dumps(info))
    for episode, length in enumerate(LENGTHS):
        chunk = f"chunk-{episode // 2:03d}"
        (root / "data" / chunk).mkdir(parents=True, exist_ok=True)
        pq.write_table(
            frame_rows([episode], sum(LENGTHS[:episode])), root / "data" / chunk / f"episode_{episode:06d}.parquet"
        )
        for key in (FRONT, WRIST):
            write_video(root / "videos" / chunk / key / f"episode_{episode:06d}.mp4", length, codec="mpeg4")
    return root


def copied(root: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(root, target))
