"""A failed job's headline is the cause that started it, with the last lines of that attempt's own output."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1 import models
from forebay.scheduler_bridge.domain.output_lines import cause_line, last_lines, with_cause

from .world import World

TRACEBACK = """forebay: preflight pass: output: fine
forebay: starting: python train.py
epoch 0
Traceback (most recent call last):
  File "/work/train.py", line 3, in <module>
    open("/data/pusht/meta/info.json")
FileNotFoundError: [Errno 2] No such file or directory: '/data/pusht/meta/info.json'
forebay: 3 events could not be delivered; they wait in /x for the next `forebay run`
"""
LAUNCHER = """Traceback (most recent call last):
  File "/torch/run.py", line 1, in main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
CRASH = {
    "exit_code": 1,
    "reason": "ProcessFailed",
    "message": "the command ended with exit code 1: FileNotFoundError: no /data/info.json",
    "output": ("Traceback (most recent call last):", "FileNotFoundError: no /data/info.json"),
}
REFUSED = {"exit_code": None, "reason": "ResumeRefused", "message": "no usable checkpoint", "ran": False}


def resumed(world: World, job: str, attempt: int, step: int | None) -> None:
    mode = "cold" if step is None else "resume"
    body = models.ResumeDecided.model_validate(
        {"job": job, "attempt": attempt, "mode": mode, "step": step, "reasons": ("because",)}
    )
    world.say(body, Part.REGISTRY)


def failed_job(*ends: dict[str, Any], steps: tuple[int | None, ...] = (), max_attempts: int = 3) -> dict[str, Any]:
    """What `why` answers about a job whose attempts ended like this."""
    world = World()
    job = world.submit(restart={"max_attempts": max_attempts})
    for number, end in enumerate(ends, 1):
        if number <= len(steps):
            resumed(world, job, number, steps[number - 1])
        if end.get("ran", True):
            world.run_attempt(job, number)
        world.end_attempt(job, number, **end)
    assert world.job(job).state == "FAILED"
    return world.ask("why", job=job)


def test_a_refused_restart_does_not_hide_the_crash_before_it() -> None:
    """The FileNotFoundError of attempt 1 is the headline, with its own last lines; the refusal comes after it."""
    found = failed_job(CRASH, REFUSED)
    assert found["verdict"]["cause"] == "ProcessFailed"
    assert found["verdict"]["message"].startswith("attempt 1 ended: the command ended with exit code 1: FileNotFound")
    assert "then attempt 2 ended: no usable checkpoint" in found["verdict"]["message"]
    assert found["output"] == {
        "attempt": 1,
        "lines": ["Traceback (most recent call last):", "FileNotFoundError: no /data/info.json"],
    }
    assert "allow_cold_start" not in found["sentence"]


def test_the_same_crash_again_is_said_once() -> None:
    """Three attempts with one cause make one sentence and a count."""
    found = failed_job(CRASH, CRASH, CRASH)
    assert "2 more attempts ended the same way" in found["verdict"]["message"]
    assert found["verdict"]["message"].count("FileNotFoundError") == 1


def test_what_follows_from_the_first_crash_is_not_the_cause() -> None:
    """A second attempt that trips over the remains of the first is not the headline."""
    remains = {**CRASH, "message": "the command ended with exit code 1: FileExistsError: output", "output": ("x",)}
    found = failed_job(CRASH, remains, max_attempts=2)
    assert found["output"]["attempt"] == 1
    assert "then attempt 2 ended: the command ended with exit code 1: FileExistsError" in found["verdict"]["message"]


def test_a_cause_that_training_got_past_is_not_the_headline() -> None:
    """An attempt that resumed further than all before it begins a new story."""
    early = {**CRASH, "message": "exit code 1: ConnectionError: hub"}
    found = failed_job(early, CRASH, CRASH, steps=(None, 500, 500))
    assert found["output"]["attempt"] == 2
    assert "ConnectionError" not in found["verdict"]["message"]


def test_an_attempt_that_was_stopped_is_no_cause() -> None:
    """A preemption before the crash explains nothing, and costs nothing."""
    stopped = {"exit_code": None, "reason": "Stopped", "message": "stopped by forebay down"}
    found = failed_job(stopped, CRASH, CRASH, max_attempts=2)
    assert found["output"]["attempt"] == 2


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (TRACEBACK, "FileNotFoundError: [Errno 2] No such file or directory: '/data/pusht/meta/info.json'"),
        (f"{TRACEBACK}wandb: run finished\n", "FileNotFoundError: [Errno 2] No such file or directory"),
        (
            f"[rank0]: {TRACEBACK.replace(chr(10), chr(10) + '[rank0]: ')}\n{LAUNCHER}",
            "FileNotFoundError: [Errno 2] No such file or directory",
        ),
        ("Segmentation fault\n", ""),
        ("Traceback (most recent call last):\n  cut off", ""),
    ],
)
def test_the_line_that_names_the_cause(output: str, cause: str) -> None:
    """The exception of the command, past lines of the agent, of loggers and of launchers."""
    assert cause_line(output).startswith(cause) if cause else cause_line(output) == ""


def test_our_own_lines_are_never_the_commands() -> None:
    """The agent logs after the command has ended: its lines are left out of the last lines and of the cause."""
    assert not any("forebay:" in line for line in last_lines(TRACEBACK))
    assert with_cause("exit code 1", "training diverged\nforebay: bye\n").endswith("output: training diverged")
