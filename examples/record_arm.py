"""Records a LeRobot v3.0 dataset: a simulated two-joint arm reaches for targets.

The arm obeys the rigid-body equations of two links (mass matrix, Coriolis,
damping, gravity when asked for, torque limits), integrated with RK4 at 500 Hz.
An expert that knows the inverse kinematics commands joint velocities; a
computed-torque controller turns them into torques. A camera above the arm is
rendered with numpy and encoded to H.264.

One episode is broken on purpose: a dropped packet leaves NaN in one action.

    python examples/record_arm.py /tmp/reach --episodes 24 --seed 7
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float32]
Pair = tuple[float, float]
Motion = tuple[float, float, float, float]
"""Two joint angles and two joint velocities."""
Image = npt.NDArray[np.uint8]

FPS = 30
STEPS_PER_FRAME = 17
"""Integration steps between two frames: about 500 Hz."""
SIDE = 128
"""Width and height of the camera's picture in pixels."""
CAMERA = "observation.images.top"
TASK = "Reach the red target."
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
TARGET_SECONDS = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Two uniform links in a plane; SI units."""

    length: tuple[float, float] = (0.30, 0.25)
    mass: tuple[float, float] = (1.2, 0.8)
    damping: float = 0.08
    torque_limit: tuple[float, float] = (6.0, 3.0)
    gravity: float = 0.0
    """0 for an arm on a table; 9.81 for one that moves in a vertical plane."""

    def inertia(self, bend: float) -> tuple[float, float, float]:
        """Entries (1,1), (1,2) and (2,2) of the mass matrix at an elbow angle."""
        (l1, l2), (m1, m2) = self.length, self.mass
        coupling = m2 * l1 * l2 / 2 * math.cos(bend)
        second = m2 * l2**2 / 3
        return m1 * l1**2 / 3 + m2 * l1**2 + second + 2 * coupling, second + coupling, second

    def bias(self, x: Motion) -> Pair:
        """Coriolis and centrifugal terms, damping, gravity: all that stands beside M(q)·a."""
        (l1, l2), (m1, m2) = self.length, self.mass
        q0, q1, v0, v1 = x
        h = m2 * l1 * l2 / 2 * math.sin(q1)
        outer = m2 * self.gravity * l2 / 2 * math.cos(q0 + q1)
        inner = (m1 / 2 + m2) * self.gravity * l1 * math.cos(q0)
        return -h * v1 * (2 * v0 + v1) + self.damping * v0 + inner + outer, h * v0**2 + self.damping * v1 + outer

    def derivative(self, x: Motion, torque: Pair) -> Motion:
        """Solve M(q)·a + bias = torque for the acceleration."""
        a, b, d = self.inertia(x[1])
        bias = self.bias(x)
        r0, r1 = torque[0] - bias[0], torque[1] - bias[1]
        det = a * d - b * b
        return x[2], x[3], (d * r0 - b * r1) / det, (a * r1 - b * r0) / det

    def energy(self, x: Motion) -> float:
        """Kinetic and potential energy; constant without torque and damping."""
        (l1, l2), (m1, m2) = self.length, self.mass
        q0, q1, v0, v1 = x
        a, b, d = self.inertia(q1)
        height1 = l1 / 2 * math.sin(q0)
        height2 = l1 * math.sin(q0) + l2 / 2 * math.sin(q0 + q1)
        kinetic = 0.5 * (a * v0 * v0 + 2 * b * v0 * v1 + d * v1 * v1)
        return kinetic + self.gravity * (m1 * height1 + m2 * height2)

    def joints_xy(self, q0: float, q1: float) -> tuple[Pair, Pair, Pair]:
        """Where shoulder, elbow and tip are."""
        elbow = self.length[0] * math.cos(q0), self.length[0] * math.sin(q0)
        tip = elbow[0] + self.length[1] * math.cos(q0 + q1), elbow[1] + self.length[1] * math.sin(q0 + q1)
        return (0.0, 0.0), elbow, tip

    def inverse_kinematics(self, target: Pair) -> Pair:
        """Joint angles with the elbow bent to the positive side."""
        l1, l2 = self.length
        cosine = (target[0] ** 2 + target[1] ** 2 - l1**2 - l2**2) / (2 * l1 * l2)
        bend = math.acos(min(1.0, max(-1.0, cosine)))
        shoulder = math.atan2(target[1], target[0]) - math.atan2(l2 * math.sin(bend), l1 + l2 * math.cos(bend))
        return shoulder, bend

    def step(self, x: Motion, torque: Pair, dt: float) -> Motion:
        """One RK4 step with the torque held."""
        k1 = self.derivative(x, torque)
        k2 = self.derivative(_along(x, k1, dt / 2), torque)
        k3 = self.derivative(_along(x, k2, dt / 2), torque)
        k4 = self.derivative(_along(x, k3, dt), torque)
        mean = tuple((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        return _along(x, (mean[0], mean[1], mean[2], mean[3]), dt)


def _along(x: Motion, slope: Motion, dt: float) -> Motion:
    return x[0] + dt * slope[0], x[1] + dt * slope[1], x[2] + dt * slope[2], x[3] + dt * slope[3]


def expert(arm: Arm, x: Motion, target: Pair) -> Pair:
    """Choose the joint velocity that leads to the target, fast from afar and soft near it."""
    fastest = 3.0
    goal = arm.inverse_kinematics(target)
    first, second = (fastest * math.tanh(6.0 * (goal[joint] - x[joint]) / fastest) for joint in (0, 1))
    return first, second


def controller(arm: Arm, x: Motion, wanted: Pair) -> Pair:
    """Find the torque that makes the joints follow the wanted velocity, within the motors' limits."""
    a, b, d = arm.inertia(x[1])
    bias = arm.bias(x)
    push0, push1 = 40.0 * (wanted[0] - x[2]), 40.0 * (wanted[1] - x[3])
    first, second = arm.torque_limit
    torque = a * push0 + b * push1 + bias[0], b * push0 + d * push1 + bias[1]
    return min(first, max(-first, torque[0])), min(second, max(-second, torque[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What was recorded: one row per frame."""

    state: Floats
    """Joint angles, joint velocities, target."""
    action: Floats
    """Commanded joint velocities."""

    @property
    def length(self) -> int:
        return len(self.state)


def random_target(arm: Arm, rng: np.random.Generator) -> Pair:
    return arm.joints_xy(rng.uniform(-0.9, 1.5), rng.uniform(0.5, 2.2))[2]


def record(arm: Arm, rng: np.random.Generator, frames: int) -> Episode:
    """Let the expert reach for a new target every `TARGET_SECONDS`."""
    x: Motion = (rng.uniform(-0.5, 1.0), rng.uniform(0.8, 1.8), 0.0, 0.0)
    target = random_target(arm, rng)
    states, actions = [], []
    dt = 1 / FPS / STEPS_PER_FRAME
    for frame in range(frames):
        if frame and frame % round(TARGET_SECONDS * FPS) == 0:
            target = random_target(arm, rng)
        wanted = expert(arm, x, target)
        states.append((*x, *target))
        actions.append(wanted)
        for _ in range(STEPS_PER_FRAME):
            x = arm.step(x, controller(arm, x, wanted), dt)
    return Episode(state=np.array(states, np.float32), action=np.array(actions, np.float32))


class Camera:
    """Looks down on the arm; draws links as capsules and the target as a disc."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        reach = sum(arm.length) * 1.1
        axis = np.linspace(-reach, reach, SIDE, dtype=np.float32)
        self._x, self._y = np.meshgrid(axis, -axis)
        self._pixel = np.float32(2 * reach / SIDE)

    def _disc(self, centre: Pair) -> Floats:
        """Measure the distance of each pixel from a point."""
        distance: Floats = np.hypot(self._x - np.float32(centre[0]), self._y - np.float32(centre[1]))
        return distance

    def _capsule(self, start: Pair, end: Pair) -> Floats:
        """Measure the distance of each pixel from a line segment."""
        dx, dy = np.float32(end[0] - start[0]), np.float32(end[1] - start[1])
        x, y = self._x - np.float32(start[0]), self._y - np.float32(start[1])
        t = np.clip((x * dx + y * dy) / (dx * dx + dy * dy), 0, 1)
        distance: Floats = np.hypot(x - t * dx, y - t * dy)
        return distance

    def picture(self, state: Floats) -> Image:
        shoulder, elbow, tip = self._arm.joints_xy(float(state[0]), float(state[1]))
        image = np.full((SIDE, SIDE, 3), (236, 238, 240), np.float32)
        shapes = (
            (self._disc((float(state[4]), float(state[5]))), 0.030, (206, 44, 48)),
            (self._capsule(shoulder, elbow), 0.026, (48, 86, 132)),
            (self._capsule(elbow, tip), 0.020, (92, 146, 190)),
            (self._disc(shoulder), 0.036, (40, 44, 52)),
        )
        for distance, radius, colour in shapes:
            cover = np.clip((np.float32(radius) - distance) / self._pixel + np.float32(0.5), 0, 1)
            image += cover[..., None] * (np.array(colour, np.float32) - image)
        return image.round().astype(np.uint8)


def encode(path: Path, pictures: Iterator[Image]) -> None:
    """One H.264 file, constant frame rate, a key frame every second frame as LeRobot writes them."""
    path.parent.mkdir(parents=True)
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        options = {"g": "2", "crf": "26", "preset": "veryfast", "bf": "0", "threads": "1"}
        stream = container.add_stream("h264", rate=FPS, options=options)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.time_base = Fraction(1, FPS)
        for index, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def statistics(values: npt.NDArray[Any]) -> dict[str, list[Any]]:
    """LeRobot's statistics of one feature over the rows; a missing number (NaN) counts for nothing."""
    table = values.reshape(len(values), -1).astype(np.float64)
    found: dict[str, list[Any]] = {
        "min": np.nanmin(table, axis=0).astype(values.dtype).tolist(),
        "max": np.nanmax(table, axis=0).astype(values.dtype).tolist(),
        "mean": np.nanmean(table, axis=0).tolist(),
        "std": np.nanstd(table, axis=0).tolist(),
        "count": [len(table)],
    }
    return found | {name: np.nanquantile(table, at, axis=0).tolist() for name, at in QUANTILES.items()}


def picture_statistics(pictures: npt.NDArray[np.uint8]) -> dict[str, list[Any]]:
    """Summarise pictures per colour channel, values 0 to 1, in LeRobot's shape (3, 1, 1)."""
    channels = pictures.reshape(-1, 3).astype(np.float64) / 255
    flat = statistics(channels)
    nested: dict[str, list[Any]] = {key: [[[value]] for value in values] for key, values in flat.items()}
    return nested | {"count": [len(pictures)]}


def frame_columns(episodes: Sequence[Episode]) -> dict[str, npt.NDArray[Any]]:
    """Every column of the data file, all episodes after each other."""
    lengths = [episode.length for episode in episodes]
    frame = np.concatenate([np.arange(n) for n in lengths])
    return {
        "observation.state": np.concatenate([episode.state for episode in episodes]),
        "action": np.concatenate([episode.action for episode in episodes]),
        "timestamp": (frame / FPS).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.repeat(np.arange(len(lengths)), lengths),
        "index": np.arange(sum(lengths)),
        "task_index": np.zeros(sum(lengths), np.int64),
    }


def features() -> dict[str, Any]:
    """Describe every column for info.json."""

    def vector(names: list[str]) -> dict[str, Any]:
        return {"dtype": "float32", "shape": [len(names)], "names": names}

    video = {
        "video.height": SIDE, "video.width": SIDE, "video.codec": "h264", "video.pix_fmt": "yuv420p",
        "video.is_depth_map": False, "video.fps": FPS, "video.channels": 3, "has_audio": False,
    }  # fmt: skip
    joints = ("shoulder", "elbow")
    state = [f"{joint}.{what}" for what in ("pos", "vel") for joint in joints] + ["target.x", "target.y"]
    scalar = dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), "int64")
    return {
        "observation.state": vector(state),
        "action": vector([f"{joint}.vel" for joint in joints]),
        CAMERA: {"dtype": "video", "shape": [SIDE, SIDE, 3], "names": ["height", "width", "channels"], "info": video},
    } | {
        name: {"dtype": dtype, "shape": [1], "names": None}
        for name, dtype in ({"timestamp": "float32"} | scalar).items()
    }


def huggingface_metadata(columns: dict[str, npt.NDArray[Any]]) -> dict[str, str]:
    """Describe the columns to the `datasets` library, so that vectors come back with their length."""
    described = {}
    for name, values in columns.items():
        value = {"dtype": str(values.dtype), "_type": "Value"}
        described[name] = (
            {"feature": value, "length": values.shape[1], "_type": "Sequence"} if values.ndim == 2 else value
        )
    return {"huggingface": json.dumps({"info": {"features": described}})}


def write_data(root: Path, columns: dict[str, npt.NDArray[Any]]) -> None:
    arrays: dict[str, Any] = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        if values.ndim == 2
        else pa.array(values)
        for name, values in columns.items()
    }
    table = pa.table(arrays).replace_schema_metadata(huggingface_metadata(columns))
    path = root / "data/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table, path)


def write_tasks(root: Path) -> None:
    """`meta/tasks.parquet`: the sentence is the pandas index, as LeRobot writes it."""
    column = {
        "metadata": None,
        "pandas_type": "int64",
        "numpy_type": "int64",
        "name": "task_index",
        "field_name": "task_index",
    }
    index = {"metadata": None, "pandas_type": "unicode", "numpy_type": "object", "name": "task", "field_name": "task"}
    pandas = {"index_columns": ["task"], "column_indexes": [], "columns": [column, index], "pandas_version": "2.3.3"}
    table = pa.table({"task_index": pa.array([0], pa.int64()), "task": pa.array([TASK], pa.string())})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), root / "meta/tasks.parquet")


def episode_rows(
    episodes: Sequence[Episode], columns: dict[str, npt.NDArray[Any]], seen: list[Any]
) -> Iterator[dict[str, Any]]:
    """One row of `meta/episodes` per episode: where it lies, and its statistics."""
    start = 0
    for index, episode in enumerate(episodes):
        stop = start + episode.length
        row: dict[str, Any] = {
            "episode_index": index, "tasks": [TASK], "length": episode.length,
            "data/chunk_index": 0, "data/file_index": 0, "dataset_from_index": start, "dataset_to_index": stop,
            f"videos/{CAMERA}/chunk_index": 0, f"videos/{CAMERA}/file_index": 0,
            f"videos/{CAMERA}/from_timestamp": start / FPS, f"videos/{CAMERA}/to_timestamp": stop / FPS,
        }  # fmt: skip
        for name, values in columns.items():
            row |= {f"stats/{name}/{key}": value for key, value in statistics(values[start:stop]).items()}
        row |= {f"stats/{CAMERA}/{key}": value for key, value in seen[index].items()}
        yield row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        start = stop


def write_dataset(root: Path, arm: Arm, episodes: Sequence[Episode]) -> None:
    """Lay the episodes out as LeRobot v3.0 does: one data file, one video file, metadata."""
    camera = Camera(arm)
    sampled: list[list[Image]] = [[] for _ in episodes]

    def pictures() -> Iterator[Image]:
        for index, episode in enumerate(episodes):
            for frame, state in enumerate(episode.state):
                picture = camera.picture(state)
                if frame % 10 == 0:
                    sampled[index].append(picture)
                yield picture

    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    encode(root / f"videos/{CAMERA}/chunk-000/file-000.mp4", pictures())
    columns = frame_columns(episodes)
    write_data(root, columns)
    write_tasks(root)
    seen = [picture_statistics(np.stack(images)) for images in sampled]
    rows = list(episode_rows(episodes, columns, seen))
    pq.write_table(pa.Table.from_pylist(rows), root / "meta/episodes/chunk-000/file-000.parquet")
    everything = {name: statistics(values) for name, values in columns.items()}
    everything[CAMERA] = picture_statistics(np.stack([image for images in sampled for image in images]))
    (root / "meta/stats.json").write_text(json.dumps(everything, indent=2, allow_nan=False))
    info = {
        "codebase_version": "v3.0", "robot_type": "planar_arm_2dof", "total_episodes": len(episodes),
        "total_frames": len(columns["index"]), "total_tasks": 1, "chunks_size": 1000, "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200, "fps": FPS, "splits": {"train": f"0:{len(episodes)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features(),
    }  # fmt: skip
    (root / "meta/info.json").write_text(json.dumps(info, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the dataset goes; replaced when --force is given")
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long an episode lasts")
    parser.add_argument("--seed", type=int, default=7, help="same seed, same dataset")
    parser.add_argument("--gravity", type=float, default=0.0, help="9.81 lets the arm move in a vertical plane")
    parser.add_argument("--broken", type=int, default=7, help="episode with NaN in an action; -1 for none")
    parser.add_argument("--broken-frame", type=int, default=41)
    parser.add_argument("--force", action="store_true", help="replace a folder that exists")
    args = parser.parse_args()
    if args.folder.exists():
        if not args.force:
            parser.error(f"{args.folder} exists; give another folder, or --force to replace it")
        shutil.rmtree(args.folder)
    rng = np.random.default_rng(args.seed)
    arm = Arm(gravity=args.gravity)
    lengths = [round(args.seconds * FPS) + int(rng.integers(-8, 9)) for _ in range(args.episodes)]
    episodes = [record(arm, rng, length) for length in lengths]
    if 0 <= args.broken < len(episodes):
        broken = episodes[args.broken]
        broken.action[min(args.broken_frame, broken.length - 1), 0] = np.nan
    write_dataset(args.folder, arm, episodes)
    frames = sum(lengths)
    print(f"recorded {len(episodes)} episodes, {frames} frames ({frames / FPS:.0f} s) into {args.folder}")


if __name__ == "__main__":
    main()
