"""The local backend with real processes: started once, watched, adopted, ended to the last child."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay.scheduler_bridge.adapters import this_machine
from forebay.scheduler_bridge.adapters.local_processes import LocalProcesses
from forebay.scheduler_bridge.errors import StartError
from forebay.scheduler_bridge.ports import AttemptPlan, Observation

from tests.eventually import wait_until

from .processes import backend, plan, python


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for attempt in (1, 2):
        one = plan("true", attempt=attempt)
        while backend(tmp_path).stop(one, force=True):
            pass


def wait_for(local: LocalProcesses, one: AttemptPlan, stage: str) -> Observation:
    wait_until(lambda: local.observe(one).stage == stage, what=f"the attempt is {stage}")
    return local.observe(one)


def starts(local: LocalProcesses, one: AttemptPlan) -> int:
    return len((local.folder(one) / "starts").read_text().splitlines())


def forever(home: Path) -> tuple[str, ...]:
    """A command that runs until it is ended, and says that it began."""
    return python(f"import time; open({str(home / 'began')!r}, 'w'); time.sleep(600)")


def test_an_attempt_from_start_to_report(home: Path) -> None:
    """Started, seen running with both identities, ended with the agent's report, nothing left alive."""
    local, one = backend(home), plan(*python("import sys; print('epoch 1'); sys.exit(3)"))
    assert local.observe(one).stage == "absent"
    assert local.launch(one) is True
    seen = wait_for(local, one, "ended")
    assert seen.exit is not None
    assert (seen.exit.exit_code, seen.exit.reason, seen.exit.ran) == (3, "ProcessFailed", True)
    wait_until(lambda: not local.observe(one).alive, what="nothing of the attempt is alive")
    assert "epoch 1" in local.log_tail(one)


def test_launching_again_starts_nothing(home: Path) -> None:
    """However often it is asked, by this process or the next one, there is one start."""
    local, one = backend(home), plan(*forever(home))
    assert local.launch(one) is True
    assert local.launch(one) is False
    wait_for(local, one, "running")
    assert backend(home).launch(one) is False
    assert starts(local, one) == 1


def test_an_agent_that_has_no_lock_yet_is_not_started_beside(home: Path) -> None:
    """The bridge died between starting the agent and its lock: the next one finds it by its environment."""
    local, one = backend(home), plan(*forever(home))
    local.folder(one).mkdir(parents=True)
    environment = {"FOREBAY_ATTEMPT_DIR": str(local.folder(one))}
    early = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environment)
    try:
        wait_until(lambda: local.observe(one).alive, what="the attempt is seen")
        assert backend(home).launch(one) is False
        assert early.pid in local.observe(one).processes
    finally:
        early.kill()
        early.wait()


def test_two_agents_on_one_folder_are_one_attempt(home: Path) -> None:
    """The loser of the lock leaves with 75, and the bridge that started it goes on watching the winner."""
    winner, one = backend(home), plan(*forever(home))
    winner.launch(one)
    first = wait_for(winner, one, "running")
    loser = backend(home)
    agent = subprocess.Popen([*loser.agent, "true"], env=loser._environment(one, loser.folder(one)))
    loser._children[one.name] = agent
    assert agent.wait() == 75
    seen = loser.observe(one)
    assert (seen.agent_alive, seen.command, seen.exit) == (True, first.command, None)
    assert starts(winner, one) == 1


def test_the_next_bridge_adopts_a_running_attempt(home: Path) -> None:
    """SIGKILL of the bridge: the agent lives on, the next bridge watches the same processes to their end."""
    one = plan(*python(f"import time, os\nwhile not os.path.exists({str(home / 'go')!r}): time.sleep(0.01)"))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "import processes\n"
        "local = processes.backend(Path(sys.argv[2]))\n"
        "local.launch(processes.plan(*sys.argv[3:]))\n"
        "print('started', flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    bridge = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(home), *one.command], stdout=subprocess.PIPE
    )
    assert bridge.stdout is not None
    assert bridge.stdout.readline() == b"started\n"
    first = wait_for(backend(home), one, "running")
    bridge.kill()
    bridge.wait()
    bridge.stdout.close()
    after = backend(home)
    assert after.launch(one) is False
    seen = after.observe(one)
    assert (seen.agent_alive, seen.command) == (True, first.command)
    (home / "go").touch()
    assert wait_for(after, one, "ended").exit is not None
    assert starts(after, one) == 1


def test_a_killed_agent_leaves_its_command_and_both_are_seen(home: Path) -> None:
    """No report and no agent, but the command lives: seen, and ended by force, to the last child."""
    sleeper = f"import time; open({str(home / 'began')!r}, 'w'); time.sleep(600)"
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeper!r}], start_new_session=True)"
    local, one = backend(home), plan(*python(grandchild))
    local.launch(one)
    seen = wait_for(local, one, "running")
    wait_until((home / "began").exists, what="the command has begun")
    os.kill(int(str(seen.agent).partition("@")[0]), signal.SIGKILL)
    wait_until(lambda: not local.observe(one).agent_alive, what="the agent is gone")
    left = local.observe(one)
    assert left.alive
    assert left.exit is None
    assert len(left.processes) == 2, "the command, and its child in a session of its own"
    wait_until(lambda: not local.stop(one, force=True), what="nothing is left to end")
    assert not local.observe(one).alive


def test_a_reused_number_is_not_taken_for_the_agent(home: Path) -> None:
    """process.json names a number that belongs to somebody else now: not alive, and never told to end."""
    local, one = backend(home), plan("true")
    local.folder(one).mkdir(parents=True)
    (local.folder(one) / "lock").touch()
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        record = {"agent_pid": other.pid, "agent_start": 1, "command_pid": other.pid, "command_start": 1}
        (local.folder(one) / "process.json").write_text(json.dumps({**record, "stage": "running"}))
        seen = local.observe(one)
        assert (seen.alive, seen.agent_alive, seen.stage) == (False, False, "running")
        assert local.stop(one, force=True) == ()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"agent_pid": "x"}', '{"agent_pid": 1, "agent_start": 0}', "null"])
def test_a_damaged_process_file_names_nobody(home: Path, text: str) -> None:
    """Half a file, another type, process 1: nothing is believed, nothing is killed."""
    local, one = backend(home), plan("true")
    local.folder(one).mkdir(parents=True)
    (local.folder(one) / "lock").touch()
    (local.folder(one) / "process.json").write_text(text)
    assert not local.observe(one).alive
    assert local.stop(one, force=True) == ()


def test_an_agent_that_cannot_begin_is_a_failed_start(home: Path) -> None:
    """The agent ends before its lock: StartFailed with its words in the log, not an endless wait."""
    local, one = backend(home, "die-before-lock"), plan("true")
    local.launch(one)
    wait_until(lambda: local.observe(one).exit is not None, what="the attempt has ended")
    report = local.observe(one).exit
    assert report is not None
    assert (report.reason, report.ran) == ("StartFailed", False)
    assert "No module named" in local.log_tail(one)


def test_a_folder_that_does_not_exist_is_told(home: Path) -> None:
    """A working directory that is not there: an error that names it."""
    with pytest.raises(StartError, match="/nowhere/at/all"):
        backend(home).launch(plan("true", working_directory="/nowhere/at/all"))


def test_the_environment_is_made_of_named_things_only(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the service's own environment reaches the command; what is promised does."""
    monkeypatch.setenv("BRIDGE_SECRET", "hunter2")
    local = backend(home)
    one = plan(
        *python("import os, json; print(json.dumps(dict(os.environ)))"),
        environment={"OMP_NUM_THREADS": "1", "FOREBAY_PARAM_SEED": "7"},
        devices=("1", "3"),
    )
    local.launch(one)
    wait_for(local, one, "ended")
    found = json.loads(next(line for line in local.log_tail(one).splitlines() if line.startswith("{")))
    assert "BRIDGE_SECRET" not in found
    assert found["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert (found["OMP_NUM_THREADS"], found["FOREBAY_PARAM_SEED"]) == ("1", "7")
    assert found["FOREBAY_NKEY_FILE"] == str(home / "keys" / "agent.arm-lab.nk")
    assert found["FOREBAY_OUTPUT"] == str(home / "jobs/arm-lab/pick-1/output")
    assert json.loads(Path(found["FOREBAY_INPUTS"]).read_text()) == {"inputs": []}


def test_without_gpus_none_is_visible(home: Path) -> None:
    """A job that asked for no GPU sees none, even on a machine that has some."""
    environment = backend(home)._environment(plan("true"), home)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_this_machine_has_something() -> None:
    """Detection gives usable numbers here."""
    assert this_machine.count_cpus() >= 1
    assert this_machine.memory_bytes() > 1 << 20
    assert this_machine.count_gpus() >= 0
