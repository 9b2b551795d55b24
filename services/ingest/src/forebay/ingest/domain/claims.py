"""What a collector says about an episode, against what its files hold. Files win; a difference is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from forebay.contracts.v1.episodes import EpisodeContent, EpisodeUploaded, RowWindow, TimeWindow
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, printable
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.domain.report import EpisodeReport
from forebay.ingest.domain.verdict_values import Content

_SECONDS = 1e-3
"""Windows closer than this are the same."""
_SHOWN = 100


def claimed_by(body: EpisodeUploaded) -> Content:
    """What the collector says."""
    return Content(
        length=body.length, tasks=body.tasks, rows=_rows(body.rows), videos=_videos(body.videos), robot=body.robot
    )


def content_of(length: int, body: EpisodeContent) -> Content:
    """What a verdict says that the files hold."""
    return Content(
        length=length, tasks=body.tasks, rows=_rows(body.rows), videos=_videos(body.videos), robot=body.robot
    )


def as_event(content: Content) -> EpisodeContent:
    """The same as it travels in a verdict."""
    file, start, stop = content.rows
    return EpisodeContent(
        tasks=content.tasks,
        rows=RowWindow(file=file, start=start, stop=stop),
        videos=tuple(TimeWindow(camera=c, file=f, start=a, stop=b) for c, f, a, b in content.videos),
        robot=content.robot,
    )


def compare(
    claimed: Mapping[int, Content], judged: Sequence[EpisodeReport], declared: Sequence[Episode], info: Info
) -> tuple[list[Breach], dict[int, Content]]:
    """Breaches, and what the files hold of each episode about which the collector said something else.

    Where the episode table and the rows disagree, other rules say so; a collector that
    repeats the table has claimed nothing of its own.
    """
    breaches: list[Breach] = []
    contents: dict[int, Content] = {}
    starts = _first_rows(declared)
    listed = {episode.index: episode for episode in declared}
    for report in judged:
        claim, entry = claimed.get(report.index), listed.get(report.index)
        if claim is None or entry is None:
            continue
        found = _found(report, entry, starts, info)
        if _without_length(_differences(claim, found)):
            contents[report.index] = found
        repeated = _differences(claim, _declared(entry, found))
        told = [line for line in _differences(claim, found) if line[0] in {name for name, *_ in repeated}]
        if told:
            breaches.append(_breach(report.index, told))
    return breaches, contents


def _found(report: EpisodeReport, entry: Episode, starts: Mapping[str, int], info: Info) -> Content:
    first = 0 if entry.from_index is None else entry.from_index - starts[entry.data_file]
    length = entry.length if entry.from_index is None or entry.to_index is None else entry.to_index - entry.from_index
    return Content(
        length=report.frames,
        tasks=report.tasks,
        rows=(entry.data_file, first, first + length),
        videos=tuple((window.camera, window.file, window.start, window.stop) for window in entry.windows),
        robot=info.robot,
    )


def _declared(entry: Episode, found: Content) -> Content:
    """The same as the episode table alone has it."""
    tasks = found.tasks if entry.tasks is None else entry.tasks
    return Content(length=entry.length, tasks=tasks, rows=found.rows, videos=found.videos, robot=found.robot)


def _first_rows(declared: Iterable[Episode]) -> dict[str, int]:
    first: dict[str, int] = {}
    for entry in declared:
        if entry.from_index is not None:
            first[entry.data_file] = min(first.get(entry.data_file, entry.from_index), entry.from_index)
    return first


def _differences(claim: Content, found: Content) -> list[tuple[str, str, str]]:
    """(what, claimed, found) of each difference. What is not claimed does not differ."""
    return list(_each(claim, found))


def _each(claim: Content, found: Content) -> Iterator[tuple[str, str, str]]:
    if claim.length != found.length:
        yield "frames", str(claim.length), str(found.length)
    if claim.tasks and set(claim.tasks) != set(found.tasks):
        yield "tasks", _text(claim.tasks), _text(found.tasks)
    if claim.robot is not None and claim.robot != found.robot:
        yield "robot", _text(claim.robot), _text(found.robot)
    if claim.rows != found.rows:
        yield "rows", _text(claim.rows), _text(found.rows)
    if not _same_videos(claim.videos, found.videos):
        yield "videos", _text(claim.videos), _text(found.videos)


def _same_videos(
    one: tuple[tuple[str, str, float, float], ...], other: tuple[tuple[str, str, float, float], ...]
) -> bool:
    return len(one) == len(other) and all(
        a[:2] == b[:2] and abs(a[2] - b[2]) < _SECONDS and abs(a[3] - b[3]) < _SECONDS
        for a, b in zip(sorted(one), sorted(other), strict=True)
    )


def _without_length(lines: list[tuple[str, str, str]]) -> bool:
    """The length is in every verdict; the rest only when it differs."""
    return any(name != "frames" for name, *_ in lines)


def _breach(index: int, told: list[tuple[str, str, str]]) -> Breach:
    claims, finds = (", ".join(f"{line[0]} {line[part]}" for line in told) for part in (1, 2))
    return Breach(
        rule=rules.CLAIM,
        episodes=(index,),
        message=f"episode {index}: the collector announced {claims}; the files hold {finds}, and that counts",
        expected=finds,
        found=claims,
    )


def _rows(rows: RowWindow) -> tuple[str, int, int]:
    return rows.file, rows.start, rows.stop


def _videos(videos: tuple[TimeWindow, ...]) -> tuple[tuple[str, str, float, float], ...]:
    return tuple((video.camera, video.file, video.start, video.stop) for video in videos)


def _text(value: object) -> str:
    return printable(repr(value), _SHOWN)
