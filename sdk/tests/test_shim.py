"""The shim around a training command: in any POSIX shell, with signals, exit codes and the resume decision."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from forebay.sdk.shim import START, exports
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.eventually import WITHIN_S, eventually

SHELLS = [name for name in ("sh", "dash", "bash") if shutil.which(name)]
NASTY = ["a b", "", "'", '"', "$HOME", "`id`", "*", "\\", "--x=ü", "a\nb", ";exit 3", "!"]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "start.sh").write_text(START, encoding="utf-8")
    return tmp_path


def start(shell: str, run_dir: Path, words: Sequence[str], **environment: str) -> subprocess.Popen[str]:
    environment = {"PATH": "/usr/bin:/bin", "FOREBAY_RUN_DIR": str(run_dir), **environment}
    command = [str(shutil.which(shell)), str(run_dir / "start.sh"), *words]
    # A shell cannot trap what was ignored when it began, as SIGINT is when these tests run behind `nohup … &`.
    as_in_a_pod = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_pod)  # noqa: PLW1509 one call, no lock


def printed(shell: str, run_dir: Path, words: Sequence[str], **environment: str) -> list[str]:
    """The words that the command was started with."""
    show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
    out, _ = start(shell, run_dir, [*show, *words], **environment).communicate(timeout=WITHIN_S)
    found: list[str] = json.loads(out)
    return found


def test_every_word_arrives_as_it_was_written(shell: str, run_dir: Path) -> None:
    """Quotes, blanks, dollars and line ends mean nothing on the way."""
    assert printed(shell, run_dir, NASTY) == NASTY


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 200, 255])
def test_the_exit_code_is_the_commands(shell: str, run_dir: Path, code: int) -> None:
    """And it is on record."""
    process = start(shell, run_dir, ["sh", "-c", f"exit {code}"])
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == code
    assert json.loads((run_dir / "exit.json").read_text(encoding="utf-8")) == {"exit_code": code}


def test_a_command_that_does_not_exist_is_127(shell: str, run_dir: Path) -> None:
    """As any shell says it."""
    process = start(shell, run_dir, ["/no/such/program"])
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 127


@pytest.mark.parametrize("name", ["TERM", "INT", "USR1"])
async def test_signals_reach_the_command_and_its_answer_counts(shell: str, run_dir: Path, name: str) -> None:
    """A command that saves on a signal and ends with its own code: that code is the pod's."""
    script = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIG{name}, lambda *_: sys.exit(42))\n"
        "open(sys.argv[1], 'w').close()\n"
        "time.sleep(600)\n"
    )
    ready = run_dir / "ready"
    process = start(shell, run_dir, [sys.executable, "-c", script, str(ready)])
    await eventually(ready.exists, what="the command runs")
    process.send_signal(getattr(signal, f"SIG{name}"))
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 42


async def test_a_signal_that_the_command_survives_ends_nothing(shell: str, run_dir: Path) -> None:
    """It is waited for again, as often as it takes."""
    script = (
        "import signal, sys, time, pathlib\n"
        "count = 0\n"
        "def told(*_):\n"
        "    global count\n"
        "    count += 1\n"
        "    pathlib.Path(sys.argv[1], str(count)).touch()\n"
        "signal.signal(signal.SIGUSR1, told)\n"
        "pathlib.Path(sys.argv[1], 'ready').touch()\n"
        "while count < 3:\n"
        "    time.sleep(0.01)\n"
        "sys.exit(5)\n"
    )
    process = start(shell, run_dir, [sys.executable, "-c", script, str(run_dir)])
    await eventually((run_dir / "ready").exists, what="the command runs")
    for number in (1, 2, 3):
        process.send_signal(signal.SIGUSR1)
        await eventually((run_dir / str(number)).exists, what="the command was told")
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 5


def test_a_killed_command_is_128_and_its_signal(shell: str, run_dir: Path) -> None:
    """137: what the kubelet shows for SIGKILL too."""
    process = start(shell, run_dir, ["sh", "-c", "kill -KILL $$"])
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 137


class TestResume:
    """The decision of the init container, as variables, and as LeRobot's own options."""

    FOLDER = "/forebay/output/train/checkpoints/000500"
    WORDS = (f"--config_path={FOLDER}/pretrained_model/train_config.json", "--resume=true")

    def decide(self, run_dir: Path) -> None:
        text = exports({"FOREBAY_RESUME_FROM": self.FOLDER, "FOREBAY_RESUME_STEP": "500", "FOREBAY_ATTEMPT": "2"})
        (run_dir / "resume.env").write_text(text, encoding="utf-8")

    def test_any_command_is_told_where_to_continue(self, shell: str, run_dir: Path) -> None:
        """By variables; its words stay."""
        self.decide(run_dir)
        show = "import json, os, sys; print(json.dumps([os.environ['FOREBAY_RESUME_STEP'], *sys.argv[1:]]))"
        out, _ = start(shell, run_dir, [sys.executable, "-c", show, "a"]).communicate(timeout=WITHIN_S)
        assert json.loads(out) == ["500", "a"]

    def test_lerobot_keeps_where_this_run_writes_and_reads(self, shell: str, run_dir: Path) -> None:
        """The saved configuration names the folders of the run that saved it: this run's own are said again."""
        self.decide(run_dir)
        words = [
            "lerobot-train",
            "--steps=9",
            "--output_dir=/o ut",
            "--policy.path=x",
            "--dataset.root",
            "/da ta",
            "--x",
        ]
        kept = ["--output_dir=/o ut", "--dataset.root", "/da ta"]
        assert printed(shell, run_dir, words, FOREBAY_LEROBOT_WORDS="4") == ["lerobot-train", *kept, *self.WORDS]

    def test_lerobot_gets_its_two_options_and_nothing_else(self, shell: str, run_dir: Path) -> None:
        """`--policy.path` would shadow what the checkpoint says; a launcher's own words stay."""
        self.decide(run_dir)
        words = ["launch", "lerobot-train", "--policy.path=x", "--steps=9", "a b"]
        assert printed(shell, run_dir, words, FOREBAY_LEROBOT_WORDS="5") == ["launch", "lerobot-train", *self.WORDS]

    def test_a_first_attempt_keeps_its_words(self, shell: str, run_dir: Path) -> None:
        """Nothing to resume: as the owner wrote it."""
        words = ["lerobot-train", "--policy.path=x"]
        assert printed(shell, run_dir, words, FOREBAY_LEROBOT_WORDS="4") == words


NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True)
VALUES = st.text().filter(lambda text: "\0" not in text and "\r" not in text)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=3))
def test_any_value_survives_the_file_of_variables(variables: dict[str, str]) -> None:
    """Quoted for a shell, whatever it holds."""
    encodable = {f"T_{name}": value.encode("utf-8", "ignore").decode() for name, value in variables.items()}
    script = exports(encodable) + f'exec {sys.executable} -c "import json, os; print(json.dumps(dict(os.environ)))"\n'
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True, env={}, encoding="utf-8")
    found = json.loads(done.stdout)
    assert {name: found[name] for name in encodable} == encodable
