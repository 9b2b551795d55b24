"""Saves of every kind that trainers write, judged by what their files are: whole, torn, without a part, never finished."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pickle
import sys
import time
import types
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.v1.models import Compatibility
from forebay.registry.domain.pickle_contents import TornPickleError, atoms, shard_sizes
from forebay.registry.saves_offline import look_at, resume_in
from forebay.registry.workers.verify_checkpoint import verify
from hypothesis import given
from hypothesis import strategies as st

from services.registry.tests.test_verify_checkpoint import WHOLE, event_for, lerobot, own, put, tensor_file

Files = dict[str, bytes]


def torch_file(content: object) -> bytes:
    """As `torch.save` lays it out: a zip that holds one pickle and raw storages."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("archive/data/0", bytes(256))
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


@dataclasses.dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


@dataclasses.dataclass
class Metadata:
    state_dict_metadata: dict[str, Any]
    storage_data: dict[str, Any]


def dcp_metadata(places: Mapping[str, tuple[str, int, int]]) -> bytes:
    """As torch.distributed.checkpoint pickles it, with its module's names."""
    module = types.ModuleType("torch_checkpoint_filesystem")
    for one in (_StorageInfo, Metadata):
        one.__module__ = module.__name__
        setattr(module, one.__name__, one)
    sys.modules[module.__name__] = module
    storage = {key: _StorageInfo(*place) for key, place in places.items()}
    try:
        return pickle.dumps(Metadata(dict.fromkeys(places), storage))
    finally:
        del sys.modules[module.__name__]


PLACES = {
    "model.layers.0.weight": ("__0_0.distcp", 0, 100),
    "model.layers.1.weight": ("__1_0.distcp", 0, 80),
    "optimizer.state.0": ("__0_0.distcp", 100, 60),
    "lr_scheduler.last_epoch": ("__1_0.distcp", 80, 20),
    "rng": ("__1_0.distcp", 100, 8),
}
DCP: Files = {".metadata": dcp_metadata(PLACES), "__0_0.distcp": bytes(160), "__1_0.distcp": bytes(108)}
LIGHTNING = torch_file(
    {"epoch": 3, "global_step": 1000, "pytorch-lightning_version": "2.5", "state_dict": {}}
    | {"optimizer_states": [], "lr_schedulers": []}
)
TRAINER: Files = {
    "trainer_state.json": b'{"global_step": 1000}',
    "optimizer.pt": torch_file({"state": {}}),
    "scheduler.pt": torch_file({}),
    "rng_state.pth": torch_file({}),
}
ADAPTER: Files = {"adapter_model.safetensors": WHOLE, "adapter_config.json": b"{}"}
RANKS: Files = {
    f"{what}_world_size_2_rank_{rank}.pt": torch_file({})
    for what in ("model", "optim", "extra_state")
    for rank in (0, 1)
}
INDEX = json.dumps({"weight_map": {"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"}}).encode()
SHARDED: Files = {
    "m.safetensors.index.json": INDEX,
    "m-00001-of-00002.safetensors": tensor_file({"a": [1]}),
    "m-00002-of-00002.safetensors": tensor_file({"b": [1]}),
}
LEROBOT_ADAPTER = {
    name: body for name, body in lerobot(1000).items() if name != "pretrained_model/model.safetensors"
} | {f"pretrained_model/{name}": body for name, body in ADAPTER.items()}


def without(files: Files, *names: str) -> Files:
    return {name: body for name, body in files.items() if name not in names}


CASES: dict[str, tuple[Files, str, tuple[str, ...]]] = {
    "an adapter in LeRobot's folder": (LEROBOT_ADAPTER, "complete", ()),
    "an adapter of the Trainer": (TRAINER | ADAPTER, "complete", ()),
    "an adapter as a pickle": (
        TRAINER | {"adapter_model.bin": torch_file({}), "adapter_config.json": b"{}"},
        "complete",
        (),
    ),
    "an adapter alone": (ADAPTER, "weights-only", ("missing optimizer",)),
    "an adapter without its configuration": (
        without(LEROBOT_ADAPTER, "pretrained_model/adapter_config.json"),
        "incomplete",
        ("no pretrained_model/adapter_config.json",),
    ),
    "an adapter cut off": (
        LEROBOT_ADAPTER | {"pretrained_model/adapter_model.safetensors": WHOLE[:-5]},
        "corrupt",
        ("truncated",),
    ),
    "shards": (TRAINER | SHARDED, "complete", ()),
    "shards without one": (
        without(TRAINER | SHARDED, "m-00002-of-00002.safetensors"),
        "corrupt",
        ("'m-00002-of-00002.safetensors', which is not among", "1 of 2 shards are there"),
    ),
    "shards without their index": (
        without(TRAINER | SHARDED, "m.safetensors.index.json", "m-00001-of-00002.safetensors"),
        "incomplete",
        ("1 of 2 shards are there",),
    ),
    "an index that climbs": (
        TRAINER
        | SHARDED
        | {"m.safetensors.index.json": b'{"weight_map": {"a": "../../etc/passwd", "b": "/etc/passwd"}}'},
        "corrupt",
        ("'../../etc/passwd', which is not among", "'/etc/passwd', which is not among"),
    ),
    "torch distributed": (DCP, "inexact", ("missing step",)),
    "torch distributed without .metadata": (
        without(DCP, ".metadata"),
        "incomplete",
        ("no .metadata: torch writes it last",),
    ),
    "torch distributed without a shard": (
        without(DCP, "__1_0.distcp"),
        "corrupt",
        ("'__1_0.distcp', which is not among",),
    ),
    "torch distributed, a shard cut": (
        DCP | {"__0_0.distcp": bytes(90)},
        "corrupt",
        ("places 160 bytes in it, the file has 90",),
    ),
    "torch distributed, .metadata cut": (
        DCP | {".metadata": DCP[".metadata"][:-9]},
        "corrupt",
        (".metadata: truncated",),
    ),
    "FSDP of accelerate": (
        TRAINER
        | {f"pytorch_model_fsdp_0/{name}": body for name, body in DCP.items()}
        | {f"optimizer_0/{name}": body for name, body in DCP.items()},
        "complete",
        (),
    ),
    "ranks": (RANKS, "inexact", ("missing step",)),
    "ranks without one": (
        without(RANKS, "optim_world_size_2_rank_1.pt"),
        "incomplete",
        ("optim_world_size_2_rank_1.pt is not there: 1 of 2 ranks",),
    ),
    "ranks, one empty": (
        RANKS | {"model_world_size_2_rank_1.pt": b""},
        "corrupt",
        ("model_world_size_2_rank_1.pt: empty",),
    ),
    "a Trainer's optimizer cut": (
        TRAINER | ADAPTER | {"optimizer.pt": TRAINER["optimizer.pt"][:-30]},
        "corrupt",
        ("optimizer.pt: truncated",),
    ),
    "LeRobot without a scheduler, as its configuration says": (
        without(lerobot(1000), "training_state/scheduler_state.json")
        | {"pretrained_model/train_config.json": b'{"scheduler": null}'},
        "complete",
        (),
    ),
    "every fault at once": (
        without(lerobot(1000), "training_state/rng_state.safetensors", "training_state/training_step.json")
        | {"pretrained_model/model.safetensors": WHOLE[:-3], "training_state/scheduler_state.json": b""}
        | {".incomplete": b""},
        "corrupt",
        ("marked in progress: .incomplete", "truncated", "scheduler_state.json: empty file", "missing RNG, step"),
    ),
}


@pytest.mark.parametrize(("files", "state", "says"), CASES.values(), ids=CASES)
def test_kinds(tmp_path: Path, files: Files, state: str, says: tuple[str, ...]) -> None:
    """Each kind has its state and all of its faults, offline and by the worker; a resume takes only what is whole."""
    put(tmp_path / "000500", own(500))
    folder = put(tmp_path / "step-1000", files)
    save = look_at(tmp_path).saves[-1]
    assert (save.name, save.step, save.state) == ("step-1000", 1000, state)
    text = "\n".join(save.findings)
    assert [one for one in says if one not in text] == []
    worker = verify(event_for(folder, 1000), [tmp_path])
    assert worker.status == state
    assert [one for one in says if one not in "\n".join(worker.findings)] == []
    point = resume_in(look_at(tmp_path), named=None, compatibility=Compatibility(), steps=None)
    assert point.save is not None
    assert point.save.step == (1000 if state == "complete" else 500)


def test_lightning_files(tmp_path: Path) -> None:
    """One file is one save: its step is read from it, a torn one is corrupt, `last` is a second name."""
    put(tmp_path, {"epoch=3-step=1000.ckpt": LIGHTNING, "epoch=4-step=1200.ckpt": LIGHTNING[:-40]})
    (tmp_path / "last.ckpt").symlink_to("epoch=3-step=1000.ckpt")
    found = look_at(tmp_path)
    assert [(one.name, one.step, one.state) for one in found.saves] == [
        ("epoch=3-step=1000.ckpt", 1000, "inexact"),
        ("epoch=4-step=1200.ckpt", 1200, "corrupt"),
    ]
    assert found.saves[0].kind == "Lightning"
    assert [(link.name, link.target) for link in found.links] == [("last.ckpt", "epoch=3-step=1000.ckpt")]
    assert [one.step for one in look_at(tmp_path / "epoch=3-step=1000.ckpt").saves] == [1000]


def test_pickles_are_not_run(tmp_path: Path) -> None:
    """What a hostile pickle would do does not happen."""

    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "harm"),))

    put(tmp_path / "step-1", DCP | {".metadata": pickle.dumps(Harm()), "optimizer.pt": torch_file(Harm())})
    look_at(tmp_path)
    assert not (tmp_path / "harm").exists()


@given(st.binary(max_size=300))
def test_any_bytes_as_pickle(data: bytes) -> None:
    """Any bytes are read or refused, and nothing else."""
    for one in (data, DCP[".metadata"][: len(data)] + data):
        with contextlib.suppress(TornPickleError):
            shard_sizes(atoms(one))


@pytest.mark.parametrize(
    ("age_s", "older_s", "later", "state", "says"),
    [
        (5, 600, False, "in progress", ""),
        (7200, 9000, False, "incomplete", "nothing in it has changed for 2 h"),
        (5, 600, True, "incomplete", "gone on to step 1500"),
        (5, 5, False, "incomplete", "this folder is a copy"),
    ],
)
def test_stale_marks(tmp_path: Path, age_s: float, older_s: float, state: str, says: str, *, later: bool) -> None:
    """A mark means `still writing` only for the newest save, changed a moment ago, in a folder that is no copy."""
    now = time.time()
    put(tmp_path / "000500", own(500))
    put(tmp_path / "001000", own(1000) | {".incomplete": b"", "logs/a": b"1"})
    if later:
        put(tmp_path / "001500", own(1500))
    for folder, age in (("000500", older_s), ("001000", age_s)):
        for path in (one for one in (tmp_path / folder).rglob("*") if one.is_file()):
            os.utime(path, (now - age, now - age))
    save = look_at(tmp_path, now=now).saves[1]
    assert save.state == state
    assert says in "\n".join(save.findings)
    assert "marked in progress" in save.findings[0]


@pytest.mark.parametrize("named", ["last", "latest", "latest_checkpointed_iteration.txt"])
def test_a_text_file_names_a_save(tmp_path: Path, named: str) -> None:
    """`last` may be a link or a small text file; what it means is said, and that a newer save exists."""
    for step in (500, 1000, 1500):
        put(tmp_path / f"{step:06d}", own(step) if step < 1500 else own(step) | {"model.safetensors": WHOLE[:-1]})
    put(tmp_path, {named: b"000500\n" if named == "last" else b"500"})
    point = resume_in(look_at(tmp_path), named=named, compatibility=Compatibility(), steps=None)
    assert point.save is not None
    assert (point.mode, point.save.step) == ("resume", 500)
    text = "\n".join(point.reasons)
    assert f"{named} names 000500 (step 500)" in text
    assert "step 1000 (checkpoint 001000) is newer and is not taken: complete" in text
    assert "step 1500 (checkpoint 001500) is newer and is not taken: corrupt" in text


def test_last_without_such_a_name(tmp_path: Path) -> None:
    """Where nothing is called `last` it means the newest save, and the answer says so."""
    put(tmp_path / "000500", own(500))
    put(tmp_path / "001000", own(1000))
    point = resume_in(look_at(tmp_path), named="last", compatibility=Compatibility(), steps=None)
    assert point.save is not None
    assert point.save.step == 1000
    assert "means the newest, 001000" in "\n".join(point.reasons)


def test_a_single_file_by_the_worker(tmp_path: Path) -> None:
    """What the agent says of a save that is one file is verified where it lies."""
    file = put(tmp_path, {"epoch=3-step=1000.ckpt": LIGHTNING}) / "epoch=3-step=1000.ckpt"
    body = event_for(tmp_path, 1000, uri=str(file))
    assert verify(body, [tmp_path]).status == "inexact"
    file.write_bytes(LIGHTNING[:-1])
    assert verify(body, [tmp_path]).status == "corrupt"
