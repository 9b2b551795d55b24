"""Our two containers in a pod as real processes: reports, exit codes, what they leave. No bus answers here."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from forebay.sdk.pod import claim_attempt, number_of
from forebay.sdk.pod_probes import PodInputs
from forebay.sdk.settings import pod_settings

from sdk.tests.builders import pinned
from tests.servers.pods import Pod

QUICK = {"FOREBAY_BUS_DEADLINE_S": "0.2", "FOREBAY_REPORT_DEADLINE_S": "0.1", "FOREBAY_RESUME_DEADLINE_S": "0.2"}
SMALL = {"cpu": 1, "memory_bytes": 1024}


@pytest.fixture
def root(recording: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recording, tmp_path / "data" / "reach"))


def pod(tmp_path: Path, uid: str = "uid-1", **fields: Any) -> Pod:
    told = {"resources": SMALL, **fields.pop("told", {})}
    variables = {**QUICK, **fields.pop("variables", {})}
    return Pod(root=tmp_path / uid, output=tmp_path / "output", uid=uid, told=told, variables=variables, **fields)


def with_data(tmp_path: Path, root: Path, *, options: str = "ro", **told: Any) -> Pod:
    one = pinned(root)
    places = {"reach@v1": str(root)}
    return pod(
        tmp_path,
        told={"inputs": [one], "places": places, "expects": ["dataset:reach"], **told},
        mounts=f"overlay / overlay rw 0 0\nJuiceFS:pool {root} fuse.juicefs {options},relatime 0 0\n",
    )


async def test_a_sound_pod_is_ready_without_a_bus(tmp_path: Path, root: Path) -> None:
    """Everything is checked, the shim is there, and the report waits for a bus."""
    one = with_data(tmp_path, root)
    assert await one.prepare() == 0, one.printed
    assert (one.root / "run" / "start.sh").stat().st_mode & 0o111
    statuses = {item["name"]: item["status"] for item in one.report()["checks"]}
    assert statuses == {"data reach@v1": "pass", "output": "pass", "shm": "pass", "bus": "warn"}
    assert await one.train("/bin/sh", "-c", "echo $FOREBAY_ATTEMPT") == (0, "1\n")


async def test_everything_wrong_is_reported_together(tmp_path: Path, root: Path) -> None:
    """One start tells all; the code is that of what another attempt would meet again."""
    one = with_data(
        tmp_path, root, shm_needed=1 << 50, resources={**SMALL, "gpus": 2}, free_bytes=1 << 60,
        command=["train", f"--config={root}/train.yaml"],
    )  # fmt: skip
    (root / "meta" / "stats.json").unlink()
    one.variables = {**one.variables, "PATH": str(Path(shutil.which("python3") or "").parent)}
    assert await one.prepare() == 201
    assert one.failed() == {
        "data reach@v1": "DatasetChanged", "config": "ConfigUnreadable", "output": "OutputFull", "shm": "ShmTooSmall",
        "gpu": "GpuNotVisible",
    }  # fmt: skip
    assert not (one.root / "run" / "start.sh").exists()


async def test_another_version_is_told_with_both_digests(tmp_path: Path, root: Path) -> None:
    """What was pinned, and what is mounted."""
    one = with_data(tmp_path, root)
    told = json.loads(json.dumps(one.told))
    told["inputs"][0]["manifest_sha256"] = "b" * 64
    one.told = told
    assert await one.prepare() == 201
    (check,) = [item for item in one.report()["checks"] if item["status"] == "fail"]
    assert check["message"].startswith("the job pinned 1/bbbbbbbbbbbb…, mounted is ")


async def test_a_lost_mount_costs_no_attempt(tmp_path: Path, root: Path) -> None:
    """An empty folder behind a mount, or no mount at all: codes of the infrastructure."""
    one = with_data(tmp_path, root)
    one.mounts = "overlay / overlay rw 0 0\n"
    assert await one.prepare() == 210
    assert "nothing is mounted there" in one.report()["checks"][0]["message"]


async def test_a_writable_dataset_is_a_warning(tmp_path: Path, root: Path) -> None:
    """The job starts; where the cluster cannot do better, the project file silences it."""
    one = with_data(tmp_path, root, options="rw")
    assert await one.prepare() == 0, one.printed
    found = [item["reason"] for item in one.report()["checks"] if item["status"] == "warn"]
    assert "DataWritable" in found
    two = with_data(tmp_path, root, options="rw", skip=["data-mode"])
    assert await two.prepare() == 0, two.printed
    assert "DataWritable" not in two.root.joinpath("termination-log").read_text()


async def test_a_job_whose_data_was_never_pinned_does_not_start(tmp_path: Path) -> None:
    """The gate was opened by somebody else's hand."""
    one = pod(tmp_path, told={"expects": ["dataset:reach"]})
    assert await one.prepare() == 200
    assert "never pinned" in one.report()["checks"][0]["message"]


async def test_inputs_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    """Not a stack trace: a report like any other."""
    one = pod(tmp_path, told={"inputs": "no list"})
    assert await one.prepare() == 200
    assert one.report()["checks"][0]["name"] == "inputs"


async def test_an_output_that_takes_no_files(tmp_path: Path) -> None:
    """A file where the folder should be."""
    one = pod(tmp_path)
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / ".forebay").write_text("in the way", encoding="utf-8")
    assert await one.prepare() == 205
    assert one.failed() == {"output": "OutputNotWritable"}


async def test_a_later_attempt_that_nobody_answers_waits_for_the_infrastructure(tmp_path: Path) -> None:
    """Guessing could throw work away: code 216, which costs no attempt."""
    assert await pod(tmp_path).prepare() == 0
    two = pod(tmp_path, "uid-2")
    assert await two.prepare() == 216
    assert two.report()["attempt"] == 2
    assert two.failed() == {"resume": "ResumeUnknown"}


def test_a_pod_keeps_its_number_and_a_new_one_gets_the_next(tmp_path: Path) -> None:
    """Marks on the output's volume outlive pods; the Job controller's own count lifts them."""
    first, second = pod(tmp_path, "a"), pod(tmp_path, "b")
    third = pod(tmp_path, "c", variables={"FOREBAY_FAILURES": "4", "FOREBAY_IGNORED_FAILURES": "2"})
    numbers = [claim_attempt(pod_settings(one.environment())) for one in (first, second, first, third)]
    assert numbers == [1, 2, 1, 7]


async def test_a_pod_of_a_gang_that_was_made_again_waits_for_the_bridge(tmp_path: Path) -> None:
    """The old pods of the other ranks may still write; the first pod of a rank, and one that is alone, need not wait."""
    token = tmp_path / "token"
    token.write_text("of this pod", encoding="utf-8")
    known = {"FOREBAY_TOKEN_FILE": str(token), "FOREBAY_INDEX": "1"}
    again = {**known, "FOREBAY_FAILURES": "1"}
    gang = {"FOREBAY_NODES": "2"}
    numbers = [
        await number_of(pod_settings(pod(tmp_path / name, name, variables={**QUICK, **more}).environment()))
        for name, more in (("first", known | gang), ("alone", again))
    ]
    assert numbers == [1, 2]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await number_of(pod_settings(pod(tmp_path / "again", variables={**QUICK, **again, **gang}).environment()))


def test_services_find_a_pods_folders_by_their_own_names(tmp_path: Path) -> None:
    """The deepest folder that is known counts, in both directions."""
    inputs = PodInputs(uris={"/forebay/output": "file:///srv/out", "/forebay/output/checkpoints": "file:///srv/ck"})
    assert inputs.uri_of(Path("/forebay/output/a b")) == "file:///srv/out/a%20b"
    assert inputs.uri_of(Path("/forebay/output/checkpoints/1")) == "file:///srv/ck/1"
    assert inputs.folder_of("file:///srv/ck/1") == Path("/forebay/output/checkpoints/1")
    assert inputs.folder_of("file:///srv/out/a%20b") == Path("/forebay/output/a b")
    assert inputs.folder_of("file:///elsewhere/1") == Path("/elsewhere/1")
    assert inputs.uri_of(tmp_path) == tmp_path.as_uri()


async def test_the_report_is_what_the_termination_message_holds(tmp_path: Path) -> None:
    """JSON that names attempt, exit code and checks."""
    one = pod(tmp_path)
    await one.prepare()
    content = (one.root / "termination-log").read_bytes()
    assert len(content) <= 4096
    assert set(json.loads(content)) == {"attempt", "exit_code", "checks"}
