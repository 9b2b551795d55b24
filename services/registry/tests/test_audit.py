"""The audit: every code that says broken, weak or missing, made from events, and nothing on a clean story."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.v1.datasets import DatasetVersionChecked, DatasetVersionRemoved
from forebay.contracts.v1.episodes import EpisodeWithdrawn, UploadFinished
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.contracts.v1.models import (
    CheckpointFile,
    CheckpointVerified,
    CheckpointWritten,
    Compatibility,
    ModelRolledBack,
    checkpoint_digest,
)
from forebay.registry.adapters.file_artefacts import FileArtefacts
from forebay.registry.app import definition
from forebay.registry.ports import Look
from forebay.runtime.records import ParkedMessage

from services.registry.tests.histories import (
    START,
    Registry,
    committed,
    ended,
    episode_id,
    leased,
    resumed,
    sha,
    started,
    submitted,
    trained,
    uploaded,
    verified,
    written,
)

REF = FileRef(uri="/one.json", sha256="1" * 64, bytes=1)
FULL = Compatibility(datasets=("dataset:pick@v1",), code_revision="0123abc", parameters_sha256="a" * 64)


class Files:
    """Artefacts as a test wants them to be."""

    def __init__(self, problem: str | None = None, *, seen: bool = True) -> None:
        self.answer = Look(seen=seen, problem=problem)

    def look(
        self,
        project: str,  # noqa: ARG002
        job: str,  # noqa: ARG002
        uri: str,  # noqa: ARG002
        files: Sequence[tuple[str, str, int]],
        *,
        may_read: int = 0,
    ) -> Look:
        assert files
        assert may_read > 0
        return self.answer

    def look_at_kept(
        self,
        project: str,  # noqa: ARG002
        files: Sequence[tuple[str, str, int]],
        *,
        may_read: int = 0,
    ) -> Look:
        assert files
        assert may_read > 0
        return self.answer


def registry_with(problem: str | None = None, *, seen: bool = True) -> Registry:
    registry = Registry()
    registry.service = definition(registry.lists, Files(problem, seen=seen))
    return registry


def released(registry: Registry, **args: Any) -> Registry:
    """A trained, registered, evaluated model in production."""
    trained(registry)
    registry.command("model-register", model="reach", job="reach-1")
    registry.command("model-evaluate", model="reach", metrics={"s": 0.5}, source="x")
    registry.command("model-release", model="reach", channel="production", **args)
    return registry


def found(registry: Registry, **args: Any) -> dict[str, dict[str, Any]]:
    """The findings by code, from all pages."""
    several: dict[str, dict[str, Any]] = {}
    after: str | None = None
    while True:
        page = registry.ask("audit", limit=7, **args, **({} if after is None else {"after": after}))
        several |= {one["code"]: one for one in page["findings"]}
        after = page["after"]
        if after is None:
            return several


def finished(episodes: int) -> UploadFinished:
    return UploadFinished(
        upload="up-1",
        dataset="pick",
        episodes=episodes,
        files=1,
        bytes=1,
        manifest=FileRef(uri="/m.json", sha256=sha("m"), bytes=1),
    )


def rolled_back(to: int, move: int = 2) -> ModelRolledBack:
    return ModelRolledBack(
        model="reach", channel="production", from_number=1, to_number=to, move=move, reason="r", by="t"
    )


STORIES: dict[str, tuple[str, list[EventBody]]] = {
    "an upload whose third episode never came": ("SEQ_GAP", [uploaded(0), uploaded(1), finished(3)]),
    "a second attempt without a first": ("SEQ_GAP", [started(2)]),
    "a move of a channel without the one before": ("SEQ_GAP", [rolled_back(1, move=2)]),
    "a branch for a code revision": ("REVISION_UNPINNED", [submitted(code_revision="main")]),
    "a dirty work tree": ("REVISION_UNPINNED", [submitted(code_revision="0123abc-dirty")]),
    "a tag for a source revision": ("REVISION_UNPINNED", [committed(1, REF, 1, source_revision="v3.0")]),
    "a resume from an inexact save": (
        "CHECKPOINT_PARTIAL_COMPAT",
        [written(100, compatibility=FULL), verified(written(100), "inexact"), resumed(2, 100)],
    ),
    "a resume from a save that does not say its data": (
        "CHECKPOINT_PARTIAL_COMPAT",
        [written(100), verified(written(100)), resumed(2, 100)],
    ),
    "a rollback to what was never there": ("ROLLBACK_TO_UNKNOWN", [rolled_back(7)]),
    "a job that ran without pinned inputs": ("INPUTS_UNKNOWN", [submitted(), started(1)]),
    "two attempts, the first without an end": ("ATTEMPT_OVERLAP_SAME_JOB_SLOT", [started(1), started(2)]),
}


class TestWeaknesses:
    @pytest.mark.parametrize("what", STORIES)
    @pytest.mark.parametrize("backwards", [False, True])
    def test_found(self, what: str, *, backwards: bool) -> None:
        """Each is found in either order, as an answer and never as an event of its own."""
        code, bodies = STORIES[what]
        registry = Registry()
        registry.say(*(reversed(bodies) if backwards else bodies))
        assert code in found(registry)
        assert not found(registry)[code]["settled"]
        assert code not in {one.code for one in registry.published()}

    def test_a_gap_that_closes(self) -> None:
        """A late event mends what was missing."""
        registry = Registry()
        registry.say(*STORIES["an upload whose third episode never came"][1])
        registry.say(uploaded(2))
        assert "SEQ_GAP" not in found(registry)

    @pytest.mark.parametrize("revision", ["0123abc", "git:0123abcd", "f" * 40, "sha256:" + "a" * 64])
    def test_pinned(self, revision: str) -> None:
        """Commits and digests are pinned."""
        registry = Registry()
        registry.say(submitted(code_revision=revision))
        assert "REVISION_UNPINNED" not in found(registry)

    def test_write_after_takeover(self) -> None:
        """A save by attempt 1 after attempt 2 had started: it had lost its lease and went on."""
        registry = Registry()
        registry.say(submitted(), leased(), started(1), started(2), time=START)
        registry.say(written(300, 1), time=START + timedelta(seconds=9))
        assert "1 s after attempt 2 had started" in found(registry)["WRITE_AFTER_TAKEOVER"]["message"]

    def test_crash_loop(self) -> None:
        """CR-07: a checkpoint on which three attempts died is suspect, and the job's audit says so."""
        registry = Registry()
        registry.say(submitted(), leased(), started(1), written(45441), written(60071))
        for attempt in (2, 3, 4):
            registry.say(resumed(attempt, 60071), started(attempt), ended(attempt, code=1))
        assert written(60071).checkpoint in found(registry)["CHECKPOINT_SUSPECT"]["message"]

    def test_parked_schema(self) -> None:
        """A message of this project that no code here can read is named with its sequence; others' are not."""
        registry = Registry()
        for project in ("arm-lab", "other-lab"):
            parked = ParkedMessage(
                seq=len(project), subject=f"fb.{project}.job.x.submitted", stage="decode", cause="no such version"
            )
            registry.state.put(parked)
        one = found(registry)["UNKNOWN_SCHEMA"]
        assert one["subject"] == "event:7"
        assert "dead retry" in one["message"]


class TestLive:
    def test_clean(self) -> None:
        """A whole story with a model in production has no finding but the resume from a save with unknown data."""
        registry = released(registry_with())
        assert set(found(registry)) <= {"CHECKPOINT_PARTIAL_COMPAT", "MISSING_PARENT"}
        assert registry.ask("audit")["complete"]

    def test_unevaluated(self) -> None:
        """A release that was forced without an evaluation stays visible as long as it is live."""
        registry = registry_with()
        trained(registry)
        registry.command("model-register", model="reach", job="reach-1")
        registry.command("model-release", model="reach", channel="production", forced_reason="robot waits")
        assert "robot waits" in found(registry)["UNEVALUATED_RELEASE"]["message"]

    def test_withdrawn_episode(self) -> None:
        """A withdrawn episode in a live model is named with the model, the job and the episode."""
        registry = released(registry_with())
        registry.say(EpisodeWithdrawn(episode=episode_id(1), dataset="pick", reason="consent", by="owner"))
        one = found(registry)["USES_TOMBSTONED_EPISODE"]
        assert one["subject"] == "model:reach@v1"
        assert one["values"] == [episode_id(1)]
        assert one["events"]
        assert "USES_TOMBSTONED_EPISODE" in found(registry, id="reach@v1")

    def test_outside_the_window(self) -> None:
        """A withdrawn episode that the job did not read is no finding."""
        registry = registry_with()
        trained(registry, window=(0, 1))
        registry.command("model-register", model="reach", job="reach-1")
        registry.command("model-release", model="reach", channel="production", forced_reason="r")
        registry.say(EpisodeWithdrawn(episode=episode_id(1), dataset="pick", reason="consent", by="owner"))
        assert "USES_TOMBSTONED_EPISODE" not in found(registry)

    def test_unreadable_list_makes_it_incomplete(self) -> None:
        """When a version's list cannot be read, the audit is not complete and says which."""
        registry = released(registry_with())
        registry.say(EpisodeWithdrawn(episode=episode_id(1), dataset="pick", reason="consent", by="owner"))
        registry.lists.lists.clear()
        answer = registry.ask("audit")
        assert not answer["complete"]
        assert [one["id"] for one in answer["missing"]] == ["dataset:pick@v1"]

    @pytest.mark.parametrize(
        "gone",
        [
            DatasetVersionRemoved(dataset="pick", number=1, by="ops", reason="space"),
            DatasetVersionChecked(dataset="pick", number=1, check="c1", whole=False, message="f.lance"),
        ],
    )
    def test_what_a_model_needs_is_gone(self, gone: EventBody) -> None:
        """A version that a model was made from cannot be removed or break unnoticed."""
        registry = released(registry_with())
        registry.say(gone)
        assert "dataset:pick@v1" in found(registry)["NEEDED_BUT_GONE"]["message"]

    def test_files_gone(self) -> None:
        """A released model whose files are not there any more is found by looking, and by its id."""
        registry = released(registry_with("model.safetensors is not there any more"))
        assert "not there any more" in found(registry)["NEEDED_BUT_GONE"]["message"]
        assert "NEEDED_BUT_GONE" in found(registry, id="reach@v1")

    def test_files_out_of_sight(self) -> None:
        """Where the files cannot be looked at, the audit says that it is not complete."""
        registry = released(registry_with(seen=False))
        answer = registry.ask("audit")
        assert not answer["complete"]
        assert "cannot be looked at" in answer["missing"][0]["reason"]

    def test_overwritten_in_place(self) -> None:
        """LI-03: after an overwrite the version is broken in every audit, and its release is refused."""
        registry = released(registry_with())
        registry.say(written(300, 2, content="other"))
        assert "two different contents" in found(registry)["MODEL_BROKEN"]["message"]

    def test_as_of(self) -> None:
        """An audit of the past does not know what came later."""
        registry = released(registry_with())
        then = len(registry.said)
        registry.say(EpisodeWithdrawn(episode=episode_id(1), dataset="pick", reason="consent", by="owner"))
        assert "USES_TOMBSTONED_EPISODE" not in found(registry, as_of=then)


class TestFileArtefacts:
    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        home = tmp_path / "jobs" / "lab" / "j-1"
        home.mkdir(parents=True)
        (home / "w").write_bytes(b"12")
        (home / "large").write_bytes(b"3" * 1000)
        return home

    @pytest.fixture
    def files(self, tmp_path: Path) -> FileArtefacts:
        return FileArtefacts([str(tmp_path / "jobs" / "{project}" / "{job}")])

    W = ("w", sha("12"), 2)
    LARGE = ("large", sha("3" * 1000), 1000)

    def test_looks(self, home: Path, files: FileArtefacts) -> None:
        """Names and sizes are compared inside the roots; elsewhere nothing is looked at."""

        def problem(path: str, size: int) -> str:
            return str(files.look("lab", "j-1", str(home), [(path, self.W[1], size)]).problem)

        assert files.look("lab", "j-1", str(home), [self.W]) == Look(seen=True, unread=2)
        assert "2 bytes, 3 were" in problem("w", 3)
        assert "not there" in problem("x", 3)
        assert "climbs out" in problem("../x", 3)
        for uri in (str(home), "s3://bucket/x", str(home / ".." / "j-2"), "\0"):
            assert not files.look("lab", "j-2" if uri == str(home) else "j-1", uri, [self.W]).seen

    def test_contents(self, home: Path, files: FileArtefacts) -> None:
        """Another content of the same size and the same time is seen; what was read is not read again."""
        one = files.look("lab", "j-1", str(home), [self.LARGE, self.W], may_read=5000)
        assert one == Look(seen=True, read=1002)
        assert files.look("lab", "j-1", str(home), [self.LARGE, self.W]) == Look(seen=True)
        before = (home / "w").stat()
        (home / "w").write_bytes(b"21")
        os.utime(home / "w", ns=(before.st_atime_ns, before.st_mtime_ns))
        other = files.look("lab", "j-1", str(home), [self.LARGE, self.W], may_read=5000)
        assert (other.changed, other.read) == (True, 2)
        assert "content of w" in str(other.problem)

    def test_no_more_than_allowed(self, home: Path, files: FileArtefacts) -> None:
        """Small files are read, what is too much is counted, and asking again with room goes on."""
        assert files.look("lab", "j-1", str(home), [self.LARGE, self.W], may_read=10) == Look(
            seen=True, read=2, unread=1000
        )
        assert files.look("lab", "j-1", str(home), [self.LARGE, self.W], may_read=1000) == Look(seen=True, read=1000)

    def test_what_took_its_place(self, home: Path, files: FileArtefacts, tmp_path: Path) -> None:
        """A pipe, a folder or a link out of the save is said, and nothing waits or leaves the folder."""
        (tmp_path / "secret").write_bytes(b"12")
        (home / "w").unlink()
        (home / "w").symlink_to(tmp_path / "secret")
        assert "link out" in str(files.look("lab", "j-1", str(home), [self.W], may_read=10).problem)
        (home / "w").unlink()
        os.mkfifo(home / "w")
        assert "not a plain file" in str(files.look("lab", "j-1", str(home), [self.W], may_read=10).problem)
        under = ("large/w", sha("12"), 2)
        assert "not there" in str(files.look("lab", "j-1", str(home), [under], may_read=10).problem)

    def test_audit_says_it(self, home: Path, files: FileArtefacts) -> None:
        """A live model whose weights were replaced without any event is broken; what was not compared is said when asked."""
        registry = released(registry_with())
        bodies = {"model.safetensors": b"1" * 100, "optimizer.safetensors": b"2" * 100, "state.json": b"3" * 100}
        saved = tuple(
            CheckpointFile(path=path, sha256=sha(body.decode()), bytes=len(body)) for path, body in bodies.items()
        )
        registry.service = definition(registry.lists, files)
        registry.say(submitted("j-1"), project="lab")
        digest = checkpoint_digest(saved)
        registry.say(
            CheckpointWritten(
                checkpoint="ck-1", job="j-1", attempt=1, step=1, uri=str(home), files=saved, digest=digest
            ),
            CheckpointVerified(checkpoint="ck-1", job="j-1", attempt=1, step=1, status="complete"),
            project="lab",
        )
        for path, body in bodies.items():
            (home / path).write_bytes(body)
        for name, args in (
            ("model-register", {"job": "j-1", "checkpoint": "ck-1"}),
            ("model-evaluate", {"metrics": {"s": 1.0}, "source": "x"}),
            ("model-release", {"channel": "production"}),
        ):
            registry.command(name, project="lab", model="reach", **args)
        whole = registry.ask("audit", project="lab", contents=True)
        assert (whole["unread_bytes"], [one for one in whole["findings"] if "BROKEN" in one["code"]]) == (0, [])
        (home / "model.safetensors").write_bytes(b"9" * 100)
        (broken,) = [one for one in registry.ask("audit", project="lab")["findings"] if one["code"] == "MODEL_BROKEN"]
        assert "content of model.safetensors" in broken["message"]


class TestLastingToo:
    def test_overlap(self) -> None:
        """An attempt that started before the one before it ended cannot be explained away, so it is published."""
        registry = Registry()
        registry.say(started(1), started(2), time=START)
        registry.say(ended(1), time=START + timedelta(seconds=30))
        assert [one.code for one in registry.published()] == ["ATTEMPT_OVERLAP_SAME_JOB_SLOT"]

    def test_cycle_of_versions(self) -> None:
        """Two versions that were derived from each other: published once, whichever came first."""
        bodies = [committed(1, REF, 1, parent=2), committed(2, REF, 1, parent=1)]
        ids = []
        for order in (bodies, bodies[::-1]):
            registry = Registry()
            registry.say(*order, *order)
            ids.append([one.values for one in registry.published() if one.code == "CYCLE"])
        assert ids[0] == ids[1] == [("dataset:pick@v1", "dataset:pick@v2")]

    def test_an_attempt_that_resumes_from_its_own_save(self) -> None:
        """Closing the circle from the checkpoint's side is seen, too."""
        registry = Registry()
        registry.say(resumed(2, 200, of=2), written(200, 2))
        assert "CYCLE" in {one.code for one in registry.published()}

    def test_a_chain_is_no_cycle(self) -> None:
        """Ten attempts, each resuming from the one before, are a chain."""
        registry = Registry()
        registry.say(submitted(), leased())
        for attempt in range(1, 11):
            registry.say(resumed(attempt, None if attempt == 1 else 100 * (attempt - 1), of=attempt - 1))
            registry.say(started(attempt), written(100 * attempt, attempt), ended(attempt, code=None))
        registry.say(JobSucceeded(job="reach-1", attempt=10, attempts=10))
        assert registry.published() == []
