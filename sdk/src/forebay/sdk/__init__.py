"""Forebay for training scripts and robot labs.

from forebay import sdk

dataset = sdk.open("dataset:pick-place@train-ready")
actions = dataset.numpy("action")
job = sdk.current_job()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forebay.sdk.errors import ForebayError
from forebay.sdk.settings import CurrentJob, current_job

if TYPE_CHECKING:
    from forebay.sdk.dataset import Dataset, Episode
    from forebay.sdk.opening import open  # noqa: A004 sdk.open reads as what it does

__all__ = ["CurrentJob", "Dataset", "Episode", "ForebayError", "current_job", "open"]
_READS_DATA = {"Dataset": "forebay.sdk.dataset", "Episode": "forebay.sdk.dataset", "open": "forebay.sdk.opening"}


def __getattr__(name: str) -> Any:
    """What reads data is loaded when it is asked for: an agent in a pod reads none, and has no pyarrow."""
    if name not in _READS_DATA:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_READS_DATA[name]), name)
