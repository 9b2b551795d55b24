"""Files that the metadata names and that are not there: on their way, elsewhere, or called by a wrong number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.info_file import INFO_FILE
from forebay.ingest.domain.recording import Episode, Info

MANY_FILES = 8
"""More missing files of one kind are told together."""
_TABLE_V2 = "meta/episodes.jsonl"
_CHUNK = re.compile(r"chunk-\d{1,9}")


def no_table(info: Info, place: str, files: Collection[str]) -> Breach:
    """Without the episode table nothing can be located; what it lists is not missing on top of it."""
    if info.version == "v3.0" and _TABLE_V2 in files:
        return Breach(
            rule=rules.VERSION,
            file=_TABLE_V2,
            expected=place,
            found=_TABLE_V2,
            message=f"codebase_version says v3.0, but the episode table is the one of v2.x ({_TABLE_V2}): label and layout "
            "disagree; correct the label, or finish the conversion",
        )
    counts = f"{info.total_episodes} episodes, {info.total_frames} frames"
    return Breach(
        rule=rules.MISSING_FILE,
        file=place,
        expected=counts,
        found="no such file",
        message=f"the episode table {place} is missing in our copy, and with it {counts} that info.json declares",
    )


def check_missing(
    users: Mapping[str, list[int]],
    present: Mapping[str, int],
    elsewhere: Mapping[str, str],
    cameras: Mapping[str, str] | None = None,
) -> list[Breach]:
    """Files that are named and not there. `elsewhere` maps a missing file to one that fits, at another place.

    `cameras` has the camera of each video file; one of which nothing is there is told once.
    """
    found: list[Breach] = []
    moved: dict[tuple[str, str], list[str]] = {}
    gone: dict[str, list[str]] = {}
    for name in users:
        if name in present:
            continue
        if name in elsewhere:
            places = (name.partition("/")[0], elsewhere[name].partition("/")[0])
            moved.setdefault(places, []).append(name)
            continue
        gone.setdefault(name.partition("/")[0], []).append(name)
    free = [name for name in present if name not in users and name not in elsewhere.values()]
    found += _misnamed(gone.get("videos", []), free, cameras or {}, users)
    gone["videos"] = [name for name in gone.get("videos", []) if name not in {breach.file for breach in found}]
    unseen = _unseen_cameras(cameras or {}, [name for names in gone.values() for name in names])
    found += [_no_videos(camera, names, users) for camera, names in unseen.items()]
    told = {name for names in unseen.values() for name in names}
    for folder, every in gone.items():
        names = [name for name in every if name not in told]
        if len(names) > MANY_FILES:
            found.append(_many_missing(folder, names, users))
            continue
        found += [
            Breach(
                rule=rules.MISSING_FILE,
                episodes=tuple(users[name]),
                file=name,
                expected="the file",
                found="missing in our copy",
                message=f"{name} is missing in our copy; episodes {listed(users[name])} lie in it",
            )
            for name in names
        ]
    found += [_elsewhere(places, names, users, present, elsewhere[names[0]]) for places, names in moved.items()]
    return found


def _elsewhere(
    places: tuple[str, str], names: list[str], users: Mapping[str, list[int]], present: Mapping[str, int], first: str
) -> Breach:
    """Files of one first folder that lie in another one, or in other folders below it; `first` is where the first one lies."""
    expected, actual = places
    wanted = [name for name in users if name.startswith(expected + "/")]
    there = sum(name in present for name in wanted)
    if expected != actual:
        text = (
            f"{there} of {len(wanted)} files lie where the template points ({expected}/); {len(names)} matching files lie"
            f" under {actual}/: correct the template or move the folder"
        )
    else:
        text = (
            f"{there} of {len(wanted)} files under {expected}/ lie where info.json puts them; {len(names)} matching files lie"
            f" in other folders, the first as {first} instead of {names[0]}: correct the template or chunks_size, or move the"
            " files"
        )
    return Breach(
        rule=rules.TEMPLATE,
        file=INFO_FILE,
        expected=f"{expected}/",
        found=f"{actual}/ ({len(names)} files)",
        message=text,
    )


def _misnamed(
    gone: list[str], free: list[str], cameras: Mapping[str, str], users: Mapping[str, list[int]]
) -> list[Breach]:
    """Missing videos of a camera that has videos of no episode: the number is wrong, and no upload will bring the file."""
    found: list[Breach] = []
    for name in gone:
        camera = cameras.get(name, "")
        spare = sorted(other for other in free if other.startswith("videos/") and camera in other.split("/"))
        if not spare:
            continue
        found.append(
            Breach(
                rule=rules.WRONG_FILE,
                episodes=tuple(users[name]),
                feature=camera,
                file=name,
                expected="a video file that is there",
                found=f"no such file, but {listed(spare)} of no episode",
                message=f"episodes {listed(users[name])}, {camera}: the episode table names {name}, which is not there, while "
                f"{listed(spare)} belong{'s' if len(spare) == 1 else ''} to no episode",
            )
        )
    return found


def _unseen_cameras(cameras: Mapping[str, str], gone: list[str]) -> dict[str, list[str]]:
    """Cameras of which every file, and more than one, is missing."""
    missing: dict[str, list[str]] = {}
    for name in gone:
        if name in cameras:
            missing.setdefault(cameras[name], []).append(name)
    named = Counter(cameras.values())
    return {camera: names for camera, names in missing.items() if len(names) == named[camera] > 1}


def _no_videos(camera: str, names: list[str], users: Mapping[str, list[int]]) -> Breach:
    hit = sorted({index for name in names for index in users[name]})
    return Breach(
        rule=rules.MISSING_FILE,
        episodes=tuple(hit),
        feature=camera,
        file=names[0],
        expected=f"{len(names)} files",
        found="missing in our copy",
        message=f"all {len(names)} video files of {camera} are missing in our copy ({listed(names[:3])}{', …' if len(names) > 3 else ''}); "
        f"episodes {listed(hit)} lie in them",
    )


def _many_missing(folder: str, names: list[str], users: Mapping[str, list[int]]) -> Breach:
    """With a file per episode one sentence says it better than thousands."""
    wanted = sum(name.startswith(folder + "/") for name in users)
    hit = sorted({index for name in names for index in users[name]})
    return Breach(
        rule=rules.MISSING_FILE,
        episodes=tuple(hit),
        file=names[0],
        expected=f"{wanted} files",
        found=f"{wanted - len(names)} files",
        message=f"{len(names)} of {wanted} files under {folder}/ are missing in our copy ({listed(names[:2])}, …); "
        f"episodes {listed(hit)} lie in them",
    )


def relocate(missing: list[str], present: list[str], *, across_chunks: bool = False) -> dict[str, str]:
    """For each missing file, the only present one with the same path below its first folder.

    `across_chunks`: whatever its chunk, which serves where no two chunks have files of one name.
    """

    def tail(name: str) -> tuple[str, ...]:
        parts = name.split("/")[1:]
        return tuple(part for part in parts if not (across_chunks and _CHUNK.fullmatch(part)))

    tails: dict[tuple[str, ...], list[str]] = {}
    for name in present:
        tails.setdefault(tail(name), []).append(name)
    matches = {name: tails.get(tail(name), []) for name in missing}
    return {name: found[0] for name, found in matches.items() if len(found) == 1}


def where_found(episode: Episode, moved: Mapping[str, str]) -> Episode:
    """The episode with its files where they really lie."""
    windows = tuple(replace(window, file=moved.get(window.file, window.file)) for window in episode.windows)
    return replace(episode, data_file=moved.get(episode.data_file, episode.data_file), windows=windows)
