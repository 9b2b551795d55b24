"""Splits and repeated recordings: is every recording there once, and in one split only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.info_file import INFO_FILE
from forebay.ingest.domain.pictures import EpisodePictures
from forebay.ingest.domain.recording import Info
from forebay.ingest.domain.signals import EpisodeScan

_RANGE = re.compile(r"(\d{1,15}):(\d{1,15})")
Ranges = dict[str, tuple[int, int]]


def ranges_of(info: Info) -> Ranges:
    """Name of each split -> episodes `[first, end)`. What cannot be read was told when info.json was read."""
    value = info.document.get("splits")
    found: Ranges = {}
    for name, text in value.items() if isinstance(value, dict) else ():
        ends = _RANGE.fullmatch(text) if isinstance(text, str) else None
        if ends is not None:
            found[str(name)] = (int(ends.group(1)), int(ends.group(2)))
    return found


def check_splits(ranges: Ranges, episodes: Sequence[int] = ()) -> list[Breach]:
    """Ranges that run backwards, episodes that lie in two splits, and episodes in none; `episodes` are all that there are."""
    found = [
        Breach(
            rule=rules.TOTALS,
            file=INFO_FILE,
            feature=f"splits.{name}",
            expected="a range that ends after it starts",
            found=f"{first}:{end}",
            message=f"split {name!r} is {first}:{end}, which ends before it starts",
        )
        for name, (first, end) in ranges.items()
        if end < first
    ]
    found += _left_out(ranges, episodes)
    names = sorted(ranges)
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            first, end = max(ranges[name][0], ranges[other][0]), min(ranges[name][1], ranges[other][1])
            if first >= end:
                continue
            hit = tuple(range(first, min(end, first + 10_000)))
            found.append(
                Breach(
                    rule=rules.SPLIT_LEAK,
                    episodes=hit,
                    file=INFO_FILE,
                    feature="splits",
                    expected="each episode in one split",
                    found=f"{end - first} in both {name!r} and {other!r}",
                    message=f"episodes {first} to {end - 1} lie in the splits {name!r} and {other!r}",
                )
            )
    return found


def _left_out(ranges: Ranges, episodes: Sequence[int]) -> list[Breach]:
    """LeRobot never reads splits; tools that do train without these."""

    def inside(number: int) -> bool:
        return any(first <= number < end for first, end in ranges.values())

    # where numbers are missing, splits may count places
    out = [index for place, index in enumerate(episodes) if not inside(index) and not inside(place)]
    if not out or not ranges:
        return []
    shown = ", ".join(f"{name} {first}:{end}" for name, (first, end) in ranges.items())
    return [
        Breach(
            rule=rules.TOTALS,
            lowered="warning",
            file=INFO_FILE,
            feature="splits",
            expected="every episode in a split",
            found=f"{len(out)} of {len(episodes)} in none",
            message=f"{len(out)} of {len(episodes)} episodes lie in no split: {listed(out)} (splits: {shown}); tools that read the"
            " splits leave them out",
        )
    ]


def same_recording(
    scans: Mapping[int, EpisodeScan], pictures: Mapping[int, tuple[str, ...]]
) -> Callable[[int, int], bool]:
    """Do two episodes have equal rows and equal pictures."""

    def same(left: int, right: int) -> bool:
        one, other = scans.get(left), scans.get(right)
        if one is None or other is None or not one.digest or one.digest != other.digest:
            return False
        return pictures.get(left) == pictures.get(right)

    return same


def digests_of(seen: list[EpisodePictures]) -> dict[int, tuple[str, ...]]:
    """The pictures of every camera of an episode, in one value."""
    found: dict[int, dict[str, str]] = {}
    for one in seen:
        found.setdefault(one.episode, {})[one.camera] = one.digest
    return {episode: tuple(cameras[name] for name in sorted(cameras)) for episode, cameras in found.items()}


def check_repeated(
    scans: Mapping[int, EpisodeScan], pictures: Mapping[int, tuple[str, ...]], ranges: Ranges
) -> list[Breach]:
    """Recordings that are there more than once; in two splits it is a leak.

    Without cameras equal rows may come from a simulation that repeats itself: a warning.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, scan in sorted(scans.items()):
        if scan.digest and scan.rows > 1:
            groups.setdefault((scan.digest, pictures.get(index)), []).append(index)
    found: list[Breach] = []
    for (digest, seen), episodes in groups.items():
        if len(episodes) < 2:
            continue
        splits = sorted({name for name, (first, end) in ranges.items() if any(first <= e < end for e in episodes)})
        leak = len(splits) > 1
        what = "rows and pictures" if seen else "rows"
        where = f", in the splits {listed(splits)}" if leak else ""
        found.append(
            Breach(
                rule=rules.SPLIT_LEAK if leak else rules.SAME_RECORDING,
                lowered=None if seen or leak else "warning",
                episodes=tuple(episodes) if leak else tuple(episodes[1:]),
                expected="a recording of its own in each episode",
                found=f"the same {what} in {len(episodes)} episodes",
                message=f"episodes {listed(episodes)} have the same {what}{where} (content {digest[:12]})",
            )
        )
    return found
