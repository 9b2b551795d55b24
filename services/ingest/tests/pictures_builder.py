"""Videos of chosen pictures, for tests of what pictures show."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
SIDE = 64


def scene(seed: int, frames: int) -> list[Picture]:
    """A textured background with a bright block that wanders, other for each seed."""
    random = np.random.default_rng(seed)
    ground = np.kron(random.integers(40, 120, (8, 8)), np.ones((8, 8))).astype(np.uint8)
    found: list[Picture] = []
    for number in range(frames):
        picture = np.repeat(ground[:, :, None], 3, axis=2)
        at = (5 * seed + 3 * number) % (SIDE - 16)
        picture[at : at + 16, 8:24] = 230
        found.append(picture)
    return found


def noisy(pictures: Sequence[Picture], levels: float, seed: int = 0) -> list[Picture]:
    """The same with sensor noise."""
    random = np.random.default_rng(seed)
    return [np.clip(p + random.normal(0, levels, p.shape), 0, 255).astype(np.uint8) for p in pictures]


def write(
    path: Path,
    pictures: Sequence[Picture],
    fps: float = 10,
    *,
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    times: Sequence[float] | None = None,
    audio: bool = False,
) -> None:
    """One video file; `times` in seconds overrides the even steps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rate = Fraction(fps).limit_denominator(1001)
    with av.open(str(path), "w", format="mp4") as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"preset": "ultrafast", "g": "4"} if options is None else options
        stream.codec_context.time_base = Fraction(1, 30_000)
        sound: Any = container.add_stream("aac", rate=8000, layout="mono") if audio else None
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            seconds = number / rate if times is None else times[number]
            frame.pts, frame.time_base = round(seconds * 30_000), Fraction(1, 30_000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if sound is not None:
            quiet = av.AudioFrame.from_ndarray(np.zeros((1, 8000), dtype=np.float32), format="fltp", layout="mono")
            quiet.sample_rate = 8000
            container.mux(sound.encode(quiet))
            container.mux(sound.encode())
