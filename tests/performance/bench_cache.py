"""`make bench-cache`: what warming a plan saves, over real object storage that is slowed to a stated rate and latency.

A version in LeRobot's Lance layout on a JuiceFS mount; its blocks lie in SeaweedFS, and
a wire between them gives `--rate` MB/s for all answers together, each after
`--latency` ms. Origin bytes are counted on that wire. A job reads state, action and one
of two cameras through the mount, as `sdk.open` does. Each figure is a JSON line with
its baseline from the same run. `--small` is the same story in seconds, for the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
from forebay.cache.adapters import juicefs_volume
from forebay.cache.adapters.juicefs_pool import JuicefsPool
from forebay.cache.adapters.juicefs_volume import Bucket
from forebay.cache.adapters.version_root import plan_folder
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.workers.warming import Warmed, Warming, WarmingSettings

from services.cache.tests.mounts import Mounted, mounted
from tests.performance.figures import Figure
from tests.servers.origin_proxy import OriginProxy, origin_proxy
from tests.servers.seaweedfs import ACCESS_KEY, SECRET_KEY, S3Server, s3_server_beside

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
WANTED = ("observation.state", "action", FRONT)
READERS = 64
ROUNDS = 2
"""The best of each counts, because machines are shared."""
_BUCKET = "blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of everything."""

    frames: int
    wide: int
    """Floats per frame that no job wants: depth, forces, latents."""
    video_bytes: int
    videos: int
    """Files of each camera."""
    rate: float
    latency_s: float

    @property
    def stated(self) -> str:
        return f"origin slowed to {self.rate / 1e6:g} MB/s and {self.latency_s * 1000:g} ms a request"


def write_version(root: Path, scale: Scale) -> None:
    """A version whose bytes are noise, as encoded video and floats of a robot nearly are."""
    import lance  # noqa: PLC0415 slow to import, and nothing above needs it

    random = np.random.default_rng(7)
    (root / "meta").mkdir(parents=True)
    features = {name: {"dtype": "video"} for name in (FRONT, WRIST)}
    info = {"codebase_version": "v3.0", "storage_format": "lance", "features": features, "fps": 30}
    (root / "meta" / "info.json").write_text(json.dumps(info))

    def floats(width: int) -> pa.Array[Any]:
        values = pa.array(random.standard_normal(scale.frames * width, dtype=np.float32))
        return pa.FixedSizeListArray.from_arrays(values, width)

    rows = np.arange(scale.frames)
    frames = pa.table(
        {
            "index": rows,
            "episode_index": rows // 300,
            "frame_index": rows % 300,
            "timestamp": (rows % 300 / 30).astype(np.float32),
            "task_index": np.zeros(scale.frames, dtype=np.int64),
            "observation_state": floats(26),
            "action": floats(26),
            "observation_latent": floats(scale.wide),
        }
    )
    lance.write_dataset(frames, root / "frames.lance", data_storage_version="2.2")
    keys = [key for _ in range(scale.videos) for key in (FRONT, WRIST)]
    videos = pa.table(
        {
            "video_key": keys,
            "chunk_index": np.zeros(len(keys), dtype=np.int64),
            "file_index": np.arange(len(keys)) // 2,
            "video_bytes": lance.blob_array([random.bytes(scale.video_bytes) for _ in keys]),
        }
    )
    lance.write_dataset(videos, root / "videos.lance", data_storage_version="2.2")


@dataclass(frozen=True, slots=True)
class Bench:
    """One mounted version."""

    scale: Scale
    mount: Mounted
    wire: OriginProxy
    root: Path
    plan: ReadPlan
    whole: ReadPlan
    service: ProcessPoolExecutor
    """One process of its own, as the cache service is: the wire runs in this one."""

    def cold(self) -> None:
        """Nothing in the mount's cache, nothing in the kernel's."""
        self.mount.forget()
        for path in self.root.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)

    def warm(self, plan: ReadPlan) -> Warmed:
        return self.service.submit(_warm, self.mount.mountpoint, plan).result()

    def epoch(self) -> float:
        """Seconds of a job's first pass over its columns and videos."""
        import lance  # noqa: PLC0415

        started = time.monotonic()
        frames = lance.dataset(str(self.root / "frames.lance"))
        for batch in frames.to_batches(columns=["observation_state", "action"]):
            assert batch.num_rows
        videos = lance.dataset(str(self.root / "videos.lance"))
        keys = videos.to_table(columns=["video_key"]).column(0).to_pylist()
        for blob in videos.take_blobs("video_bytes", indices=[row for row, key in enumerate(keys) if key == FRONT]):
            assert blob is not None
            with blob as opened:
                assert opened.readall()
        return time.monotonic() - started

    def epochs(self, jobs: int) -> None:
        """The same by many jobs at once, as threads: this machine has few cores."""
        with ThreadPoolExecutor(jobs) as running:
            for one in [running.submit(_read_plan, self.plan) for _ in range(jobs)]:
                one.result()

    def counted(self, act: Callable[[], object]) -> int:
        """Bytes that the origin gave meanwhile."""
        before = self.wire.fetched
        act()
        return self.wire.fetched - before


def _warm(mountpoint: Path, plan: ReadPlan) -> Warmed:
    """As the service does: look, fetch, verify."""
    warming = Warming(pool=JuicefsPool(mountpoint), plan=plan, settings=WarmingSettings(), tell=lambda _: None)
    warming.fetch(warming.look())
    warmed = warming.verify()
    assert not warmed.missing, warmed.missing[:3]
    return warmed


def _read_plan(plan: ReadPlan) -> None:
    """Every planned byte once, in pieces as Lance asks for them."""
    for file in plan.files:
        with (Path(plan.root) / file.path).open("rb", buffering=0) as opened:
            for start, end in file.spans:
                for at in range(start, end, 1 << 20):
                    os.pread(opened.fileno(), min(1 << 20, end - at), at)


def _ready() -> None:
    """The process has imported everything."""


@contextmanager
def bench(folder: Path, scale: Scale) -> Iterator[Bench]:
    with s3_server_beside(folder) as server, origin_proxy(server.endpoint) as wire:
        bucket = Bucket(url=f"{wire.url}/{_BUCKET}", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        (folder / "mounted").mkdir()
        with mounted(folder / "mounted", storage=bucket) as mount:
            root = mount.mountpoint / "v1"
            write_version(root, scale)
            plan, whole = plan_folder(root, columns=WANTED), plan_folder(root)
            wire.bytes_per_s, wire.latency_s = scale.rate, scale.latency_s
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as service:
                service.submit(_ready).result()
                yield Bench(scale, mount, wire, root, plan, whole, service)


def first_epochs(on: Bench) -> Iterator[Figure]:
    """The same job after nothing, after everything, and after its plan was warmed."""
    stated = on.scale.stated
    took: dict[str, list[float]] = {"cold": [], "whole": [], "plan": []}
    warmed: dict[str, list[float]] = {"whole": [], "plan": []}
    for _ in range(ROUNDS):
        on.cold()
        took["cold"].append(on.epoch())
        for name, plan in (("whole", on.whole), ("plan", on.plan)):
            on.cold()
            warmed[name].append(on.warm(plan).seconds)
            took[name].append(on.epoch())
    for name in warmed:
        yield Figure(
            name=f"first epoch, {name} warmed before", value=min(took[name]), unit="s",
            baseline=f"first epoch cold, {stated}", baseline_value=min(took["cold"]),
        )  # fmt: skip
    yield Figure(
        name="time until the plan is verified warm", value=min(warmed["plan"]), unit="s",
        baseline=f"until the whole version is, {stated}", baseline_value=min(warmed["whole"]),
    )  # fmt: skip


def many_readers(on: Bench) -> Iterator[Figure]:
    """64 jobs of one plan on one mount, from cold: once joined in one warm-up, once each for itself."""
    aligned = on.plan.aligned_bytes()  # the volume has blocks of the usual size
    on.cold()
    alone = on.counted(lambda: on.epochs(READERS))
    on.cold()

    def joined() -> None:
        on.warm(on.plan)
        on.epochs(READERS)

    yield Figure(
        name=f"origin bytes, {READERS} readers after one warm-up", value=on.counted(joined) / 1e6, unit="MB",
        baseline="block-aligned planned bytes", baseline_value=aligned / 1e6,
    )  # fmt: skip
    yield Figure(
        name=f"origin bytes, {READERS} readers that start cold, nobody warms", value=alone / 1e6, unit="MB",
        baseline="block-aligned planned bytes", baseline_value=aligned / 1e6,
    )  # fmt: skip


def throughput(on: Bench) -> Iterator[Figure]:
    """Warming against plain reads of the very same objects, as many at a time, thrown away; the best round of each."""
    store = S3Server(on.wire.url).bucket(_BUCKET)
    warm, plain = [], []
    for _ in range(ROUNDS):
        on.cold()
        warm.append(on.warm(on.plan).seconds)
        objects = sorted(on.mount.block_files())
        names = [f"forebay-test/{path.relative_to(path.parents[3]).as_posix()}" for path in objects]
        size = sum(int(path.name.rsplit("_", 1)[1]) for path in objects)
        started = time.monotonic()
        with ThreadPoolExecutor(juicefs_volume.PREFETCH) as readers:
            assert size == sum(readers.map(lambda name: len(obstore.get(store, name).bytes()), names))
        plain.append(time.monotonic() - started)
    yield Figure(
        name="warm-up, fetched and verified", value=size / min(warm) / 1e6, unit="MB/s",
        baseline=f"plain reads of the same objects, {on.scale.stated}", baseline_value=size / min(plain) / 1e6,
    )  # fmt: skip


FULL = Scale(frames=150_000, wide=256, video_bytes=20_000_000, videos=6, rate=60e6, latency_s=0.02)
SMALL = Scale(frames=6_000, wide=256, video_bytes=2_000_000, videos=2, rate=60e6, latency_s=0.01)


def run(scale: Scale) -> Iterator[Figure]:
    """All figures; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="bench-cache-") as folder, bench(Path(folder), scale) as on:
        yield from first_epochs(on)
        yield from many_readers(on)
        yield from throughput(on)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--small", action="store_true", help="A few MB, to see that it works.")
    parser.add_argument("--rate", type=float, help="MB/s that the origin gives at most.")
    parser.add_argument("--latency", type=float, help="Milliseconds before each answer.")
    given = parser.parse_args()
    why_not = juicefs_volume.fuse_available()
    if why_not is not None:
        sys.exit(f"bench-cache needs a JuiceFS mount: {why_not}")
    scale = SMALL if given.small else FULL
    if given.rate:
        scale = replace(scale, rate=given.rate * 1e6)
    if given.latency:
        scale = replace(scale, latency_s=given.latency / 1000)
    for figure in run(scale):
        figure.print()


if __name__ == "__main__":
    main()
