"""Files that did not come as they should: still on their way, changing, not the announced ones, or not to be opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.info_file import INFO_FILE


def check_no_info(
    files: Sequence[str],
    layout: str,
    arriving: list[str],
    unusable: str | None,
    other: tuple[str, str] | None = None,
) -> list[Breach]:
    """A folder without a usable meta/info.json: not all here yet, or none of LeRobot's.

    `unusable` says what is wrong with the file; `other` what the place is instead, and what to do.
    """
    deeper = sorted(name.removesuffix(f"/{INFO_FILE}") for name in files if name.endswith(f"/{INFO_FILE}"))
    advice = None
    if unusable is not None:
        text = f"{INFO_FILE} is not usable: {unusable}"
    elif deeper:
        text = f"there is no {INFO_FILE} in this folder, but there are datasets in it: {listed(deeper)}"
        advice = f"Give the folder of one dataset, {deeper[0]} for example."
    elif other is not None:
        text, advice = f"it is {other[0]}", other[1]
    elif layout != "unknown" or arriving:
        return check_info_missing(len(files), arriving)
    else:
        text = f"there is no {INFO_FILE} in this folder"
    return [
        Breach(
            rule=rules.NOT_A_DATASET,
            file=INFO_FILE,
            expected=INFO_FILE,
            found=f"{len(files)} files",
            advice=advice,
            message=f"this is not a LeRobot dataset: {text}",
        )
    ]


def check_info_missing(files: int, arriving: list[str]) -> list[Breach]:
    """A dataset whose description has not come yet: the rest of it is there."""
    return [
        Breach(
            rule=rules.MISSING_FILE,
            file=INFO_FILE,
            expected="the file",
            found=f"{files} other files",
            message=f"{INFO_FILE} is missing in our copy, while {files} files of a dataset are there",
        ),
        *check_arriving(arriving),
    ]


def check_arriving(arriving: list[str]) -> list[Breach]:
    """Unfinished files beside missing ones: the transfer goes on, or was given up."""
    if not arriving:
        return []
    return [
        Breach(
            rule=rules.MISSING_FILE,
            episodes=(),
            file=arriving[0],
            expected="whole files",
            found=f"{len(arriving)} unfinished",
            advice="Wait for the transfer, then validate again.",
            message=f"{len(arriving)} files are still arriving ({listed(arriving[:3])}); wait for the transfer, then look again",
        )
    ]


def unsettle(breaches: list[Breach], changed: list[str], users: Mapping[str, list[int]]) -> list[Breach]:
    """Of files that changed while they were looked at nothing is known but that they are not whole yet."""
    if not changed:
        return breaches
    broken = {rules.PARQUET_UNREADABLE.id, rules.VIDEO_UNREADABLE.id}
    hit = sorted({index for name in changed for index in users.get(name, ())})
    kept = [breach for breach in breaches if breach.rule.id not in broken or breach.file not in changed]
    return [
        *kept,
        Breach(
            rule=rules.MISSING_FILE,
            episodes=None if any(name.startswith("meta/") for name in changed) else tuple(hit),
            file=changed[0],
            advice="Wait until nobody writes to the folder, then validate again.",
            expected="a folder that nobody writes to",
            found=f"{len(changed)} files changed",
            message=f"{len(changed)} files changed while they were looked at ({listed(changed[:3])}): "
            "the dataset is still being written; look again when that is over",
        ),
    ]


def check_announced(distrusted: Mapping[str, str], users: Mapping[str, Sequence[int]]) -> list[Breach]:
    """Files that are not what the collector announced; what no episode needs is only told."""
    found: list[Breach] = []
    for name, why in distrusted.items():
        hit = None if name.startswith("meta/") else tuple(users.get(name, ()))
        found.append(
            Breach(
                rule=rules.MANIFEST,
                lowered="warning" if hit == () else None,
                episodes=hit,
                file=name,
                expected="as announced",
                found=why,
                message=f"{name}: {why}",
            )
        )
    return found


def check_refused(refused: Mapping[str, str], users: Mapping[str, Sequence[int]]) -> list[Breach]:
    """Links and devices where a file should be, as far as the dataset needs it."""
    return [
        Breach(
            rule=rules.UNSAFE_PATH,
            episodes=None if name.startswith("meta/") else tuple(users[name]),
            file=name,
            found=why,
            message=f"{name}: {why}",
        )
        for name, why in refused.items()
        if name in users or name.startswith("meta/")
    ]
