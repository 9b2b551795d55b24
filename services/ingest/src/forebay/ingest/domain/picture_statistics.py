"""Stored statistics of cameras against the pictures: are they of this scale and brightness at all.

LeRobot takes them from some pictures of each episode, made smaller, before they are
encoded; other tools write constants. So only what no sampling explains is reported:
values that are not between 0 and 1, and a brightness far from that of the pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.pictures import EpisodePictures
from forebay.ingest.domain.recording import Feature
from forebay.ingest.domain.spread import Array

LUMA = (0.299, 0.587, 0.114)
"""What red, green and blue add to the brightness."""
_SCALE = 255.0
_FAR = 0.25
"""Difference of brightness, on a scale of 1, that neither sampling nor a codec explains."""
_ABOVE_ONE = 1.01


def is_colour(camera: Feature) -> bool:
    """A camera of three channels; the scale of others, depth above all, is not known."""
    return (camera.is_video or camera.is_image) and len(camera.shape) == 3 and 3 in {camera.shape[0], camera.shape[2]}


def brightness_of(seen: Iterable[EpisodePictures]) -> float | None:
    """Mean brightness of pictures, between 0 and 1."""
    total = frames = 0.0
    for one in seen:
        total, frames = total + one.brightness, frames + one.frames
    return total / frames / _SCALE if frames else None


def check_picture_statistics(
    camera: Feature, stored: Mapping[str, Any], brightness: float, file: str, episode: int | None = None
) -> list[Breach]:
    """One breach, about the mean."""
    mean = _channels(stored.get("mean"))
    if mean is None:
        return []
    if np.max(mean) > _ABOVE_ONE:
        what = f"the stored mean is {mean.max():.6g}, but pictures are read with values from 0 to 1; theirs is about {brightness:.2f}"
    elif abs(float(mean @ np.array(LUMA)) - brightness) > _FAR:
        what = f"the stored mean is {float(mean @ np.array(LUMA)):.2f} (of 1), the pictures have about {brightness:.2f}"
    else:
        return []
    who = "" if episode is None else f"episode {episode}, "
    return [
        Breach(
            rule=rules.STATISTICS,
            episodes=None if episode is None else (episode,),
            feature=camera.key,
            file=file,
            expected=f"a mean of about {brightness:.2f}",
            found=f"{mean.mean():.6g}",
            message=f"{who}{camera.key}: {what}",
        )
    ]


def _channels(value: Any) -> Array | None:
    try:
        found = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if len(found) == len(LUMA) and np.isfinite(found).all() else None
