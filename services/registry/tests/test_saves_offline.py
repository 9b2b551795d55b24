"""Checkpoints judged where they lie, without any server: what each is, which one a resume takes, and why not the others."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from forebay.contracts.v1.models import Compatibility
from forebay.registry.domain.resume import ResumePoint
from forebay.registry.saves_command import register
from forebay.registry.saves_offline import look_at, resume_in
from typer.testing import CliRunner

from services.registry.tests.test_verify_checkpoint import WHOLE, lerobot, own, put

WEIGHTS = "pretrained_model/model.safetensors"
STEP = "training_state/training_step.json"


def without(files: Mapping[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: body for name, body in files.items() if not name.endswith(names)}


def point(root: Path, named: str | None = None, **wanted: Any) -> ResumePoint:
    steps = wanted.pop("steps", None)
    return resume_in(look_at(root), named=named, compatibility=Compatibility(**wanted), steps=steps)


def header(text: bytes, tensors: int = 0) -> bytes:
    return struct.pack("<Q", len(text)) + text + bytes(tensors)


SHARDED = {
    **without(lerobot(1000), "/model.safetensors"),
    "pretrained_model/model.safetensors.index.json": json.dumps(
        {"weight_map": {"w": "model-1.safetensors", "b": "model-2.safetensors"}}
    ).encode(),
    "pretrained_model/model-1.safetensors": WHOLE,
    "pretrained_model/model-2.safetensors": WHOLE,
}
STATES = [
    pytest.param(lerobot(1000), "complete", "", id="whole"),
    pytest.param(own(1000), "complete", "", id="our own layout"),
    pytest.param(SHARDED, "complete", "", id="in shards"),
    pytest.param(without(lerobot(1000), "rng_state.safetensors"), "inexact", "missing RNG", id="no random state"),
    pytest.param(without(lerobot(1000), "scheduler_state.json"), "inexact", "missing scheduler", id="no scheduler"),
    pytest.param(without(lerobot(1000), "optimizer_state.safetensors"), "weights-only", "optimizer", id="no optimizer"),
    pytest.param({WEIGHTS: WHOLE}, "weights-only", "missing optimizer, scheduler, RNG, step", id="weights alone"),
    pytest.param(without(lerobot(1000), "training_step.json"), "incomplete", "missing step", id="no step"),
    pytest.param(lerobot(1000) | {STEP: b'{"step": NaN}'}, "incomplete", "missing step", id="a step that is no number"),
    pytest.param(lerobot(1000) | {STEP: b'{"step": -5}'}, "incomplete", "missing step", id="a negative step"),
    pytest.param(lerobot(1000) | {STEP: b'{"st'}, "corrupt", "training_step.json", id="half a step file"),
    pytest.param(lerobot(1000) | {STEP: b""}, "corrupt", "empty file", id="an empty step file"),
    pytest.param(
        lerobot(1000) | {"training_state/scheduler_state.json": b'{"last_ep'}, "corrupt", "not whole JSON", id="half a scheduler"
    ),
    pytest.param(own(1000) | {"optimizer.pt": b""}, "corrupt", "optimizer.pt: empty file", id="an empty pickle"),
    pytest.param(lerobot(1000) | {"DONE": b""}, "complete", "", id="an empty mark is fine"),
    pytest.param(lerobot(1000) | {WEIGHTS: WHOLE[:-7]}, "corrupt", "truncated", id="truncated"),
    pytest.param(lerobot(1000) | {WEIGHTS: WHOLE + b"x"}, "corrupt", "1 bytes more", id="padded"),
    pytest.param(lerobot(1000) | {WEIGHTS: b""}, "corrupt", "empty file", id="no byte"),
    pytest.param(lerobot(1000) | {WEIGHTS: struct.pack("<Q", 1 << 40)}, "corrupt", "claims", id="a header length that lies"),
    pytest.param(
        lerobot(1000) | {WEIGHTS: header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}}', 1)},
        "corrupt",
        "stands twice",
        id="one tensor twice",
    ),
    pytest.param(without(SHARDED, "model-2.safetensors"), "corrupt", "model-2.safetensors", id="a shard is missing"),
    pytest.param(SHARDED | {".incomplete": b""}, "incomplete", ".incomplete", id="marked"),
    pytest.param(lerobot(1000) | {f"{WEIGHTS}.tmp": b"x"}, "incomplete", "model.safetensors.tmp", id="half written"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "state", "says"), STATES)
def test_states(tmp_path: Path, files: dict[str, bytes], state: str, says: str) -> None:
    """Each kind of save has its word and its reason; unless it can be resumed the older one is taken, and that is said."""
    put(tmp_path / "000500", lerobot(500))
    put(tmp_path / "001000", files)
    save = look_at(tmp_path).saves[1]
    assert (save.step, save.state) == (1000, state)
    assert says in "; ".join(save.findings)
    taken = point(tmp_path)
    assert taken.save is not None
    assert taken.save.step == (1000 if state == "complete" else 500)
    if state != "complete":
        assert any("step 1000 skipped" in reason for reason in taken.reasons)


def test_order_is_the_recorded_step(tmp_path: Path) -> None:
    """9, 10, 100 by number; a file, a temporary, and a folder without a step are named and passed over."""
    for step in (9, 10, 100):
        put(tmp_path / f"checkpoint-{step}", lerobot(step))
    put(tmp_path / "checkpoint-best", lerobot(10))
    put(tmp_path / "checkpoint-300.tmp", lerobot(300))
    put(tmp_path, {"checkpoint-200.safetensors": WHOLE})
    found = look_at(tmp_path)
    assert [save.step for save in found.saves] == [9, 10, 100]
    assert {one.name for one in found.passed} == {"checkpoint-best", "checkpoint-300.tmp", "checkpoint-200.safetensors"}
    assert point(tmp_path).save == resume_in(found, named="100", compatibility=Compatibility(), steps=None).save
    refused = point(tmp_path, "checkpoint-300.tmp")
    assert "never finished" in refused.reasons[0]


def test_files_count_more_than_a_name(tmp_path: Path) -> None:
    """A folder named by its epoch is ordered by the step that its files say."""
    put(tmp_path / "epoch-2", lerobot(4000))
    put(tmp_path / "epoch-10", lerobot(3000))
    found = look_at(tmp_path)
    assert [(save.name, save.step) for save in found.saves] == [("epoch-10", 3000), ("epoch-2", 4000)]
    assert "its files say step 4000" in found.saves[1].findings[0]


def test_last_is_resolved(tmp_path: Path) -> None:
    """`last` is a second name: followed inside the folder only, and said when it leads nowhere."""
    root = tmp_path / "checkpoints"
    put(root / "000500", lerobot(500))
    put(root / "001000", without(lerobot(1000), "training_step.json"))
    elsewhere = put(tmp_path / "elsewhere" / "002000", lerobot(2000))
    for name, target in {
        "last": "001000",
        "absolute": str(root / "000500"),
        "gone": "009999",
        "out": str(elsewhere),
        "up": "../elsewhere/002000",
        "circle": "circle",
    }.items():
        (root / name).symlink_to(target)
    found = look_at(tmp_path)
    links = {link.name: (link.target, link.problem) for link in found.links}
    assert links["last"] == ("001000", "001000 is incomplete")
    assert links["absolute"][0] == "000500"
    assert "absolute" in links["absolute"][1]
    assert "not there" in links["gone"][1]
    assert "out of this folder" in links["out"][1]
    assert "out of this folder" in links["up"][1]
    assert links["circle"][0] is None
    assert [save.step for save in found.saves] == [500, 1000]
    assert point(tmp_path).save is not None
    assert "001000" in point(tmp_path, "last").reasons[0]
    assert point(tmp_path, "last").mode == "refused"


def test_links_out_of_a_save_are_not_followed(tmp_path: Path) -> None:
    """Weights that lie elsewhere are not this save's."""
    put(tmp_path / "elsewhere", {"model.safetensors": WHOLE})
    folder = put(tmp_path / "checkpoints" / "000500", without(lerobot(500), "/model.safetensors"))
    (folder / WEIGHTS).symlink_to(tmp_path / "elsewhere" / "model.safetensors")
    save = look_at(tmp_path).saves[0]
    assert (save.state, save.findings) == ("corrupt", (f"{WEIGHTS} is a link out of the checkpoint",))


def test_two_contents_of_one_step(tmp_path: Path) -> None:
    """Nobody can say which of two different saves of a step is the training's: both are suspect, an equal copy is none."""
    for name in ("000500", "step-500"):
        put(tmp_path / name, lerobot(500))
    assert [save.state for save in look_at(tmp_path).saves] == ["complete", "complete"]
    put(tmp_path / "step-500", {"pretrained_model/config.json": b'{"other": 1}'})
    put(tmp_path / "000400", lerobot(400))
    assert [save.state for save in look_at(tmp_path).saves] == ["complete", "suspect", "suspect"]
    taken = point(tmp_path)
    assert taken.save is not None
    assert taken.save.step == 400
    assert any("with other content" in reason for reason in taken.reasons)
    assert point(tmp_path, "step-500").mode == "refused"


def test_changed_conditions(tmp_path: Path) -> None:
    """What the training's own configuration says of data and code is compared by name."""
    config = {"dataset": {"name": "cup-pick", "version": 4}, "code": "git:0123abc"}
    put(tmp_path / "001000", lerobot(1000) | {"pretrained_model/train_config.json": json.dumps(config).encode()})
    wanted = {"datasets": ("dataset:cup-pick@v5",), "code_revision": "9999fff"}
    refused = point(tmp_path, "1000", steps=800, **wanted)
    assert refused.mode == "refused"
    assert [one.what for one in refused.conflicts] == ["dataset_version", "code", "steps"]
    assert point(tmp_path, "1000", datasets=("dataset:cup-pick@v4",), code_revision="0123abc").conflicts == ()


def test_one_save_by_itself(tmp_path: Path) -> None:
    """A single checkpoint's folder is judged as that one."""
    put(tmp_path / "000500", lerobot(500))
    assert [save.state for save in look_at(tmp_path / "000500").saves] == ["complete"]


@pytest.mark.parametrize(
    ("files", "args", "code"),
    [
        ({"000500": lerobot(500)}, ("verify",), 0),
        ({"000500": lerobot(500)}, ("resume-point",), 0),
        ({"000500": lerobot(500), "001000": {WEIGHTS: b""}}, ("verify",), 1),
        ({"000500": lerobot(500), "001000": {WEIGHTS: b""}}, ("resume-point",), 0),
        ({"000500": {WEIGHTS: WHOLE}}, ("verify",), 0),
        ({"000500": {WEIGHTS: WHOLE}}, ("resume-point",), 1),
        ({}, ("verify",), 1),
    ],
)
def test_commands(tmp_path: Path, files: dict[str, dict[str, bytes]], args: tuple[str, ...], code: int) -> None:
    """Text and JSON say the same; the exit code says whether all are whole, or whether one can be resumed."""
    for name, one in files.items():
        put(tmp_path / name, one)
    app = typer.Typer()
    register(app)
    text = CliRunner().invoke(app, [*args, str(tmp_path)])
    told = CliRunner().invoke(app, [*args, str(tmp_path), "--json"])
    assert (text.exit_code, told.exit_code) == (code, code)
    found = json.loads(told.stdout)
    resume = found.get("resume", found)
    assert resume["reasons"][0] in text.stdout
    assert [one["name"] for one in found["checkpoints"]] == sorted(files)
