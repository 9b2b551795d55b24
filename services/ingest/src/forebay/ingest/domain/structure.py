"""Checks on files and tables: is what the metadata names there, and does it say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import MAX_LISTED, Breach, listed
from forebay.ingest.domain.info_file import INFO_FILE
from forebay.ingest.domain.recording import ACTIONS, STATES, Episode, Info
from forebay.ingest.domain.signals import EpisodeScan

MAX_TASK_BYTES = 16 * 1024
"""Task texts of one episode; they travel in events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A Git LFS pointer that lies where a file should be."""

    file: str
    sha256: str
    bytes: int


def layout_of(files: list[str]) -> str:
    """`v3.0`, `v2.1`, `v2.0` or `unknown`, by the names of the files."""
    v3 = any(name.startswith("meta/episodes/") and name.endswith(".parquet") for name in files)
    v3 = v3 or any("/chunk-" in name and "/file-" in name for name in files)
    v2 = "meta/episodes.jsonl" in files or any("/episode_" in name for name in files)
    if v3 and not v2:
        return "v3.0"
    return _v2(files) if v2 and not v3 else "unknown"


def _v2(files: list[str]) -> str:
    """Only the statistics per episode tell v2.1 from v2.0; without any the newer one is named."""
    return "v2.0" if "meta/episodes_stats.jsonl" not in files and "meta/stats.json" in files else "v2.1"


def check_pointers(pointers: list[Pointer], content_files: int, users: Mapping[str, list[int]]) -> list[Breach]:
    """One cause for all pointers together, so that nobody looks for a corrupt file.

    Without `users` nobody knows which episodes lie in which file; with them, pointers that no episode needs count for nothing.
    """
    if users:
        pointers = [pointer for pointer in pointers if pointer.file in users]
    if not pointers:
        return []
    hit = {episode for pointer in pointers for episode in users.get(pointer.file, ())}
    first = pointers[0]
    told = [f"{p.file} (sha256 {p.sha256}, {p.bytes} bytes)" for p in pointers[:MAX_LISTED]]
    whole = not users or len(pointers) == content_files
    return [
        Breach(
            rule=rules.LFS_POINTER,
            episodes=None if whole else tuple(sorted(hit)),
            file=first.file,
            expected=f"{first.bytes} bytes, sha256 {first.sha256}",
            found=f"{len(pointers)} Git LFS pointers",
            message=f"{len(pointers)} of {content_files} files of the dataset are Git LFS pointers; their content was not fetched: "
            + "; ".join(told)
            + (f" and {len(pointers) - MAX_LISTED} more" if len(pointers) > MAX_LISTED else ""),
        )
    ]


def files_used(episodes: list[Episode]) -> dict[str, list[int]]:
    """Every data and video file with the episodes that lie in it."""
    users: dict[str, list[int]] = {}
    for episode in episodes:
        for name in dict.fromkeys([episode.data_file, *(window.file for window in episode.windows)]):
            users.setdefault(name, []).append(episode.index)
    return users


def check_rows(episode: Episode, scan: EpisodeScan | None, unreadable: set[str]) -> list[Breach]:
    """Length, place and number of an episode's rows."""
    rows = scan.rows if scan is not None else 0
    if episode.length == 0 and rows == 0:
        return [
            Breach(
                rule=rules.EMPTY_EPISODE,
                episodes=(episode.index,),
                expected="at least 1 frame",
                found="0 frames",
                message=f"episode {episode.index} is empty: declared length 0 and no row",
            )
        ]
    if scan is None and episode.data_file in unreadable:
        return []
    found: list[Breach] = []
    elsewhere = {} if scan is None else {n: count for n, count in scan.files.items() if n != episode.data_file}
    if elsewhere:
        here = rows - sum(elsewhere.values())
        where = ", ".join(f"{count} in {name}" for name, count in sorted(elsewhere.items())[:4])
        found.append(
            Breach(
                rule=rules.WRONG_FILE,
                episodes=(episode.index,),
                file=episode.data_file,
                expected=episode.data_file,
                found=listed(sorted(elsewhere)),
                message=f"episode {episode.index} is declared in {episode.data_file}, where it has {here} rows; {where}",
            )
        )
    declared = {episode.length}
    if episode.from_index is not None and episode.to_index is not None:
        declared.add(episode.to_index - episode.from_index)
    if declared != {rows} and not (elsewhere and episode.data_file in unreadable):
        text = " and ".join(str(length) for length in sorted(declared))
        found.append(
            Breach(
                rule=rules.LENGTH,
                episodes=(episode.index,),
                file=episode.data_file,
                expected=f"{text} declared",
                found=f"{rows} stored",
                message=f"episode {episode.index}: declared length {text}, stored rows {rows}",
            )
        )
    elif _starts_elsewhere(episode, scan) and scan is not None:
        found.append(
            Breach(
                rule=rules.FRAME_ORDER,
                episodes=(episode.index,),
                feature="index",
                file=episode.data_file,
                frame=0,
                expected=str(episode.from_index),
                found=str(scan.first_index),
                message=f"episode {episode.index}: index starts at {scan.first_index}, the episode table says {episode.from_index}",
            )
        )
    return found


def _starts_elsewhere(episode: Episode, scan: EpisodeScan | None) -> bool:
    """Both say where the episode starts in the dataset, and they differ."""
    if scan is None or scan.first_index is None or episode.from_index is None:
        return False
    return scan.first_index != episode.from_index


def check_orphans(scans: Mapping[int, EpisodeScan], listed_episodes: set[int]) -> list[Breach]:
    """Rows of episodes that the episode table does not know."""
    orphans = sorted(index for index in scans if index not in listed_episodes)
    if not orphans:
        return []
    rows = sum(scans[index].rows for index in orphans)
    return [
        Breach(
            rule=rules.ORPHAN_ROWS,
            file=next(iter(scans[orphans[0]].files), None),
            expected="only listed episodes",
            found=f"{rows} rows of episodes {listed(orphans)}",
            message=f"{rows} rows belong to episodes {listed(orphans)}, which the episode table does not list; they are left out",
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What is really there, beside what info.json declares."""

    listed: int
    """Entries of the episode table."""
    absent: tuple[int, ...] = ()
    """The first numbers below the declared total that the table does not list."""
    declared_frames: int
    """Sum of their lengths."""
    stored_frames: int
    whole: bool
    """Every named file is there and readable."""
    statistics_frames: int | None = None
    """Frames that stats.json was made from."""
    tasks: int | None = None
    unused_tasks: int = 0
    videos: int = 0
    """Video files that are named."""


def check_totals(info: Info, counts: Counts) -> list[Breach]:
    """Totals and splits. More declared than stored, with a trace of the rest, is a partial copy, not a stale file."""
    partial = counts.stored_frames < info.total_frames or not counts.whole or not counts.listed
    if info.total_episodes > counts.listed and partial and _is_partial(counts):
        missing = listed(list(counts.absent))
        return [
            Breach(
                rule=rules.MISSING_FILE,
                file=INFO_FILE,
                expected=f"{info.total_episodes} episodes, {info.total_frames} frames",
                found=f"{counts.listed} episodes, {counts.stored_frames} frames",
                message=f"episodes {missing} are missing in our copy: info.json declares {info.total_episodes} episodes and "
                f"{info.total_frames} frames, here are {counts.listed} and {counts.stored_frames}; upload the remaining files",
            )
        ]
    found: list[Breach] = []
    if info.total_episodes != counts.listed and "total_episodes" not in info.unknown:
        found.append(_total("total_episodes", info.total_episodes, counts.listed))
    if (
        counts.whole
        and "total_frames" not in info.unknown
        and info.total_frames not in {counts.declared_frames, counts.stored_frames}
    ):
        found.append(_total("total_frames", info.total_frames, counts.stored_frames))
    if info.total_tasks is not None and counts.tasks is not None and info.total_tasks != counts.tasks:
        found.append(replace(_total("total_tasks", info.total_tasks, counts.tasks), lowered="warning"))
    declared = info.document.get("total_videos")
    # v2.x counts one for each camera of an episode, v3.0 does not write it at all
    counted = {len(info.cameras) * counts.listed} | ({counts.videos} if info.version == "v3.0" else set())
    if isinstance(declared, int) and declared not in counted and counts.listed == info.total_episodes:
        found.append(replace(_total("total_videos", declared, max(counted)), lowered="warning"))
    found += [
        Breach(
            rule=rules.TOTALS,
            file=INFO_FILE,
            feature=f"splits.{name}",
            expected=f"an end of at most {counts.listed}",
            found=str(end),
            # LeRobot never reads splits: beside right totals an end that lies too far hides nothing
            lowered="warning" if info.total_episodes == counts.listed else None,
            message=f"split {name!r} ends at episode {end}, but there are {counts.listed}",
        )
        for name, end in info.splits
        if end > counts.listed
    ]
    return found


def _is_partial(counts: Counts) -> bool:
    """Statistics over more frames than are here, or tasks that no frame uses, show that the rest exists."""
    more = counts.statistics_frames is not None and counts.statistics_frames > counts.stored_frames
    return more or counts.unused_tasks > 0 or not counts.whole


def _total(name: str, declared: int, stored: int) -> Breach:
    return Breach(
        rule=rules.TOTALS,
        file=INFO_FILE,
        feature=name,
        expected=f"{stored} stored",
        found=f"{declared} declared",
        message=f"info.json says {name} = {declared}, stored are {stored}",
    )


def check_tasks(episode: Episode, scan: EpisodeScan, tasks: Mapping[int, str], table: str) -> list[Breach]:
    """Task numbers of the rows against the task table (the file `table`) and the episode's own texts."""
    if not scan.tasks:
        return []  # the rows have no such column
    unknown = {task: rows for task, rows in scan.tasks.items() if task not in tasks}
    own = None if episode.tasks is None else set(episode.tasks)
    if unknown:
        task, rows = next(iter(sorted(unknown.items())))
        text = f"; the episode's text {listed(sorted(own))!r} comes from another entry" if own else ""
        return [
            Breach(
                rule=rules.TASK_UNKNOWN,
                episodes=(episode.index,),
                feature="task_index",
                file=table,
                expected=f"one of {listed(sorted(tasks))}",
                found=str(task),
                message=f"episode {episode.index}: task_index {task} ({rows} frames) is not in the task table{text}",
            )
        ]
    texts = {tasks[task] for task in scan.tasks}
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > MAX_TASK_BYTES:
        return [
            Breach(
                rule=rules.EPISODE_ROW,
                episodes=(episode.index,),
                feature="task_index",
                file=table,
                expected=f"at most {MAX_TASK_BYTES} bytes of task text",
                found=f"{size} bytes",
                message=f"episode {episode.index}: its {len(texts)} tasks have {size} bytes of text, at most {MAX_TASK_BYTES} are carried",
            )
        ]
    if own is None or own == texts:
        return []
    more = listed(sorted(own - texts))
    if own > texts:  # readers differ in how many of an episode's texts they take
        return [
            Breach(
                rule=rules.TASK_TEXT,
                episodes=(episode.index,),
                feature="task_index",
                file=episode.data_file,
                expected="texts that a row's task_index means",
                found=more,
                message=f"episode {episode.index}: among its texts is {more!r}, which no task_index of its rows means",
            )
        ]
    return [
        Breach(
            rule=rules.TASK_TEXT,
            episodes=(episode.index,),
            feature="task_index",
            file=episode.data_file,
            expected=listed(sorted(texts)),
            found=listed(sorted(own)),
            message=f"episode {episode.index}: its text is {listed(sorted(own))!r}, its task_index means {listed(sorted(texts))!r}",
        )
    ]


def check_descriptions(info: Info, statistics: set[str] | None) -> list[Breach]:
    """Cameras without axis names; where also their statistics are missing, both are told. And signals without any."""
    found: list[Breach] = []
    signals = [feature.key for feature in info.row_features if feature.key in (*ACTIONS, *STATES)]
    bare = [key for key in signals if statistics is not None and key not in statistics]
    if bare and info.version == "v3.0":
        text = f"meta/stats.json has no statistics of {listed(bare)}; training would take it as it is, not normalised"
        found.append(
            Breach(
                rule=rules.EPISODE_STATS,
                feature=bare[0],
                file="meta/stats.json",
                expected=f"statistics of {listed(bare)}",
                found="none",
                message=text,
            )
        )
    for camera in (*info.cameras, *info.image_cameras):
        if camera.names_known:
            continue
        found.append(
            Breach(
                rule=rules.CAMERA_NAMES,
                feature=camera.key,
                file=INFO_FILE,
                expected="names of the axes",
                found="null",
                message=f"{camera.key} has no names; height, width, channels are assumed from its shape {list(camera.shape)}",
            )
        )
        if statistics is not None and camera.key not in statistics:
            found.append(
                Breach(
                    rule=rules.CAMERA_NAMES,
                    feature=camera.key,
                    file="meta/stats.json",
                    expected="image statistics",
                    found="none",
                    message=f"{camera.key} has no entry in stats.json; training set-ups must not rely on it",
                )
            )
    return found
