"""The agent as a real process beside real commands: files, signals, events, exit codes. No bus answers here."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from forebay.sdk.attempt_files import start_ticks

from sdk.tests.builders import SAVE, Attempt, kill, python, write_save
from tests.eventually import eventually


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(home=tmp_path)


async def test_a_command_runs_to_its_end_without_a_bus(attempt: Attempt) -> None:
    """Checked, started, watched, told: everything waits on disk because nobody answers."""
    code, output = await attempt.run(*python(SAVE + "save(10); save(20)"))
    assert code == 0
    assert attempt.exit() == {
        "exit_code": 0, "signal": None, "reason": "Completed", "ran": True,
        "message": "the command ended with exit code 0",
    }  # fmt: skip
    events = attempt.waiting_events()
    assert [one["event"] for one in events] == ["PreflightReported", "CheckpointWritten", "CheckpointWritten"]
    assert [check["status"] for check in events[0]["body"]["checks"] if check["name"] == "bus"] == ["warn"]
    assert [one["body"]["step"] for one in events[1:]] == [10, 20]
    assert f"they wait in {attempt.home / 'outbox' / 'agent.lab'}" in output


async def test_the_commands_exit_code_is_the_agents(attempt: Attempt) -> None:
    """A failing command is a failed attempt with its own code."""
    code, _ = await attempt.run(*python("raise SystemExit(3)"))
    assert (code, attempt.exit()["exit_code"], attempt.exit()["reason"]) == (3, 3, "ProcessFailed")


async def test_a_killed_command_is_told_apart_from_a_failed_one(attempt: Attempt) -> None:
    """SIGKILL from outside has its signal and its reason; its last save is still announced."""
    process = await attempt.start(*python(SAVE + "save(5); import time; time.sleep(600)"))
    folder = attempt.output / "checkpoints/step-000005"
    await eventually(folder.is_dir, what="a checkpoint")
    named = await eventually(lambda: attempt.process().get("command_pid"), what="the command's process")
    assert attempt.process()["command_start"] == start_ticks(named)
    kill(named)
    assert await process.wait() == 128 + signal.SIGKILL
    assert (attempt.exit()["signal"], attempt.exit()["reason"]) == (signal.SIGKILL, "ProcessKilled")
    assert [one["body"]["step"] for one in attempt.waiting_events() if one["event"] == "CheckpointWritten"] == [5]
    assert attempt.process()["stage"] == "ended"


async def test_sigterm_is_passed_on_so_that_the_command_can_save(attempt: Attempt) -> None:
    """The command decides how it leaves; what it saves then counts."""
    code = SAVE + "import signal, sys, time\n"
    code += "signal.signal(signal.SIGTERM, lambda *_: (save(7), sys.exit(0)))\n"
    code += "pathlib.Path(os.environ['FOREBAY_OUTPUT'], 'ready').touch()\ntime.sleep(600)"
    process = await attempt.start(*python(code))
    await eventually((attempt.output / "ready").exists, what="the command is ready")
    process.terminate()
    assert await process.wait() == 0
    assert [one["body"]["step"] for one in attempt.waiting_events() if one["event"] == "CheckpointWritten"] == [7]


async def test_a_second_agent_leaves_the_attempt_alone(attempt: Attempt) -> None:
    """The lock is made once, and nothing of the first one's is touched."""
    await attempt.run(*python("pass"))
    before = attempt.exit()
    code, output = await attempt.run(*python("raise SystemExit(9)"))
    assert code == 75
    assert "has an agent already" in output
    assert attempt.exit() == before


async def test_a_failed_check_keeps_the_command_from_starting(attempt: Attempt) -> None:
    """Every check is in the report, the reason in exit.json, and the command never ran."""
    attempt.resources = {"cpu": 4096, "memory_bytes": 1 << 60}
    code, _ = await attempt.run(*python(f"open({str(attempt.home / 'ran')!r}, 'w')"))
    ended = attempt.exit()
    assert (code, ended["ran"], ended["reason"]) == (78, False, "PreflightFailed")
    assert "4096" in ended["message"]
    assert "memory" in ended["message"]
    assert not (attempt.home / "ran").exists()
    (report,) = attempt.waiting_events()
    assert {check["name"]: check["status"] for check in report["body"]["checks"]}["cpu"] == "fail"


async def test_a_damaged_inputs_file_is_a_failed_start(attempt: Attempt) -> None:
    """The attempt ends with a sentence instead of a traceback."""
    environment = attempt.environment()
    (attempt.folder / "inputs.json").write_text("{")
    attempt.settings = {"FOREBAY_INPUTS": str(attempt.home / "other.json")}
    assert environment
    code, _ = await attempt.run(*python("pass"))
    assert (code, attempt.exit()["reason"]) == (78, "StartFailed")


async def test_sigterm_before_the_start_ends_the_attempt(attempt: Attempt) -> None:
    """Waiting for the registry can be long; being told to stop ends it with a report."""
    attempt.number = 2
    write_save(attempt.output / "checkpoints/step-000001", 1)
    process = await attempt.start(*python("pass"))
    await eventually(lambda: any(e["event"] == "PreflightReported" for e in attempt.waiting_events()), what="preflight")
    process.terminate()
    await process.wait()
    assert (attempt.exit()["reason"], attempt.exit()["ran"]) == ("Stopped", False)


async def test_a_save_that_a_killed_agent_did_not_announce_is_announced_by_the_next(attempt: Attempt) -> None:
    """It belongs to the attempt that wrote it, and is told once."""
    write_save(attempt.output / "checkpoints/step-000042", 42)
    attempt.number = 2
    attempt.settings = {"FOREBAY_RESUME_DEADLINE_S": "0.1"}
    code, _ = await attempt.run(*python("pass"))
    written = [one for one in attempt.waiting_events() if one["event"] == "CheckpointWritten"]
    assert [(one["body"]["attempt"], one["body"]["step"]) for one in written] == [(1, 42)]
    assert (code, attempt.exit()["reason"]) == (78, "ResumeRefused"), "a restart does not guess where to continue"
    attempt.number = 3
    await attempt.run(*python("pass"))
    assert len([one for one in attempt.waiting_events() if one["event"] == "CheckpointWritten"]) == 1


def test_process_identity_survives_odd_names(tmp_path: Path) -> None:
    """The start time is that of this very process; a pid that nobody has has none."""
    assert start_ticks(1 << 22) is None
    assert json.dumps(start_ticks(1))
