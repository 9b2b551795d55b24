"""Splits of a version: every episode stays in the split that its origin put it into, under its new number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.ingest.domain.recording import SPLIT_RANGES, Info
from forebay.ingest.domain.version_plan import VersionPlan


def split_ranges(info: Info) -> dict[str, list[tuple[int, int]]]:
    """Name of each split -> ranges of episodes; splits that cannot be read are not there."""
    value = info.document.get("splits")
    found: dict[str, list[tuple[int, int]]] = {}
    for name, text in value.items() if isinstance(value, dict) else ():
        if isinstance(text, str) and SPLIT_RANGES.fullmatch(text):
            parts = (part.split(":") for part in text.split(","))
            found[str(name)] = [(int(first), int(end)) for first, end in parts]
    return found


def version_splits(plan: VersionPlan) -> dict[str, Any]:
    """As info.json writes them. Origins without any are training data as a whole, as LeRobot writes it."""
    members: dict[str, list[int]] = {}
    for source in plan.sources.values():
        ranges = split_ranges(source.info)
        for episode in plan.of(source.origin):
            number = episode.accepted.declared.index
            names = [name for name, parts in ranges.items() if any(first <= number < end for first, end in parts)]
            for name in names if ranges else ["train"]:
                members.setdefault(name, []).append(episode.index)
    return {name: ",".join(f"{first}:{end}" for first, end in _runs(numbers)) for name, numbers in members.items()}


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found
