"""What the demo shows while it waits: events and progress from `forebay watch --json`.

Used by `demo.py` only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

Body = Mapping[str, Any]


class DemoError(Exception):
    """The story did not go as it must."""


def _bytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


_COUNTED = {"EpisodeUploaded", "EpisodeAccepted"}
_SAY: dict[str, Callable[[Body], str]] = {
    "JobSubmitted": lambda b: f"{b['job']} is on record",
    "UploadStarted": lambda b: f"{b['expected_episodes']} episodes, {_bytes(b['expected_bytes'])} are to come",
    "UploadFinished": lambda b: f"{b['episodes']} episodes in {b['files']} files arrived",
    "EpisodeRejected": lambda b: f"episode {b['source_index']}: {b['findings'][0]['rule']}: {b['findings'][0]['message']}",
    "EpisodeHeld": lambda b: f"episode {b['source_index']}: {b['findings'][0]['rule']}: {b['findings'][0]['message']}",
    "DatasetVersionCommitted": lambda b: f"{b['dataset']}@v{b['number']}: {b['episode_count']} episodes, {b['frame_count']} frames, read back and compared",
    "DatasetTagged": lambda b: f"{b['dataset']}@{b['tag']} names v{b['number']}",
    "LeaseGranted": lambda b: "inputs pinned: " + ", ".join(f"{i['logical']} = v{i['number']}" for i in b["inputs"]),
    "CachePlanned": lambda b: f"{_bytes(b['total_bytes'])} of {_bytes(b['whole_bytes'])} in {b['files']} files for {', '.join(b['columns']) or 'all columns'}",
    "CacheReady": lambda b: f"{_bytes(b['verified_bytes'])} verified through {b['adapter']} in {b['seconds']:.1f} s" + (f" ({b['cannot_prove']})" if b.get("cannot_prove") else ""),
    "CachePartial": lambda b: b["message"],
    "CacheFailed": lambda b: b["message"],
    "JobGateOpened": lambda b: f"all {len(b['conditions'])} conditions hold",
    "WorkloadAdmitted": lambda b: f"attempt {b['attempt']} has its quota",
    "PreflightReported": lambda b: ", ".join(f"{c['name']} {c['status']}" for c in b["checks"]),
    "ResumeDecided": lambda b: f"attempt {b['attempt']}: {b['mode']}" + (f" from step {b['step']}" if b.get("step") is not None else "") + f" ({'; '.join(b['reasons'])})",
    "AttemptStarted": lambda b: f"attempt {b['attempt']}, process {b['process']} on {b['host']}" + (f", recovers attempt {b['recovers']}" if b.get("recovers") else ""),
    "CheckpointWritten": lambda b: f"step {b['step']}, {len(b['files'])} files" + "".join(f", {k} {v:.4f}" for k, v in sorted(b.get("metrics", {}).items()) if k == "held_out_loss"),
    "AttemptEnded": lambda b: f"attempt {b['attempt']}: {b['message']}",
    "JobSucceeded": lambda b: f"{b['job']} after {b['attempts']} attempts",
    "JobFailed": lambda b: b["message"],
    "LeaseReleased": lambda b: f"{b['job']}: {b['reason']}",
}  # fmt: skip


class Timeline:
    """Follows the log through the public command line and prints it readably."""

    def __init__(self, console: Console, environment: Mapping[str, str]) -> None:
        self._console = console
        self._environment = dict(environment)
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._bars = Progress(
            TextColumn("  {task.description:<28}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "forebay.cli", "watch", "--all", "--json"]
        self._watch = subprocess.Popen(  # noqa: S603 our own command line
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._bars.start()
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.terminate()
        self._watch.wait()
        self._bars.stop()

    def wait(self, event: str, *, within: float, least_step: int = 0, **body: Any) -> dict[str, Any]:
        """Wait for an event; raises `DemoError` when it does not come, or when the job fails before."""
        end = time.monotonic() + within
        with self._changed:
            while True:
                for one in self._events:
                    if one["event"] == event and self._fits(one["body"], body, least_step):
                        return one
                    if one["event"] in {"JobFailed", "CacheFailed"} and event != one["event"]:
                        msg = f"while waiting for {event}: {one['event']}: {one['body']['message']}"
                        raise DemoError(msg)
                left = end - time.monotonic()
                if left <= 0 or self._watch.poll() is not None:
                    msg = f"no {event} {body} within {within:.0f} s"
                    raise DemoError(msg)
                self._changed.wait(min(left, 1.0))

    def summary(self, job: str) -> Iterator[str]:
        """Where the time went, as the events say."""
        times = {one["event"]: datetime.fromisoformat(one["stored_at"]) for one in reversed(self._events)}
        ends = {one["event"]: datetime.fromisoformat(one["stored_at"]) for one in self._events}

        def between(first: str, last: str) -> float:
            return (ends[last] - times[first]).total_seconds()

        opened = (times["JobGateOpened"] - times["JobSubmitted"]).total_seconds()
        yield f"{job} waited {opened:.1f} s for its data and held no quota meanwhile"
        yield f"upload {between('UploadStarted', 'UploadFinished'):.1f} s · checked, converted and read back {(times['DatasetTagged'] - times['UploadFinished']).total_seconds():.1f} s"
        yield f"planned and warmed {(times['CacheReady'] - times['LeaseGranted']).total_seconds():.1f} s · gate open to process started {(times['AttemptStarted'] - times['JobGateOpened']).total_seconds():.1f} s"
        killed = (ends["AttemptStarted"] - times["AttemptEnded"]).total_seconds()
        yield f"killed to running again {killed:.1f} s · training in all {between('AttemptStarted', 'JobSucceeded'):.1f} s"
        yield f"{len(self._events)} events in the log"

    @staticmethod
    def _fits(found: Body, wanted: Body, least_step: int) -> bool:
        return (
            all(found.get(name) == value for name, value in wanted.items())
            and found.get("step", least_step) >= least_step
        )

    def _read(self) -> None:
        lines = self._watch.stdout
        if lines is None:
            return
        for line in lines:
            found = json.loads(line)
            if "event" in found:
                self._show(found)
                with self._changed:
                    self._events.append(found)
                    self._changed.notify_all()
            elif "progress" in found:
                self._progress(found)

    def _show(self, found: Mapping[str, Any]) -> None:
        name, body = str(found["event"]), found["body"]
        if name in _COUNTED:
            self._counts[name] += 1
            return
        for counted in sorted(self._counts):
            self._line(found, counted, f"{self._counts[counted]} times")
        self._counts.clear()
        if name in _SAY:
            self._line(found, name, _SAY[name](body))

    def _line(self, found: Mapping[str, Any], name: str, text: str) -> None:
        clock = datetime.fromisoformat(str(found["stored_at"])).astimezone().strftime("%H:%M:%S")
        part = str(found["source"]).removeprefix("/forebay/").partition("/")[0]
        colour = (
            "red"
            if name.endswith(("Rejected", "Failed", "Held"))
            else "green"
            if name.endswith(("Ready", "Opened", "Succeeded"))
            else "white"
        )
        self._console.print(f"  [dim]{clock} {part:<16}[/] [{colour}]{name:<24}[/] {escape(text)}")

    def _progress(self, found: Mapping[str, Any]) -> None:
        """One bar for each piece of work: `{stage, at, of}` of ingest, `{verified_bytes, planned_bytes}` of the cache."""
        subject = str(found["progress"])
        done, total = found.get("at", found.get("verified_bytes")), found.get("of", found.get("planned_bytes"))
        if found.get("done"):
            if (task := self._tasks.pop(subject, None)) is not None:
                self._bars.remove_task(task)
            return
        if done is None or not total:
            return
        label = f"{subject.split('.')[1]}: {found.get('stage', 'working')}"
        if subject not in self._tasks:
            self._tasks[subject] = self._bars.add_task(label, total=total)
        self._bars.update(self._tasks[subject], description=label, completed=done, total=total)
