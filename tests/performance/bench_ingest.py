"""`make bench-ingest`: validate and convert against copying, hashing and decoding the same bytes.

Takes `--dataset FOLDER` (LeRobot v3.0) or records one, makes it larger until it has
a quarter of `--bytes`, then all of them, and measures both sizes in alternating
rounds, each step in a process of its own; the best round counts. Memory is what the
whole tree of processes holds (PSS), sampled. Prints one JSON line per figure; for
rates a higher ratio is better, for memory a ratio of 1 says that it does not grow.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import psutil

from tests.performance.figures import Figure
from tests.performance.replicas import replicate, size_of

_CHUNK = 1 << 20
_SAMPLE_S = 0.1
_SOURCE = "source"
RECORDER = Path(__file__).resolve().parents[2] / "examples" / "record_arm.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of one step."""

    seconds: float
    frames: int
    peak_bytes: int


# ---------------------------------------------------- the steps, each in a process of its own
#
# A step prepares itself and returns what is timed; that returns how many frames it saw.

Step = Callable[[], int]


def copy(folder: Path, scratch: Path) -> Step:
    """Every file copied and hashed, once over the bytes; what the disk gets of it, and when, is the kernel's business."""
    return _copying(folder, scratch, lambda _: None)


def copy_to_disk(folder: Path, scratch: Path) -> Step:
    """The same, until every file is on the disk, as those of a committed version are."""
    return _copying(folder, scratch, os.fsync)


def _copying(folder: Path, scratch: Path, written: Callable[[int], None]) -> Step:
    def run() -> int:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = scratch / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with path.open("rb") as before, target.open("wb") as after:
                while chunk := before.read(_CHUNK):
                    digest.update(chunk)
                    after.write(chunk)
                after.flush()
                written(after.fileno())
        return 0

    return run


def decode(folder: Path, _scratch: Path) -> Step:
    """Every video decoded, on all cores, and nothing else."""
    from forebay.ingest.adapters.decoders import cores  # noqa: PLC0415 only this step needs it

    videos = sorted(folder.rglob("*.mp4"))
    threads = max(1, -(-cores() // len(videos)))

    def run() -> int:
        with ProcessPoolExecutor(cores(), mp_context=get_context("spawn")) as pool:
            return sum(pool.map(_decode_one, videos, [threads] * len(videos)))

    return run


def _decode_one(path: Path, threads: int) -> int:
    import av  # noqa: PLC0415 only this step needs it

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = threads
        return sum(1 for _ in container.decode(stream))


def validate(folder: Path, _scratch: Path) -> Step:
    """What `forebay validate` does."""
    from forebay.ingest.inspection import inspect  # noqa: PLC0415 only this step needs it

    def run() -> int:
        inspection = inspect(folder)
        cameras = len(inspection.info.cameras) if inspection.info is not None else 0
        return cameras * sum(episode.frames for episode in inspection.report.episodes)

    return run


def convert(folder: Path, scratch: Path) -> Step:
    """What the work `convert` does with episodes that were accepted: write, read back, seal."""
    import pyarrow.parquet as pq  # noqa: PLC0415 only this step needs it
    from forebay.ingest.adapters.lance_version import commit_version  # noqa: PLC0415
    from forebay.ingest.adapters.origins import UploadOrigin  # noqa: PLC0415
    from forebay.ingest.conversion import Accepted, Share, plan_shares  # noqa: PLC0415

    entries = pq.read_table(folder / "meta/episodes", columns=["episode_index", "length", "tasks"]).to_pylist()
    episodes = [
        Accepted(
            id=f"episode-{entry['episode_index']}",
            source_index=entry["episode_index"],
            length=entry["length"],
            tasks=tuple(entry["tasks"]),
            digest="",
        )
        for entry in entries
    ]
    digests = {path.relative_to(folder).as_posix(): _digest(path) for path in folder.rglob("*.mp4")}  # the manifest's

    def run() -> int:
        plan = plan_shares([Share(upload=_SOURCE, landing=folder, sha256=digests, episodes=episodes)])
        commit_version(plan, {_SOURCE: UploadOrigin(folder)}, scratch / "v1", lambda *_: None)
        return plan.frames

    return run


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


STEPS = {step.__name__: step for step in (copy, copy_to_disk, decode, validate, convert)}


def run_step(name: str, folder: Path) -> None:
    """In the step's own process: prepare, run, print seconds and frames."""
    with tempfile.TemporaryDirectory(prefix="forebay-step-", dir=folder.parent) as scratch:
        run = STEPS[name](folder, Path(scratch))
        began = time.perf_counter()
        frames = run()
        seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({"seconds": seconds, "frames": frames}) + "\n")


# ---------------------------------------------------------------------------- measuring


def measure(name: str, folder: Path) -> Measured:
    """Run a step in a process of its own, and watch what its whole tree holds in memory."""
    command = [sys.executable, "-m", "tests.performance.bench_ingest", "--step", name, "--dataset", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak, root = 0, psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, _held(root))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SAMPLE_S)
        out = process.stdout.read() if process.stdout is not None else ""
    if process.returncode != 0:
        sys.exit(f"the step {name} on {folder} ended with {process.returncode}")
    found = json.loads(out)
    return Measured(seconds=found["seconds"], frames=found["frames"], peak_bytes=peak)


def _held(root: psutil.Process) -> int:
    """Memory of a process and all below it; shared pages count once."""
    held = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                held += int(process.memory_full_info().pss)
    return held


def best(runs: list[Measured]) -> Measured:
    """The quickest round, with the highest peak of all of them."""
    quickest = min(runs, key=lambda run: run.seconds)
    return replace(quickest, peak_bytes=max(run.peak_bytes for run in runs))


def bench(source: Path, size: int, rounds: int, steps: list[str], scratch: Path) -> None:
    peaks: dict[str, list[int]] = {name: [] for name in ("validate", "convert") if name in steps}
    for part in (size // 4, size):
        folder = scratch / f"dataset-{part}"
        replicate(source, folder, part)
        actual = size_of(folder)
        label = f"{actual / 1e6:.0f}MB"
        runs: dict[str, list[Measured]] = {name: [] for name in STEPS if name in steps}
        for _ in range(rounds):
            for name, done in runs.items():
                done.append(measure(name, folder))
        found = {name: best(done) for name, done in runs.items()}
        frames = max(step.frames for step in found.values())
        megabytes = actual / 1e6
        against = (
            ("frames/s", frames, "decode", "decoding alone"),
            ("MB/s", megabytes, "copy", "copying and hashing"),
            ("MB/s", megabytes, "copy_to_disk", "copying and hashing until it is on the disk"),
        )
        for name in peaks:
            for unit, amount, other, called in (line for line in against if line[2] in found):
                Figure(
                    name=f"{name}-{label}",
                    value=amount / found[name].seconds,
                    unit=unit,
                    baseline=called,
                    baseline_value=amount / found[other].seconds,
                ).print()
        for name, seen in peaks.items():
            seen.append(found[name].peak_bytes)
        shutil.rmtree(folder)
    for name, (small, large) in peaks.items():
        Figure(
            name=f"{name}-peak-memory",
            value=large / 1e6,
            unit="MB",
            baseline="a quarter of the bytes",
            baseline_value=small / 1e6,
        ).print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, default=None, help="a LeRobot v3.0 folder; default: one is recorded")
    parser.add_argument("--bytes", type=float, default=4e6, help="size of the larger dataset")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--steps", nargs="+", choices=sorted(STEPS), default=sorted(STEPS), help="fewer, when decoding takes too long"
    )
    parser.add_argument("--step", choices=sorted(STEPS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        run_step(given.step, given.dataset)
        return
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as name:
        source = given.dataset
        if source is None:
            source = Path(name) / "recorded"
            command = [sys.executable, str(RECORDER), str(source), "--broken", "-1"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        bench(source, int(given.bytes), given.rounds, given.steps, Path(name))


if __name__ == "__main__":
    main()
