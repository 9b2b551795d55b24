"""The whole story in one go, through the public command line only: upload to released model.

    make demo                     records a small dataset and runs everything on it
    make demo DATASET=folder      any LeRobot v3.0 folder

Starts its own installation in `.forebay/demo`, kills the training process half-way,
and stops everything at the end, also when something went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from demo_timeline import DemoError, Timeline
from rich.console import Console
from rich.markup import escape
from rich.text import Text

HERE = Path(__file__).resolve().parent
PROJECT = "arm-lab"
CHANNEL = "production"


class Demo:
    """One run of the story."""

    def __init__(self, home: Path, dataset: Path | None, *, keep: bool) -> None:
        self.console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 120)
        self.home = home
        self.folder = dataset or home / "recording"
        self.recorded = dataset is None
        self.keep = keep
        self.dataset = (
            "reach" if dataset is None else re.sub(r"[^a-z0-9]+", "-", dataset.resolve().name.lower()).strip("-")
        )
        self.model = f"{self.dataset}-policy"
        self.job = ""
        self.began = time.monotonic()
        # the one place of this script that looks at its surroundings
        inherited = dict(os.environ)  # noqa: TID251 a script of its own
        inherited = {name: value for name, value in inherited.items() if not name.startswith("FOREBAY_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}"
        self.environment = inherited | {
            "FOREBAY_HOME": str(home), "FOREBAY_PROJECT": PROJECT, "PATH": path, "COLUMNS": "150",
        }  # fmt: skip

    # ---------------------------------------------------------------- helpers

    def step(self, number: int, text: str) -> None:
        self.console.print()
        self.console.rule(
            f"[bold]{number}  {escape(text)}[/]  [dim]{time.monotonic() - self.began:.0f} s[/]", align="left"
        )

    def cli(self, *args: str, expect: int = 0, quiet: bool = False) -> subprocess.CompletedProcess[str]:
        """Run one public command and show what it says; raises `DemoError` for another exit code."""
        if not quiet:
            self.console.print(f"[bold cyan]$ forebay {escape(' '.join(args))}[/]")
        done = subprocess.run(  # noqa: S603 our own command line
            [sys.executable, "-m", "forebay.cli", *args],
            env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not quiet:
            for line in (done.stdout + done.stderr).rstrip().splitlines():
                self.console.print(Text("  " + line))
        if done.returncode != expect:
            said = (done.stdout + done.stderr).strip() if quiet else "see above"
            msg = f"`forebay {' '.join(args)}` ended with {done.returncode}, expected {expect}: {said}"
            raise DemoError(msg)
        return done

    def ask(self, *args: str) -> Any:
        """Run one public command and read its JSON."""
        return json.loads(self.cli(*args, "--json", quiet=True).stdout)

    # ---------------------------------------------------------------- the story

    def run(self) -> None:
        self.prepare()
        with Timeline(self.console, self.environment) as timeline:
            self.submit_too_early()
            verdict = self.upload()
            self.become_ready(timeline)
            step = self.train_and_kill(timeline)
            self.resume(timeline, step)
            self.release()
            self.look_back(verdict)
            self.sum_up(timeline)

    def prepare(self) -> None:
        self.step(0, "A dataset and an installation")
        if self.recorded:
            script = [sys.executable, str(HERE / "record_arm.py"), str(self.folder)]
            made = subprocess.run(script, capture_output=True, text=True, check=False)  # noqa: S603 our own script
            self.console.print(Text("  " + (made.stdout + made.stderr).strip()))
            if made.returncode:
                msg = "the recording failed"
                raise DemoError(msg)
        self.cli("up", "--project", PROJECT)

    def submit_too_early(self) -> None:
        self.step(1, "A training job is submitted before its data exists: it waits, and says for what")
        spec = yaml.safe_load((HERE / "reach.yaml").read_text())
        name = f"dataset:{self.dataset}@train-ready"
        spec |= {
            "name": self.dataset,
            "working_directory": str(HERE),
            "command": ["python", "train_bc.py", "--dataset", name],
        }
        spec["datasets"][0]["name"] = name
        file = self.home / f"{self.dataset}.yaml"
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        self.steps = int(spec["parameters"]["steps"])
        self.cli("submit", str(file), expect=1)
        self.cli("submit", str(file), "--wait-for-dataset")
        self.job = self.ask("why", self.dataset)["job"]
        self.cli("why", self.job)

    def upload(self) -> Mapping[str, Any]:
        self.step(2, "Upload: every file whole, with its digest; each episode gets a verdict")
        self.cli("upload", str(self.folder), "--dataset", self.dataset, "--wait", "--timeout", "300")
        again = self.ask("upload", str(self.folder), "--dataset", self.dataset, "--wait")
        self.cli("dataset", "show", self.dataset)
        verdict: Mapping[str, Any] = again["verdict"]
        if not verdict["accepted"]:
            msg = f"no episode of {self.folder} was accepted"
            raise DemoError(msg)
        if self.recorded and not verdict["not_accepted"]:
            msg = "the broken episode was not found"
            raise DemoError(msg)
        return verdict

    def become_ready(self, timeline: Timeline) -> None:
        self.step(3, "The cache warms exactly the planned bytes; then the gate opens")
        timeline.wait("JobGateOpened", job=self.job, within=120)
        timeline.wait("AttemptStarted", job=self.job, attempt=1, within=60)
        self.cli("why", self.job)

    def train_and_kill(self, timeline: Timeline) -> int:
        self.step(4, "Training runs; half-way its process is killed with SIGKILL")
        half = self.steps // 2
        written = timeline.wait("CheckpointWritten", job=self.job, attempt=1, within=240, least_step=half)
        process = json.loads((self.attempt(1) / "process.json").read_text())
        os.kill(process["command_pid"], signal.SIGKILL)
        step = int(written["body"]["step"])
        self.console.print(
            f"[bold red]  killed[/] process {process['command_pid']} after the checkpoint of step {step}"
        )
        return step

    def resume(self, timeline: Timeline, step: int) -> None:
        self.step(5, "Two recoveries, recorded apart: the process comes back, training resumes")
        timeline.wait("AttemptStarted", job=self.job, attempt=2, within=90)
        decided = timeline.wait("ResumeDecided", job=self.job, attempt=2, within=30)["body"]
        if decided["mode"] != "resume" or int(decided["step"]) < step:
            msg = f"attempt 2 should resume from step {step} or later, it was decided: {decided}"
            raise DemoError(msg)
        timeline.wait("JobSucceeded", job=self.job, within=240)
        self.cli("why", self.job)
        for number in (1, 2):
            log = (self.attempt(number) / "log.txt").read_text().splitlines()
            told = [line for line in log if line.startswith(("step ", "attempt ", "done"))]
            for line in [*told[:1], "…", *told[-1:]]:
                self.console.print(Text(f"  attempt {number} │ {line}", style="dim"))

    def release(self) -> None:
        self.step(
            6, "The checkpoint becomes a model version; no release without an evaluation of exactly that artefact"
        )
        self.cli("model", "register", self.model, "--job", self.job)
        self.cli("model", "release", f"{self.model}@v1", "--channel", CHANNEL, expect=1)
        evaluation = self.home / "jobs" / PROJECT / self.job / "output" / "eval.json"
        self.cli("model", "evaluate", f"{self.model}@v1", "--metrics", str(evaluation))
        self.cli("model", "release", f"{self.model}@v1", "--channel", CHANNEL)

    def look_back(self, verdict: Mapping[str, Any]) -> None:
        self.step(7, "What made this model, and what did this episode reach?")
        self.cli("lineage", f"{self.model}@{CHANNEL}", "--episodes", "4")
        found = self.ask("lineage", f"{self.model}@{CHANNEL}", "--episodes", "400")
        episodes = list(_of_kind(found["tree"], "episode"))
        if not found["complete"] or len(episodes) != verdict["accepted"]:
            msg = f"lineage names {len(episodes)} of {verdict['accepted']} episodes, complete: {found['complete']}"
            raise DemoError(msg)
        self.cli("impact", episodes[0].partition(":")[2])
        for bad in verdict["not_accepted"][:1]:
            self.cli("impact", bad["episode"])
        for service in ("ingest", "cache", "scheduler-bridge", "registry"):
            self.cli("rebuild", service)

    def sum_up(self, timeline: Timeline) -> None:
        self.step(8, "What happened")
        for line in timeline.summary(self.job):
            self.console.print(f"  {line}")

    def finish(self) -> bool:
        """Stop everything; says whether nothing is left."""
        if self.keep:
            self.console.print(f"\nstill running: export FOREBAY_HOME={self.home}; forebay status; forebay down")
            return True
        self.cli("down")
        left = _left_behind(self.home)
        for one in left:
            self.console.print(f"[red]left behind:[/] {escape(one)}")
        return not left

    def attempt(self, number: int) -> Path:
        return self.home / "jobs" / PROJECT / self.job / f"attempt-{number}"

    def explain(self, error: Exception) -> None:
        """What failed, and where to look."""
        self.console.print(f"\n[bold red]the demo failed:[/] {escape(str(error))}")
        if self.job:
            for log in sorted((self.home / "jobs" / PROJECT / self.job).glob("attempt-*/log.txt")):
                self.console.print(f"[bold]last lines of {log}[/]")
                for line in log.read_text(errors="replace").splitlines()[-12:]:
                    self.console.print(Text("  " + line, style="dim"))
        self.console.print(f"logs of the services: {self.home / 'logs'}")
        for command in (("status",), ("dead", "list")):
            with contextlib.suppress(DemoError):
                self.cli(*command)


def _of_kind(node: Mapping[str, Any], kind: str) -> list[str]:
    found = [str(node["id"])] if node.get("kind") == kind else []
    return found + [one for parent in node.get("parents", ()) for one in _of_kind(parent, kind)]


def _left_behind(home: Path) -> list[str]:
    """Processes and mounts that still have to do with this home."""
    found = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"{home}/" in command:
                found.append(f"process {entry.name}: {command[:100]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, help="a LeRobot v3.0 folder; default: one is recorded")
    parser.add_argument("--home", type=Path, default=Path(".forebay/demo"), help="emptied at the start")
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    args = parser.parse_args()
    demo = Demo(args.home.absolute(), args.dataset, keep=args.keep)
    if (demo.home / "local.json").exists():
        demo.cli("down", quiet=True)
    shutil.rmtree(demo.home, ignore_errors=True)
    demo.home.mkdir(parents=True)
    failed = False
    try:
        demo.run()
    except (DemoError, OSError, KeyError, ValueError, KeyboardInterrupt) as error:
        failed = True
        demo.explain(error if isinstance(error, Exception) else RuntimeError("interrupted"))
    finally:
        clean = demo.finish()
    took = time.monotonic() - demo.began
    if failed or not clean:
        demo.console.print(f"[bold red]the demo failed after {took:.0f} s[/]")
        return 1
    demo.console.print(f"\n[bold green]done in {took:.0f} s[/]; nothing is left running. To look around yourself:")
    demo.console.print(f"  export FOREBAY_HOME={demo.home} FOREBAY_PROJECT={PROJECT}")
    demo.console.print(
        f"  forebay up; forebay lineage {demo.model}; forebay why {demo.job}; forebay watch --all; forebay down"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
