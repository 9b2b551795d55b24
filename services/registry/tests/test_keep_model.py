"""Registering a model keeps its files, and a release has every byte of them read first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from forebay.contracts.v1.models import ModelFilesChecked, ModelFilesKept
from forebay.registry.domain.keeping import AT_REGISTRATION, KEEP
from forebay.registry.workers.keep_model import KeepOrder, ModelKeeper, ModelStore, keep_files
from forebay.runtime.errors import Refused, RetryLater
from forebay.runtime.file_delivery import WantedFile, object_path
from forebay.runtime.machine import Emit, NothingPending
from forebay.runtime.work import WorkContext, WorkItem

from services.registry.tests.histories import PROJECT, Registry, leased, request, started, submitted, verified
from services.registry.tests.test_verify_checkpoint import event_for, own, put, tensor_file
from tests.run_here import RunHere


class Context(RunHere):
    """Calls run here."""


class Kept:
    """A registry over real files, with the worker that keeps them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.registry = Registry()
        self.store = ModelStore(folder=home / "models", floor=0)
        self.saves = home / "jobs" / "reach-1"
        self.registry.say(submitted(), leased(), started(1))

    def save(self, step: int, **files: bytes) -> Path:
        weights = tensor_file({"w": [step]})
        folder = put(self.saves / f"{step:06d}", own(step) | {"model.safetensors": weights} | files)
        body = event_for(folder, step, checkpoint=f"ck-{step}")
        self.registry.say(body, verified(body))
        return folder

    async def work(self) -> list[Any]:
        """Do what is to be done, and have it heard."""
        keeper, said = ModelKeeper([str(self.home / "jobs" / "{job}")], self.store), []
        while self.registry.work:
            work = self.registry.work.pop(0)
            if work.kind == KEEP:
                item = WorkItem(kind=KEEP, key=work.key, project=PROJECT, payload=work.payload, tries=0)
                emits: Iterable[Emit] = await keeper(item, cast("WorkContext", Context()))
                for emit in emits:
                    self.registry.act(emit)
                    said.append(emit.body)
        return said

    async def release(self, number: int, channel: str = "candidate", **args: Any) -> dict[str, Any]:
        args = {"model": "reach", "number": number, "channel": channel, "forced_reason": "test", **args}
        args["check"] = f"mc-{len(self.registry.said)}"  # as every new request has its own
        command = self.registry.service.commands["model-release"]
        outcome = command(self.registry.state, NothingPending(), request(args, PROJECT))
        for action in outcome.actions:
            self.registry.act(action)
        if not outcome.result.get("pending"):
            return outcome.result
        await self.work()
        return self.registry.command("model-release", **args)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_files_are_kept(kept: Kept) -> None:
    """A registration copies every file; equal contents of two versions are there once, and nothing is a link."""
    for step in (100, 200):
        kept.save(step)
        kept.registry.command("model-register", model="reach", job="reach-1", checkpoint=str(step))
    first, second = await kept.work()
    assert isinstance(first, ModelFilesKept)
    assert (first.added_bytes, len(first.files)) == (first.bytes, 3)
    assert second.added_bytes < second.bytes
    objects = files_in(kept.store.objects(PROJECT))
    assert len(objects) == len({file.sha256 for one in (first, second) for file in one.files})
    assert all(path.stat().st_nlink == 1 and not path.is_symlink() for path in objects)
    about = kept.registry.ask("model-files", model="reach", number=1)
    assert (about["kept"], about["problem"]) == (True, None)
    assert [file["path"] for file in about["files"]] == sorted(own())


async def test_what_a_job_writes_later_changes_nothing(kept: Kept) -> None:
    """The folder may be deleted or overwritten in place: what is kept is what was registered."""
    folder = kept.save(100)
    kept.registry.command("model-register", model="reach", job="reach-1", checkpoint="100")
    await kept.work()
    for path in folder.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert (await kept.release(1))["channel"] == "candidate"
    for path in folder.iterdir():
        path.unlink()
    assert (await kept.release(1, "canary"))["channel"] == "canary"


@pytest.mark.parametrize(("damage", "code"), [("delete", "files-missing"), ("change", "files-missing")])
async def test_a_release_looks_at_every_byte(kept: Kept, damage: str, code: str) -> None:
    """A kept file that is gone or has another byte is mended from the checkpoint; without it the release is refused."""
    folder = kept.save(100)
    kept.registry.command("model-register", model="reach", job="reach-1", checkpoint="100")
    await kept.work()

    def harm() -> None:
        place = files_in(kept.store.objects(PROJECT))[0]
        body = place.read_bytes()
        place.unlink()
        if damage == "change":
            place.write_bytes(bytes([body[0] ^ 1]) + body[1:])

    harm()
    assert (await kept.release(1))["channel"] == "candidate"
    harm()
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(Refused) as refused:
        await kept.release(1, "production")
    assert refused.value.code == code
    assert "in the store" in refused.value.message
    assert kept.registry.ask("models")["models"][0]["channels"] == {"candidate": 1}


async def test_a_version_whose_files_are_gone(kept: Kept) -> None:
    """Files that cannot be kept at registration are named, and such a version is not released, whatever the reason."""
    folder = kept.save(100)
    kept.registry.command("model-register", model="reach", job="reach-1", checkpoint="100")
    (folder / "model.safetensors").unlink()
    (said,) = await kept.work()
    assert isinstance(said, ModelFilesChecked)
    assert (said.check, said.status) == (AT_REGISTRATION, "missing")
    about = kept.registry.ask("model-files", model="reach")
    assert about["kept"] is False
    assert "model.safetensors is not there any more" in about["problem"]
    with pytest.raises(Refused) as refused:
        await kept.release(1)
    assert refused.value.code == "files-missing"


async def test_a_rollback_looks_too(kept: Kept) -> None:
    """Going back to a version whose files are gone is refused, and the channel stays."""
    for step in (100, 200):
        kept.save(step, **{"extra.bin": str(step).encode()})
        kept.registry.command("model-register", model="reach", job="reach-1", checkpoint=str(step))
    await kept.work()
    await kept.release(1)
    await kept.release(2)
    for path in [*files_in(kept.saves / "000100"), *files_in(kept.store.objects(PROJECT))]:
        path.unlink()
    with pytest.raises(Refused) as refused:
        await kept.release(1, rollback=True, reason="worse")
    assert refused.value.code == "files-missing"
    assert kept.registry.ask("models")["models"][0]["channels"] == {"candidate": 2}


async def test_a_pool_that_is_not_mounted(kept: Kept) -> None:
    """Nothing is written where a mount that comes up later would hide it."""
    kept.save(100)
    kept.registry.command("model-register", model="reach", job="reach-1", checkpoint="100")
    kept.store = ModelStore(folder=kept.home / "models", mount=kept.home, floor=0)
    with pytest.raises(RetryLater, match="is not mounted"):
        await kept.work()
    assert not kept.store.folder.exists()


def order(tmp_path: Path, one: WantedFile, **more: Any) -> KeepOrder:
    values: dict[str, Any] = {"uri": str(tmp_path / "save"), "roots": (tmp_path,), "objects": tmp_path / "objects"}
    return KeepOrder(files=(one,), owner="km-1", floor=0, **values | more)


def test_hostile_sources(tmp_path: Path) -> None:
    """Links out, pipes, paths that climb, and files of another size are named; nothing is kept of them."""
    save = put(tmp_path / "save", {"plain": b"x"})
    (tmp_path / "secret").write_bytes(b"x")
    (save / "link").symlink_to(tmp_path / "secret")
    (save / "circle").symlink_to("circle")
    os.mkfifo(save / "pipe")
    sparse = save / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    for path in ("link", "circle", "pipe", "../secret", "/etc/hostname", "sparse", "gone"):
        found = keep_files(order(tmp_path, WantedFile(path, digest, 1)))
        assert found.status in {"missing", "changed"}, path
        assert files_in(tmp_path / "objects") == []
    assert keep_files(order(tmp_path, WantedFile("plain", digest, 1))).status == "whole"
    outside = keep_files(order(tmp_path, WantedFile("other", "a" * 64, 1), uri="/etc"))
    assert "outside the folders" in outside.missing[0]


def test_no_room(tmp_path: Path) -> None:
    """A store without room is a full disk, told before anything is copied."""
    with pytest.raises(OSError, match="must stay free"):
        keep_files(order(tmp_path, WantedFile("plain", "a" * 64, 1 << 60)))


def test_a_killed_run_leaves_nothing_half(tmp_path: Path) -> None:
    """What an earlier run of this work left unfinished is written anew; only whole contents have a name."""
    save = put(tmp_path / "save", {"plain": b"x"})
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    place = object_path(tmp_path / "objects", digest)
    place.parent.mkdir(parents=True)
    (place.parent / f".{digest}.km-1.part").write_bytes(b"half of something")
    assert keep_files(order(tmp_path, WantedFile("plain", digest, 1))).added_bytes == 1
    assert [path.read_bytes() for path in files_in(tmp_path / "objects")] == [b"x"]
    assert save.is_dir()
