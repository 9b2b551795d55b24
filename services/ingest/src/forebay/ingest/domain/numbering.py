"""Numbers that only make sense together: episodes counted from 0, and rows counted through the whole dataset.

Versions count both anew, so what is wrong here loses nothing in a conversion; readers
of the source itself look episodes and rows up by their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.recording import Episode
from forebay.ingest.domain.signals import EpisodeScan


def check_numbering(episodes: Sequence[Episode], scans: Mapping[int, EpisodeScan], table: str) -> list[Breach]:
    """`episodes` are all that the episode table (the file `table`) lists, in order."""
    claims = _check_claims([episode for episode in episodes if _agrees(episode, scans.get(episode.index))])
    odd = claims or _check_count(episodes, scans) or _check_places(episodes, scans)
    return [*_check_numbers(episodes, table), *odd]


def _agrees(episode: Episode, scan: EpisodeScan | None) -> bool:
    """Whether the rows are as many, and start where the table says; what is not is told with the episode."""
    if scan is None or episode.from_index is None or episode.to_index is None:
        return True
    return scan.first_index == episode.from_index and scan.rows == episode.to_index - episode.from_index


def _check_numbers(episodes: Sequence[Episode], table: str) -> list[Breach]:
    numbers = [episode.index for episode in episodes]
    absent = sorted(set(range(min(max(numbers, default=0), len(numbers) + 1000))) - set(numbers))
    if not absent:
        return []
    return [
        Breach(
            rule=rules.EPISODE_NUMBERS,
            by_place=True,
            file=table,
            expected=f"0 to {len(numbers) - 1}",
            found=f"{numbers[0]} to {numbers[-1]} without {listed(absent)}",
            message=f"the {len(numbers)} episodes are numbered {numbers[0]} to {numbers[-1]}, {listed(absent)} are not there; "
            "LeRobot looks episodes up by their place and would take others",
        )
    ]


def _check_claims(episodes: Sequence[Episode]) -> list[Breach]:
    """Rows that two entries of the episode table claim: readers cut the dataset by these numbers."""
    claims = sorted((e.from_index, e.index, e.to_index) for e in episodes if e.from_index is not None and e.to_index)
    found: list[Breach] = []
    reached, owner = 0, -1
    for start, index, stop in claims:
        if stop <= start:
            continue
        if start < reached:
            text = f"the episode table gives it the rows {start} to {stop}, of which episode {owner} has those before {reached}"
            found.append(
                Breach(
                    rule=rules.FRAME_ORDER,
                    episodes=(index,),
                    feature="index",
                    frame=0,
                    expected=f"a first row from {reached}",
                    found=str(start),
                    message=f"episode {index}: {text}; readers that cut the dataset by them take foreign rows",
                )
            )
        if stop > reached:
            reached, owner = stop, index
    return found


def _check_count(episodes: Sequence[Episode], scans: Mapping[int, EpisodeScan]) -> list[Breach]:
    """Whether `index` goes on from episode to episode; in itself each is told with its episode."""
    wanted, odd = 0, []
    for episode in episodes:
        scan = scans.get(episode.index)
        if scan is None or scan.first_index is None or episode.from_index not in {None, scan.first_index}:
            return []  # told with the episode
        if scan.first_index != wanted:
            odd.append((episode.index, scan.first_index, wanted))
        wanted = scan.first_index + scan.rows
    if not odd:
        return []
    index, first, expected = odd[0]
    return [
        Breach(
            rule=rules.FRAME_ORDER,
            lowered="warning",
            episodes=(),
            feature="index",
            frame=0,
            expected=str(expected),
            found=str(first),
            message=f"index does not count through the dataset: episode {index} starts at {first}, the one before ends at "
            f"{expected - 1} ({len(odd)} such places); versions count it anew",
        )
    ]


def _check_places(episodes: Sequence[Episode], scans: Mapping[int, EpisodeScan]) -> list[Breach]:
    """Whether rows lie where their `index` says, counted through all files in the order of their names."""
    sizes: dict[str, int] = {}
    for scan in scans.values():
        for file, rows in scan.files.items():
            sizes[file] = sizes.get(file, 0) + rows
    starts: dict[str, int] = {}
    total = 0
    for file in sorted(sizes):
        starts[file] = total
        total += sizes[file]
    odd: list[tuple[int, int, int]] = []
    for episode in episodes:
        own = scans.get(episode.index)
        if own is None or episode.from_index is None or own.first_index is None or len(own.places) != 1:
            continue
        ((file, row),) = own.places.items()
        if starts[file] + row != own.first_index:
            odd.append((episode.index, own.first_index, starts[file] + row))
    if not odd:
        return []
    index, first, place = odd[0]
    return [
        Breach(
            rule=rules.FRAME_ORDER,
            by_place=True,
            lowered="warning",
            episodes=(),
            feature="index",
            frame=0,
            expected=str(first),
            found=str(place),
            message=f"index starts at {first} in episode {index}, whose rows come at place {place} of all data files"
            f" ({len(odd)} such episodes); LeRobot takes rows by their place, versions put them in order",
        )
    ]
