"""Files that no episode needs. They reject nothing: they are left out, and reported once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed

_UNREADABLE = "cannot be read"
_OTHER_COLUMNS = "with other columns"
_UNLISTED_ROWS = "with rows of episodes that are not listed"


def look_of(broken: Sequence[Breach]) -> str:
    """What such a data file holds, by what is wrong with it."""
    errors = {breach.rule.id for breach in broken if breach.severity == "error"}
    if rules.PARQUET_UNREADABLE.id in errors:
        return _UNREADABLE
    return _OTHER_COLUMNS if errors else _UNLISTED_ROWS


def check_data(aside: Sequence[str], looks: Mapping[str, str]) -> list[Breach]:
    """Data files of no episode: `aside` where no episode can name them and unread, the others with what they hold."""
    names = sorted({*aside, *looks})
    if not names:
        return []
    kinds = Counter(looks.values())
    held = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    one = len(names) == 1
    return [
        Breach(
            rule=rules.STRAY_FILE,
            file=names[0],
            expected="an episode in every data file",
            found=f"{len(names)} file{'' if one else 's'} of no episode",
            message=f"{len(names)} file{' under data/ belongs' if one else 's under data/ belong'} to no episode:"
            f" {listed(names)}{f' ({held})' if held else ''}; left out here, but tools that take every file would read"
            f" {'it' if one else 'them'}",
            advice="Delete the files that belong to no episode.",
        )
    ]


def check_stray(videos: Iterable[str], used: Iterable[str], aside: Iterable[str]) -> list[Breach]:
    """Video files that no episode names; and `aside`, what other systems leave beside them."""
    stray, beside = sorted(set(videos) - set(used)), sorted(aside)
    found: list[Breach] = []
    if beside:
        found.append(
            Breach(
                rule=rules.STRAY_FILE,
                file=beside[0],
                expected="files of the dataset only",
                found=f"{len(beside)} other files",
                message=f"{len(beside)} files are none of the dataset's and are left out: {listed(beside)}; "
                "delete them, because tools that take every file would read them",
            )
        )
    if stray:
        found.append(
            Breach(
                rule=rules.STRAY_FILE,
                file=stray[0],
                expected="an episode in every video file",
                found=f"{len(stray)} files of no episode",
                message=f"{len(stray)} video file{' belongs' if len(stray) == 1 else 's belong'} to no episode: {listed(stray)}",
            )
        )
    return found
