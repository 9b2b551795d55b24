"""Which folders are complete checkpoints: finished, at rest, and whole by header arithmetic."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from forebay.contracts.v1.models import checkpoint_digest
from forebay.sdk.checkpoints import CheckpointWatcher, Save, Unfinished, inspect, safetensors_problem, up_to_last
from forebay.sdk.old_runs import saves_in

from sdk.tests.builders import write_save


def test_a_save_counts_when_it_has_come_to_rest(tmp_path: Path) -> None:
    """Seen once it may still be growing; seen twice the same, it is a save, and it is told once."""
    write_save(tmp_path / "step-000100", 100)
    watcher = CheckpointWatcher(tmp_path)
    assert list(watcher.scan()) == []
    (found,) = watcher.scan()
    assert isinstance(found, Save)
    assert (found.step, found.metrics, found.scheduler, found.rng, found.optimizer) == (
        100,
        {"loss": 0.5},
        True,
        True,
        False,
    )
    assert found.digest == checkpoint_digest(found.files)
    assert list(watcher.scan()) == []


def test_the_final_look_does_not_wait(tmp_path: Path) -> None:
    """When the process is gone nothing changes any more."""
    write_save(tmp_path / "step-000100", 100)
    assert len(list(CheckpointWatcher(tmp_path).scan(final=True))) == 1


def test_an_overwrite_in_place_is_another_save(tmp_path: Path) -> None:
    """Same folder, other bytes: other digest, told again."""
    watcher = CheckpointWatcher(tmp_path)
    write_save(tmp_path / "step-000100", 100)
    (first,) = watcher.scan(final=True)
    write_save(tmp_path / "step-000100", 100, value=7)
    (second,) = watcher.scan(final=True)
    assert isinstance(first, Save)
    assert isinstance(second, Save)
    assert first.digest != second.digest


@pytest.mark.parametrize(
    "name", ["step-000100.tmp", "tmp-100", ".step-100", "100.incomplete", "100.orbax-checkpoint-tmp-17"]
)
def test_folders_in_progress_are_not_looked_at(tmp_path: Path, name: str) -> None:
    """What its writer still calls unfinished is unfinished."""
    write_save(tmp_path / name, 100)
    assert list(CheckpointWatcher(tmp_path).scan(final=True)) == []


@pytest.mark.parametrize("cut", [1, 16, 40])
def test_a_truncated_save_is_unfinished(tmp_path: Path, cut: int) -> None:
    """The header says how long the file must be."""
    found = inspect(write_save(tmp_path / "step-000100", 100, cut=cut))
    assert isinstance(found, Unfinished)
    assert "model.safetensors" in found.reason


def test_a_file_in_progress_inside_keeps_the_save_back(tmp_path: Path) -> None:
    """A marker anywhere inside counts."""
    folder = write_save(tmp_path / "step-000100", 100)
    (folder / "optimizer.safetensors.part").write_bytes(b"x")
    assert isinstance(inspect(folder), Unfinished)


def test_lerobots_own_layout_is_understood(tmp_path: Path) -> None:
    """`checkpoints/005000/{pretrained_model,training_state}`; the link `last` is no second checkpoint."""
    folder = tmp_path / "005000"
    write_save(folder / "pretrained_model", 0)
    (folder / "pretrained_model/state.json").unlink()
    (folder / "training_state").mkdir()
    (folder / "training_state/training_step.json").write_text(json.dumps({"step": 5000}))
    write_save(folder / "training_state", 0)
    (folder / "training_state/optimizer_state.safetensors").write_bytes(
        (folder / "pretrained_model/model.safetensors").read_bytes()
    )
    (tmp_path / "last").symlink_to(folder)
    (found,) = CheckpointWatcher(tmp_path).scan(final=True)
    assert isinstance(found, Save)
    assert (found.step, found.optimizer) == (5000, True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no whole header"),
        (b"\xff" * 8, "no whole header"),
        ((2).to_bytes(8, "little") + b"[]", "not that of safetensors"),
        ((2).to_bytes(8, "little") + b"{}x", "promises 10 bytes"),
    ],
    ids=["empty", "absurd length", "no object", "bytes too many"],
)
def test_strange_headers_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    """Nothing is loaded, nothing is believed."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert says in str(safetensors_problem(path))


def _tensors(header: object, data: bytes = b"1234") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "offsets",
    [[0, 4, 8], [4], [], "04", {"a": 0, "b": 4}, [False, True], [0.0, 4.0], [0, None], [0, float("inf")], 4, None],
)
def test_offsets_that_are_no_two_sizes(tmp_path: Path, offsets: object) -> None:
    """Whatever stands there, the save is said to be broken and the agent lives."""
    write_save(tmp_path / "step-000100", 100)
    header = {"w": {"dtype": "F32", "shape": [1], "data_offsets": offsets}}
    (tmp_path / "step-000100" / "model.safetensors").write_bytes(_tensors(header))
    (found,) = CheckpointWatcher(tmp_path).scan(final=True)
    assert isinstance(found, Unfinished)
    assert "model.safetensors" in found.reason


def test_links_in_circles(tmp_path: Path) -> None:
    """Links to nowhere and to each other, in a save and beside it, stop nothing."""
    write_save(tmp_path / "step-000100", 100)
    for place in (tmp_path, tmp_path / "step-000100"):
        (place / "here").symlink_to("there")
        (place / "there").symlink_to("here")
        (place / "last").symlink_to("step-000900")
        (place / "self").symlink_to(".")
    (found,) = CheckpointWatcher(tmp_path).scan(final=True)
    assert isinstance(found, Save)
    whole, passed = saves_in(tmp_path)
    assert [save.step for save in whole] == [100]
    assert len(passed) == 4
    assert not up_to_last(tmp_path / "step-000901")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """A file whose name is not UTF-8 cannot stand in an event; the save is passed over with that reason."""
    write_save(tmp_path / "step-000100", 100)
    with (Path(os.fsdecode(os.fsencode(tmp_path / "step-000100") + b"/\xff.bin"))).open("wb") as file:
        file.write(b"x")
    found = inspect(tmp_path / "step-000100")
    assert isinstance(found, Unfinished)
    assert "not UTF-8" in found.reason


def test_metrics_of_any_size(tmp_path: Path) -> None:
    """Numbers that no float holds, names that are no text, and thousands of them: the sound ones of the first hundred."""
    write_save(tmp_path / "step-000100", 100)
    metrics = {f"m{number:04}": number for number in range(3000)} | {"a" * 300: 1.0, "large": 10**400}
    state = json.dumps({"step": 100, "metrics": metrics | {"\ud800": 1.0, "yes": True, "text": "0.5"}})
    (tmp_path / "step-000100" / "state.json").write_text(state)
    found = inspect(tmp_path / "step-000100")
    assert isinstance(found, Save)
    assert list(found.metrics) == [f"m{number:04}" for number in range(100)]


def test_an_empty_mark_is_no_torn_file(tmp_path: Path) -> None:
    """Some trainers end a save with an empty `DONE`: it says that the save is finished."""
    folder = write_save(tmp_path / "step-000100", 100)
    (folder / "DONE").write_bytes(b"")
    assert isinstance(inspect(folder), Save)
    (folder / "optimizer.pt").write_bytes(b"")
    found = inspect(folder)
    assert isinstance(found, Unfinished)
    assert "optimizer.pt: the file is empty" in found.reason


def test_a_distributed_save_waits_for_its_metadata(tmp_path: Path) -> None:
    """torch writes `.metadata` last: until then the shards are no save."""
    folder = tmp_path / "step-100"
    folder.mkdir()
    (folder / "__0_0.distcp").write_bytes(b"x")
    found = inspect(folder)
    assert isinstance(found, Unfinished)
    assert "which torch writes last" in found.reason
    (folder / ".metadata").write_bytes(b"x")
    assert isinstance(inspect(folder), Save)


def test_a_single_file_is_a_save(tmp_path: Path) -> None:
    """Lightning writes one file for each save; `last.ckpt` is a second name of one."""
    (tmp_path / "epoch=3-step=400.ckpt").write_bytes(b"x")
    (tmp_path / "last.ckpt").symlink_to("epoch=3-step=400.ckpt")
    (found,) = CheckpointWatcher(tmp_path).scan(final=True)
    assert isinstance(found, Save)
    assert (found.step, [file.path for file in found.files]) == (400, ["epoch=3-step=400.ckpt"])
