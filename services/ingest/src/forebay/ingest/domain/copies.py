"""Rows that lie in two data files: which of them are the episode's, and whom the others harm.

The episode table names one file for each episode. When that file has them all, rows of
the episode anywhere else are copies: a download that was saved twice, a backup where
readers look, a column episode_index that was never counted up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.recording import Episode


@dataclass(slots=True)
class Copies:
    """What is set aside."""

    aside: dict[str, frozenset[int]] = field(default_factory=dict)
    """File -> episodes whose rows in it are copies."""
    lost: set[int] = field(default_factory=set)
    """Episodes in whose file others stand instead."""
    breaches: list[Breach] = field(default_factory=list)


def find_copies(
    rows: Mapping[str, Mapping[int, int]], episodes: Sequence[Episode], users: Mapping[str, Sequence[int]]
) -> Copies:
    """`rows` has the rows of each episode in each file; `users` are the episodes that the table puts into a file."""
    own = {episode.index: episode.data_file for episode in episodes}
    whole = {e.index for e in episodes if e.length and rows.get(e.data_file, {}).get(e.index) == e.length}
    copies = Copies()
    twice: dict[str, list[int]] = {}
    for file, there in rows.items():
        surplus = sorted(index for index in there if index in whole and own[index] != file)
        if not surplus:
            continue
        copies.aside[file] = frozenset(surplus)
        count = sum(there[index] for index in surplus)
        lost = tuple(index for index in users.get(file, ()) if index not in there)
        copies.lost.update(lost)
        if not lost:
            twice[file] = surplus
            continue
        text = (
            f"{file} is the file of episodes {listed(lost)}, but its {count} rows say that they are of episodes"
            f" {listed(surplus)}, which have all of theirs in {listed(sorted({own[index] for index in surplus}))}"
        )
        copies.breaches.append(
            Breach(
                rule=rules.WRONG_FILE,
                episodes=lost,
                feature="episode_index",
                file=file,
                expected=f"rows of episodes {listed(lost)}",
                found=f"{count} rows of episodes {listed(surplus)}",
                message=text,
            )
        )
    if twice:
        copies.breaches.append(_twice(twice, rows))
    return copies


def _twice(files: Mapping[str, Sequence[int]], rows: Mapping[str, Mapping[int, int]]) -> Breach:
    """Files that nobody names, or that are named for others, which are all there."""
    episodes = tuple(sorted({index for there in files.values() for index in there}))
    count = sum(rows[file][index] for file, there in files.items() for index in there)
    names = sorted(files)
    return Breach(
        rule=rules.WRONG_FILE,
        episodes=episodes,
        file=names[0],
        expected="each row in one file",
        found=f"{count} rows of episodes {listed(episodes)}",
        message=f"{count} rows of episodes {listed(episodes)} lie a second time in {listed(names)}, where the episode table "
        "puts none of them; readers that take whole folders count them twice",
    )
