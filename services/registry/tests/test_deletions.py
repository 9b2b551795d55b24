"""Files of saves and jobs are deleted when nothing needs them; what needs them is named; the record stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.v1.models import CheckpointDeleted, JobFilesDeleted, ModelFilesKept
from forebay.registry.domain.deleting import DELETE
from forebay.registry.workers.delete_files import delete_folders, delete_save
from forebay.runtime.errors import Refused

from services.registry.tests.histories import (
    Registry,
    leased,
    resumed,
    run,
    started,
    submitted,
    trained,
    verified,
    written,
)
from services.registry.tests.test_verify_checkpoint import own, put


@pytest.fixture
def registry() -> Registry:
    found = Registry()
    trained(found)
    return found


def refused(registry: Registry, command: str = "checkpoint-delete", **args: Any) -> Refused:
    with pytest.raises(Refused) as error:
        registry.command(command, **{"reason": "room", **args})
    return error.value


def delete(registry: Registry, step: int, **args: Any) -> dict[str, Any]:
    return registry.command("checkpoint-delete", checkpoint=str(step), job="reach", reason="room", **args)


def kept(registry: Registry, number: int = 1) -> None:
    save = written(300, 2)
    about = {"model": "reach", "number": number, "artefact_sha256": save.digest, "store": "/store"}
    registry.say(ModelFilesKept(**about, files=save.files, bytes=300, added_bytes=300))


def test_the_rest_is_deleted(registry: Registry) -> None:
    """A save that nothing needs goes, in the log before any file; it is never offered again and stays on record."""
    found = delete(registry, 100)
    assert [one["step"] for one in found["checkpoints"]] == [100]
    body = next(one.body for one in registry.said if isinstance(one.body, CheckpointDeleted))
    assert (body.step, body.reason, body.by) == (100, "room", "tester")
    assert [work.payload["uri"] for work in registry.work if work.kind == DELETE] == [body.uri]
    assert delete(registry, 100)["already"] is True
    lineage = registry.ask("lineage", id=body.checkpoint)
    assert lineage["tree"]["state"] == "deleted"
    point = registry.ask("resume-preview", job="reach-1", checkpoint="100")
    assert point["mode"] == "refused"
    assert "deleted: by tester: room" in point["reasons"][0]
    assert refused(registry, "model-register", model="m", job="reach-1", checkpoint="100").code == "unusable-checkpoint"


def test_a_dry_run_changes_nothing(registry: Registry) -> None:
    """What would be deleted is said, and nothing is decided."""
    before = len(registry.said)
    assert delete(registry, 100, dry_run=True)["bytes"] == 300
    assert len(registry.said) == before


def test_what_a_model_needs(registry: Registry) -> None:
    """A version's checkpoint is refused, and the version and its channels are named, until its own files are kept."""
    registry.command("model-register", model="reach", job="reach-1")
    registry.command("model-release", model="reach", channel="production", forced_reason="x")
    for force in (False, True):
        no = refused(registry, checkpoint="300", job="reach-1", force=force)
        assert no.code == "still-needed"
        assert (
            "model reach@v1 (named by production): it was made from this checkpoint, and its files are not kept"
            in no.message
        )
    kept(registry)
    assert "--force" in refused(registry, checkpoint="300", job="reach-1").next_action
    assert delete(registry, 300, force=True)["already"] is False
    assert registry.ask("model-files", model="reach")["kept"] is True


def test_what_a_job_needs() -> None:
    """The save that a running job would continue from, and one that another job starts from, are refused; older ones go."""
    registry = Registry()
    registry.say(submitted(), leased(), resumed(1, None), started(1))
    for step in (100, 200):
        registry.say(written(step), verified(written(step)))
    no = refused(registry, checkpoint="200", job="reach-1")
    assert "job reach-1: it has not ended, and its next attempt would continue from step 200" in no.message
    second = submitted("second-1")
    restart = second.spec.restart.model_copy(update={"start_from": written(100).checkpoint})
    spec = second.spec.model_copy(update={"restart": restart})
    registry.say(second.model_copy(update={"spec": spec}))
    assert (
        "job second-1: it has not ended, and starts from" in refused(registry, checkpoint="100", job="reach-1").message
    )
    assert refused(registry, "job-delete", job="reach-1").code == "job-not-ended"


def test_a_job(registry: Registry) -> None:
    """A job's files go together; one needed save keeps them all, and is named; lineage still answers."""
    registry.say(submitted("other-1"), leased("other-1"))
    run(registry, "other-1")
    registry.command("model-register", model="reach", job="reach-1")
    assert "model reach@v1" in refused(registry, "job-delete", job="reach").message
    found = registry.command("job-delete", job="other-1", reason="given up")
    assert [one["step"] for one in found["checkpoints"]] == [100, 200, 300]
    body = next(one.body for one in registry.said if isinstance(one.body, JobFilesDeleted))
    assert (body.job, body.checkpoints) == ("other-1", 3)
    assert registry.command("job-delete", job="other-1", reason="again")["already"] is True
    assert registry.ask("lineage", id="other-1")["tree"]["state"] == "SUCCEEDED"


def test_an_unknown_one(registry: Registry) -> None:
    """What does not exist is refused, and a reason is needed."""
    assert refused(registry, checkpoint="ck-nobody").code == "unknown-checkpoint"
    assert refused(registry, checkpoint="777", job="reach-1").code == "unknown-checkpoint"
    with pytest.raises(Refused):
        registry.command("checkpoint-delete", checkpoint="100", job="reach-1")


def test_two_saves_in_one_folder(registry: Registry) -> None:
    """A folder that a later save has overwritten is not deleted in the name of the earlier one."""
    place = written(100).uri
    registry.say(written(400, 2, uri=place), verified(written(400, 2, uri=place)))
    assert f"it lies in the same folder, {place}" in refused(registry, checkpoint="100", job="reach-1").message


def test_files_are_removed(tmp_path: Path) -> None:
    """One save goes with the links that name it; links inside are removed and not followed; the rest stays."""
    root, precious = tmp_path / "reach-1", put(tmp_path / "precious", {"a": b"1"})
    save, other = put(root / "000100", own(100)), put(root / "000200", own(200))
    (save / "link").symlink_to(precious)
    (root / "last").symlink_to("000100")
    for _ in range(2):
        delete_save(str(save), [root], "df-1")
    assert sorted(path.name for path in root.iterdir()) == ["000200"]
    assert (precious / "a").exists()
    assert other.is_dir()


@pytest.mark.parametrize("uri", ["{root}", "{root}/..", "/etc", "{root}/out", "s3://b/x"])
def test_nothing_outside_is_removed(tmp_path: Path, uri: str) -> None:
    """Neither the job's whole folder nor anything that its links lead to goes in the name of a save."""
    root, precious = put(tmp_path / "reach-1", {"log": b"1"}), put(tmp_path / "precious", {"a": b"1"})
    (root / "out").symlink_to(precious)
    delete_save(uri.format(root=root), [root], "df-1")
    assert (precious / "a").exists()
    assert (root / "log").exists()


def test_a_killed_removal_goes_on(tmp_path: Path) -> None:
    """What was renamed and not yet removed goes with the next run."""
    put(tmp_path / ".reach-1.df-1.deleted", {"a": b"1"})
    put(tmp_path / "reach-2", {"a": b"1"})
    delete_folders([tmp_path / "reach-1"], "df-1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reach-2"]
