"""Imported checkpoints: marked, checked, incomplete where nobody knows, and never a silent resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.v1.models import CheckpointImported
from forebay.registry.workers.verify_checkpoint import emit_of, saved_in, verify
from forebay.runtime.errors import Refused

from services.registry.tests.histories import PROJECT, Registry, leased, submitted, trained
from services.registry.tests.test_verify_checkpoint import event_for, lerobot, put


def args_for(folder: Path, step: int = 500, **more: Any) -> dict[str, Any]:
    """What the command line sends for a folder."""
    files = [file.model_dump(mode="json") for file in event_for(folder, step).files]
    return {"run": "old-act", "step": step, "uri": str(folder), "source": "/data/old", "files": files, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "imports" / PROJECT / "old-act" / "000500", lerobot(500))


def imported(registry: Registry, folder: Path, **more: Any) -> dict[str, Any]:
    """Import, then let the worker read the files."""
    found = registry.command("checkpoint-import", **args_for(folder, **more))
    for item in registry.work[-1:]:
        body = saved_in(item.payload)
        registry.act(emit_of(PROJECT, body, verify(body, [folder.parent])))
    return found


def test_old_run(folder: Path) -> None:
    """An old run becomes a job of its own, marked imported; its data is UNKNOWN and lineage is not complete."""
    registry = Registry()
    found = imported(registry, folder)
    assert found["unknown"] == ["datasets", "code_revision", "parameters_sha256"]
    answer = registry.ask("lineage", id=found["checkpoint"])
    assert answer["tree"]["fields"]["imported"] == "warm-start"
    assert answer["tree"]["state"] == "complete"
    assert not answer["complete"]
    assert "unknown: datasets, code_revision" in answer["missing"][0]["reason"]
    job = registry.ask("lineage", id="old-act")["tree"]
    assert (job["state"], job["parents"]) == ("IMPORTED", [])


def test_same_again(folder: Path) -> None:
    """The same save again is the same checkpoint."""
    registry = Registry()
    imported(registry, folder)
    assert registry.command("checkpoint-import", **args_for(folder))["already"]
    assert [one.body.event for one in registry.said].count("CheckpointImported") == 1


def test_known_data(folder: Path) -> None:
    """What a person knows about its data links the old run to that version, and to no other."""
    registry = Registry()
    trained(registry)
    imported(registry, folder, compatibility={"datasets": ["dataset:pick@v1"]})
    assert [one["id"] for one in registry.ask("lineage", id="old-act")["tree"]["parents"]] == ["dataset:pick@v1"]
    assert "job:old-act" in {one["id"] for one in registry.ask("impact", id="pick@v1")["reached"]["job"]}


def test_warm_start(folder: Path) -> None:
    """A new job begins with its weights: a warm start, with that edge in its lineage."""
    registry = Registry()
    save = imported(registry, folder)["checkpoint"]
    registry.say(submitted("new-1", restart={"start_from": save}), leased("new-1"))
    point = registry.command("resume-point", job="new-1", attempt=1)
    assert point["mode"] == "warm-start"
    assert any("unknown: datasets" in reason for reason in point["reasons"])


def test_resume_needs_a_reason(folder: Path) -> None:
    """Resuming from what Forebay did not see needs a person's word, and the word is on record."""
    registry = Registry()
    registry.say(submitted("new-1"), leased("new-1"))
    args = args_for(folder, run=None, job="new-1", use="resume")
    with pytest.raises(Refused) as refused:
        registry.command("checkpoint-import", **args)
    assert refused.value.code == "reason-needed"
    imported(registry, folder, run=None, job="new-1", use="resume", reason="moved from the old cluster")
    point = registry.command("resume-point", job="new-1", attempt=1)
    assert (point["mode"], point["step"]) == ("resume", 500)
    assert any("moved from the old cluster" in reason for reason in point["reasons"])


def test_warm_start_is_never_a_resume(folder: Path) -> None:
    """A save that was imported for a warm start into a job is passed over by its resume."""
    registry = Registry()
    registry.say(submitted("new-1"), leased("new-1"))
    imported(registry, folder, run=None, job="new-1")
    found = registry.ask("resume-preview", job="new-1", attempt=2)
    assert found["mode"] == "refused"
    assert "warm start only" in found["skipped"][0]["reason"]


def test_model_from_an_import(folder: Path) -> None:
    """An imported save can become a model; its lineage says that it was imported."""
    registry = Registry()
    imported(registry, folder)
    version = registry.command("model-register", model="act", job="old-act")
    assert version["step"] == 500
    found = registry.ask("audit", id="act")
    assert "MODEL_WITHOUT_CHECKPOINT" not in {one["code"] for one in found["findings"]}
    missing = registry.ask("diff", a="act", b="act")["missing"]
    assert any("imported, unknown: datasets" in one["reason"] for one in missing)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"run": "Old Run!"}, "bad-name"),
        ({"run": "reach-1"}, "name-taken"),
        ({"job": "reach-1"}, "bad-request"),
        ({"run": None, "job": "nobody-1"}, "unknown-id"),
        ({"files": []}, "bad-request"),
        ({"files": [{"path": "x"}]}, "bad-request"),
        ({"step": -1}, "bad-request"),
        ({"use": "yes"}, "bad-request"),
        ({"compatibility": {"datasets": ["dataset:none@v1"]}}, "unknown-id"),
    ],
)
def test_refusals(folder: Path, change: dict[str, Any], code: str) -> None:
    """What does not fit is refused, and nothing is recorded."""
    registry = Registry()
    registry.say(submitted())
    with pytest.raises(Refused) as refused:
        registry.command("checkpoint-import", **(args_for(folder) | change))
    assert refused.value.code == code
    assert not any(isinstance(one.body, CheckpointImported) for one in registry.said)


def test_outside_the_roots(folder: Path, tmp_path: Path) -> None:
    """The worker reads an import only below the project's imports, with the run's name."""
    registry = Registry()
    registry.command("checkpoint-import", **args_for(folder))
    body = saved_in(registry.work[-1].payload)
    assert isinstance(body, CheckpointImported)
    assert verify(body, [tmp_path / "elsewhere"]).status == "missing"
