"""Uploads, versions, tags and leases through the fold and the decisions."""

from __future__ import annotations

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.datasets import DatasetTagged, DatasetUntagged, LeaseGranted, LeaseRefused, LeaseReleased
from forebay.contracts.v1.episodes import EpisodeUploaded, RowWindow
from forebay.contracts.v1.jobs import JobCancelled, JobSucceeded
from forebay.contracts.v1.models import ModelReleased
from forebay.ingest import questions
from forebay.ingest.domain import tagging
from forebay.ingest.domain.documents import Dataset, Episode, Upload
from forebay.runtime.errors import Refused
from forebay.runtime.machine import NothingPending
from hypothesis import given
from hypothesis import strategies as st

from . import stories
from .simulated_log import PROJECT, SimulatedLog, request
from .stories import DATASET, accept, commit, committed_dataset, reject, submit, whole_upload


def _upload(log: SimulatedLog, id_: str = "up-1") -> Upload:
    found = log.state.get(Upload, f"{PROJECT}/{id_}")
    assert found is not None
    return found


def _refusals(log: SimulatedLog) -> list[Reason]:
    return [refusal.reason for refusal in log.of(LeaseRefused)]


class TestUploads:
    def test_a_complete_upload_is_checked(self) -> None:
        """UploadFinished makes the work `validate`."""
        log = SimulatedLog()
        whole_upload(log)
        assert list(log.work) == [("validate", "up-1")]

    def test_an_upload_waits_for_its_last_episode(self) -> None:
        """UploadFinished may overtake an episode: checking starts when all that was announced is known."""
        log = SimulatedLog()
        stories.start_upload(log)
        stories.upload_episode(log, 0)
        stories.finish_upload(log)
        assert not log.work
        stories.upload_episode(log, 1)
        assert list(log.work) == [("validate", "up-1")]

    def test_the_last_verdict_starts_the_conversion(self) -> None:
        """Rejected episodes do not hold the others back."""
        log = SimulatedLog()
        whole_upload(log)
        reject(log, 1)
        assert _upload(log).state == "VALIDATING"
        accept(log, 0)
        assert _upload(log).state == "CONVERTING"
        assert log.work[("convert", "up-1")].payload == {
            "upload": "up-1",
            "dataset": DATASET,
            "number": 1,
            "base": 0,
        }

    def test_nothing_accepted_makes_no_version(self) -> None:
        """The upload is refused, its episodes keep their verdicts."""
        log = SimulatedLog()
        whole_upload(log)
        for index in range(2):
            reject(log, index)
        assert _upload(log).state == "REFUSED"
        assert ("convert", "up-1") not in log.work

    def test_uploads_of_one_dataset_follow_each_other(self) -> None:
        """The second is checked after the first is committed, and its version holds both."""
        log = SimulatedLog()
        whole_upload(log, "up-1")
        whole_upload(log, "up-2")
        assert _upload(log, "up-2").state == "WAITING"
        for index in range(2):
            accept(log, index, "up-1")
        commit(log, 1, ("up-1",))
        assert _upload(log, "up-2").state == "VALIDATING"
        for index in range(2):
            accept(log, index, "up-2")
        assert log.work[("convert", "up-2")].payload["base"] == 1
        assert log.work[("convert", "up-2")].payload["number"] == 2

    def test_a_refused_upload_makes_room(self) -> None:
        """The next one of the dataset starts, and takes the number that was not used."""
        log = SimulatedLog()
        whole_upload(log, "up-1")
        whole_upload(log, "up-2")
        for index in range(2):
            reject(log, index, "up-1")
        assert ("validate", "up-2") in log.work
        for index in range(2):
            accept(log, index, "up-2")
        assert _upload(log, "up-2").version == 1

    def test_a_foreign_episode_id_is_not_taken(self) -> None:
        """An id that does not follow from its number belongs to nobody here."""
        log = SimulatedLog()
        stories.start_upload(log)
        rows = RowWindow(file="a", start=0, stop=1)
        log.publish(
            EpisodeUploaded(episode="ep-x", upload="up-1", dataset=DATASET, source_index=0, length=1, rows=rows),
            "foreign",
        )
        assert _upload(log).uploaded == 0
        assert log.state.get(Episode, f"{PROJECT}/ep-x") is None

    def test_a_second_verdict_changes_nothing(self) -> None:
        """The first verdict of an episode stands."""
        log = SimulatedLog()
        whole_upload(log)
        accept(log, 0)
        before = log.digest()
        stories.reject(log, 0, "up-1")
        assert log.digest() == before

    @given(order=st.permutations(range(6)))
    def test_verdicts_may_come_in_any_order(self, order: list[int]) -> None:
        """The state after all of them does not depend on their order."""
        digests = []
        for sequence in (range(6), order):
            log = SimulatedLog()
            whole_upload(log, episodes=6)
            for index in sequence:
                (reject if index % 3 == 0 else accept)(log, index)
            digests.append(log.digest())
        assert digests[0] == digests[1]

    @given(data=st.data())
    def test_one_upload_of_a_dataset_at_a_time(self, data: st.DataObject) -> None:
        """Whatever the order of events, at most one upload is worked on, and numbers rise by one."""
        log = SimulatedLog()
        steps = [(upload, step) for upload in ("up-1", "up-2", "up-3") for step in range(4)]
        for upload, step in data.draw(st.permutations(steps)):
            if step < 2:
                stories.upload_episode(log, step, upload)
            (stories.start_upload if step == 2 else stories.finish_upload)(log, upload)
            uploads = log.state.all(Upload)
            busy = [u.id for u in uploads if u.state in {"VALIDATING", "CONVERTING"}]
            dataset = log.state.get(Dataset, f"{PROJECT}/{DATASET}")
            assert busy == ([dataset.active] if dataset is not None and dataset.active else [])


class TestTags:
    def test_a_committed_version_becomes_train_ready(self) -> None:
        """The tag moves with every version, and names the one before."""
        log = SimulatedLog()
        committed_dataset(log)
        commit(log, 2, ("up-1", "up-2"))
        assert [(t.tag, t.number, t.previous) for t in log.of(DatasetTagged)] == [
            ("train-ready", 1, None),
            ("train-ready", 2, 1),
        ]

    def test_a_person_tags_and_untags(self) -> None:
        """Commands answer what changed; moving a tag to where it is changes nothing."""
        log = SimulatedLog()
        committed_dataset(log)
        check = log.opened(DATASET, 1)
        args = {"dataset": DATASET, "tag": "best", "number": 1, "reason": "looks good", "check": check}
        assert log.command(tagging.tag(log.state, NothingPending(), request(args)))["changed"]
        again = tagging.move_tag(log.state, NothingPending(), request({**args, "expect": 1}, "request-2"))
        assert (again.result["changed"], again.actions) == (False, ())
        log.command(tagging.untag(log.state, NothingPending(), request({"dataset": DATASET, "tag": "best"}, "r3")))
        assert [body.number for body in log.of(DatasetUntagged)] == [1]

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            ({"dataset": "pick-plac", "tag": "best", "number": 1}, "dataset-unknown"),
            ({"dataset": DATASET, "tag": "best", "number": 9}, "version-unknown"),
            ({"dataset": DATASET, "tag": "v3", "number": 1}, "bad-request"),
            ({"dataset": DATASET, "tag": "best", "number": "1"}, "bad-request"),
            ({"tag": "best", "number": 1}, "bad-request"),
        ],
    )
    def test_a_wrong_request_is_refused(self, args: dict[str, object], code: str) -> None:
        """With a code, and close matches for a name."""
        log = SimulatedLog()
        committed_dataset(log)
        with pytest.raises(Refused) as refused:
            tagging.tag(log.state, NothingPending(), request(args))
        assert refused.value.code == code
        assert code != "dataset-unknown" or DATASET in refused.value.next_action


class TestLeases:
    def test_a_ready_dataset_is_leased_at_once(self) -> None:
        """The name is pinned to a version with root and digest."""
        log = SimulatedLog()
        committed_dataset(log)
        submit(log, f"dataset:{DATASET}", columns=("action",), episodes=(0, 2))
        (granted,) = log.of(LeaseGranted)
        (pinned,) = granted.inputs
        assert (pinned.name, pinned.number, pinned.columns, pinned.episodes) == (DATASET, 1, ("action",), (0, 2))
        assert pinned.manifest_sha256 == stories.sha((DATASET, 1))

    def test_a_waiting_job_hears_each_new_answer_once(self) -> None:
        """Unknown, arriving, being checked, being written, granted."""
        log = SimulatedLog()
        submit(log, DATASET)
        whole_upload(log)
        accept(log, 0)
        accept(log, 1)
        commit(log)
        assert _refusals(log) == [Reason.DATASET_UNKNOWN, *[Reason.DATASET_NOT_READY] * 3]
        messages = [refusal.message for refusal in log.of(LeaseRefused)]
        assert len(set(messages)) == len(messages)
        assert not any(refusal.permanent for refusal in log.of(LeaseRefused))
        assert len(log.of(LeaseGranted)) == 1

    def test_a_pin_is_not_moved_by_a_later_version(self) -> None:
        """A job that waits for its second input keeps the version that the first resolved to."""
        log = SimulatedLog()
        committed_dataset(log)
        submit(log, DATASET, "other")
        commit(log, 2)
        committed_dataset(log, "other", "up-9")
        (granted,) = log.of(LeaseGranted)
        assert [(pinned.name, pinned.number) for pinned in granted.inputs] == [(DATASET, 1), ("other", 1)]

    def test_a_version_that_never_existed_is_permanent_only_when_later_ones_exist(self) -> None:
        """v7 may still come; v0 will not."""
        log = SimulatedLog()
        committed_dataset(log)
        submit(log, f"{DATASET}@v7", job="early-1")
        submit(log, f"{DATASET}@v0", job="wrong-1")
        answers = {refusal.job: refusal for refusal in log.of(LeaseRefused)}
        assert (answers["early-1"].reason, answers["early-1"].permanent) == (Reason.DATASET_VERSION_MISSING, False)
        assert (answers["wrong-1"].reason, answers["wrong-1"].permanent) == (Reason.DATASET_VERSION_MISSING, True)

    def test_episodes_beyond_the_end_are_refused(self) -> None:
        """With the numbers that there are."""
        log = SimulatedLog()
        committed_dataset(log)
        submit(log, f"{DATASET}@v1", episodes=(0, 99))
        (refused,) = log.of(LeaseRefused)
        assert "0 to 1" in refused.message
        assert refused.permanent

    def test_a_missing_tag_is_explained_and_waited_for(self) -> None:
        """The tag may come later."""
        log = SimulatedLog()
        committed_dataset(log)
        submit(log, f"{DATASET}@best")
        assert _refusals(log) == [Reason.DATASET_UNTAGGED]
        args = {"dataset": DATASET, "tag": "best", "number": 1, "check": log.opened(DATASET, 1)}
        log.command(tagging.tag(log.state, NothingPending(), request(args)))
        assert len(log.of(LeaseGranted)) == 1

    def test_a_version_that_lost_train_ready_is_not_granted(self) -> None:
        """Not by its number either, until it is tagged again."""
        log = SimulatedLog()
        committed_dataset(log)
        log.command(tagging.untag(log.state, NothingPending(), request({"dataset": DATASET, "tag": "train-ready"})))
        submit(log, f"{DATASET}@v1")
        assert _refusals(log) == [Reason.DATASET_UNTAGGED]

    def test_a_pinned_version_that_is_withdrawn_while_waiting(self) -> None:
        """The job is told, and gets no other version in silence."""
        log = SimulatedLog()
        committed_dataset(log)
        submit(log, DATASET, "other")
        log.command(tagging.untag(log.state, NothingPending(), request({"dataset": DATASET, "tag": "train-ready"})))
        committed_dataset(log, "other", "up-9")
        assert _refusals(log)[-1] == Reason.DATASET_WITHDRAWN
        assert not log.of(LeaseGranted)

    def test_models_are_inputs_too(self) -> None:
        """Resolved from the registry's events: newest, by number, by channel."""
        log = SimulatedLog()
        submit(log, models=("base",), job="newest-1")
        submit(log, models=("base@production",), job="released-1")
        submit(log, models=("base@v2",), job="second-1")
        assert set(_refusals(log)) == {Reason.MODEL_UNKNOWN}
        stories.register_model(log, 1)
        assert [granted.job for granted in log.of(LeaseGranted)] == ["newest-1"]
        stories.register_model(log, 2)
        released = ModelReleased(
            model="base", number=1, channel="production", artefact_sha256=stories.sha(("base", 1)), by="kim"
        )
        log.publish(released, "released", Part.REGISTRY)
        granted = {lease.job: lease.inputs[0].number for lease in log.of(LeaseGranted)}
        assert granted == {"newest-1": 1, "second-1": 2, "released-1": 1}

    def test_a_job_without_inputs_is_granted(self) -> None:
        """There is nothing to wait for."""
        log = SimulatedLog()
        submit(log)
        assert [granted.inputs for granted in log.of(LeaseGranted)] == [()]

    def test_a_name_that_cannot_exist_is_permanent(self) -> None:
        """Waiting cannot help."""
        log = SimulatedLog()
        submit(log, "dataset:pick@")
        assert [refusal.permanent for refusal in log.of(LeaseRefused)] == [True]

    def test_the_lease_ends_with_the_job(self) -> None:
        """Once, with the reason."""
        log = SimulatedLog()
        committed_dataset(log)
        submit(log, DATASET)
        log.publish(JobSucceeded(job="train-1", attempt=1, attempts=1), "ok", Part.BRIDGE)
        assert [released.reason for released in log.of(LeaseReleased)] == ["JobSucceeded"]

    def test_a_cancelled_job_gets_no_lease_later(self) -> None:
        """Nothing is granted to a job that is over."""
        log = SimulatedLog()
        submit(log, DATASET)
        log.publish(JobCancelled(job="train-1", by="kim"), "stop", Part.BRIDGE)
        committed_dataset(log)
        assert not log.of(LeaseGranted)
        assert not log.of(LeaseReleased)


class TestQuestions:
    def test_what_a_person_sees(self) -> None:
        """Datasets, one dataset, one upload, episodes page by page."""
        log = SimulatedLog()
        committed_dataset(log)
        whole_upload(log, "up-2")
        lines = questions.datasets(log.state, request({}))
        assert [(line["dataset"], line["latest"], line["busy"]) for line in lines["datasets"]] == [(DATASET, 1, "up-2")]
        found = questions.dataset(log.state, request({"dataset": DATASET}))
        assert found["tags"] == {"train-ready": 1}
        assert [upload["state"] for upload in found["uploads"]] == ["COMMITTED", "VALIDATING"]
        assert questions.upload(log.state, request({"upload": "up-1"}))["accepted"] == 2
        first = questions.episodes(log.state, request({"dataset": DATASET, "limit": 3}))
        second = questions.episodes(log.state, request({"dataset": DATASET, "limit": 3, "after": first["next"]}))
        ids = [episode["episode"] for episode in first["episodes"] + second["episodes"]]
        assert len(set(ids)) == first["total"] == 4

    def test_another_project_sees_nothing(self) -> None:
        """Names are looked up in the asker's project only."""
        log = SimulatedLog()
        committed_dataset(log)
        other = request({"dataset": DATASET, "upload": "up-1"})
        other = type(other)(id=other.id, project="other-lab", by=other.by, args=other.args, now=other.now)
        assert questions.datasets(log.state, other)["datasets"] == []
        for ask in (questions.dataset, questions.upload, questions.episodes):
            with pytest.raises(Refused):
                ask(log.state, other)
