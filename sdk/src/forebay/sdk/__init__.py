"""Forebay for training scripts and robot labs.

from forebay import sdk

dataset = sdk.open("dataset:pick-place@train-ready")
actions = dataset.numpy("action")
job = sdk.current_job()
"""

from __future__ import annotations

from forebay.sdk.dataset import Dataset, Episode
from forebay.sdk.errors import ForebayError
from forebay.sdk.opening import open  # noqa: A004 sdk.open reads as what it does
from forebay.sdk.settings import CurrentJob, current_job

__all__ = ["CurrentJob", "Dataset", "Episode", "ForebayError", "current_job", "open"]
