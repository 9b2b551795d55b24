"""Opening the data gate of a Job, and one Job object per run whatever the API server answers."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.cluster.moves import GateKind, to_make, with_gate
from forebay.scheduler_bridge.domain.cluster.objects import WHY
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.gate import opening
from forebay.scheduler_bridge.domain.job_identity import Reply, Step, Wanted, after_create, after_look
from forebay.scheduler_bridge.domain.manifest import pod_annotations, render
from forebay.scheduler_bridge.domain.merge_patch import merged

from .cluster_jobs import pin, site, submission


def stored(**changes: Any) -> dict[str, Any]:
    """Our Job as the API server holds it."""
    (job,) = render(submission(), [], site(**changes))
    job["metadata"] |= {"uid": "u-1", "resourceVersion": "7"}
    return job


def wanted(uid: str | None = None) -> Wanted:
    digest = stored()["metadata"]["annotations"][layout.SPEC_DIGEST]
    return Wanted(name="pick-1", project="arm-lab", job="pick-1", spec_sha256=digest, uid=uid)


class TestGate:
    """A merge patch that changes nothing but annotations and scheduling directives."""

    def test_the_gate_opens_and_the_pod_learns_where_its_data_lies(self) -> None:
        """One write: our gate's name goes, the pins come, the resourceVersion guards it."""
        patch = opening(stored(), pod_annotations(submission(), [pin()], site()))
        assert patch is not None
        assert patch["metadata"] == {"resourceVersion": "7", "annotations": {layout.KUEUE_GATED_BY: None}}
        after = merged(stored(), patch)
        assert after == {
            **render(submission(), [pin()], site())[0],
            "metadata": {
                **stored()["metadata"],
                "annotations": {
                    key: value
                    for key, value in stored()["metadata"]["annotations"].items()
                    if key != layout.KUEUE_GATED_BY
                },
            },
        }
        assert opening(after, {}) is None

    def test_another_gate_stays(self) -> None:
        """Only our own name is removed."""
        job = stored()
        job["metadata"]["annotations"][layout.KUEUE_GATED_BY] = f"lab.example/size, {layout.GATE}"
        patch = opening(job, {})
        assert patch is not None
        assert patch["metadata"]["annotations"] == {layout.KUEUE_GATED_BY: "lab.example/size"}

    def test_without_kueue_the_job_is_resumed(self) -> None:
        """`suspend` is the gate."""
        patch = opening(stored(queues=[]), {})
        assert patch is not None
        assert patch["spec"]["suspend"] is False

    def test_warm_nodes_are_preferred_never_required(self) -> None:
        """What the job prefers itself stays; opening again with other nodes replaces ours."""
        job = stored()
        own = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
        field = "preferredDuringSchedulingIgnoredDuringExecution"
        job["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": {field: [own]}}
        patch = opening(job, {}, ["gpu-2", "gpu-1", "gpu-2"])
        assert patch is not None
        terms = patch["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][field]
        assert terms[0] == own
        assert terms[1]["preference"]["matchExpressions"][0]["values"] == ["gpu-1", "gpu-2"]
        again = merged(job, patch)
        again["metadata"]["annotations"][layout.KUEUE_GATED_BY] = layout.GATE
        second = opening(again, {}, ["gpu-3"])
        assert second is not None
        assert len(second["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][field]) == 2


SAID = {"message": "waiting for data", "next_action": "warm it"}


def on_record(gate: str, verdict: dict[str, Any] | None = None) -> Job:
    return Job(
        project="arm-lab",
        id="pick-1",
        name="pick",
        run=1,
        spec={},
        spec_sha256="",
        submitted_by="alice",
        submitted_at=datetime(2026, 11, 30, tzinfo=UTC),
        submitted_event="e-1",
        gate=gate,
        verdict=verdict,
    )


class TestMaking:
    """A Job is made behind the gate that the cluster honours, unless its data is ready by then."""

    @pytest.mark.parametrize("kind", ["annotation", "label", "suspend"])
    def test_what_is_not_ready_is_made_behind_its_gate(self, kind: GateKind) -> None:
        """With the sentence that says why, so that nobody has to write it a moment later."""
        (item,) = render(submission(), [], site())
        made = to_make(item, kind, on_record("shut", SAID))
        assert made["metadata"]["annotations"].pop(WHY).endswith(": waiting for data. Next: warm it.")
        assert made == with_gate(item, kind)
        assert opening(made, {}) is not None

    @pytest.mark.parametrize(
        ("kind", "queue", "suspended"),
        [("annotation", "team-a", True), ("label", "team-a", True), ("suspend", None, False)],
    )
    def test_what_is_ready_is_made_without_one(self, kind: GateKind, queue: str | None, *, suspended: bool) -> None:
        """Kueue finds its queue's name and no gate; without Kueue it just runs. Warm nodes are preferred at once."""
        (item,) = render(submission(), [pin()], site())
        made = to_make(item, kind, on_record("open", SAID), ["gpu-1"])
        assert made["metadata"]["labels"].get(layout.KUEUE_QUEUE) == queue
        assert made["spec"]["suspend"] is suspended
        assert opening(made, {}) is None
        assert {layout.KUEUE_GATED_BY, WHY}.isdisjoint(made["metadata"]["annotations"])
        template, rendered = made["spec"]["template"], item["spec"]["template"]
        assert template["metadata"] == rendered["metadata"]
        assert "gpu-1" in json.dumps(template["spec"].pop("affinity"))
        assert template["spec"] == rendered["spec"]


class TestIdentity:
    """Whatever is answered, there is one Job object, and a foreign one is left alone."""

    def test_an_unclear_answer_is_looked_at_and_what_is_ours_adopted(self) -> None:
        """A webhook that is down, a gateway time-out, then AlreadyExists: one Job in all."""
        webhook = {"message": 'failed calling webhook "mjob.kb.io": connection refused', "reason": "InternalError"}
        first = after_create(wanted(), Reply(code=500, body=webhook))
        assert (first.step, "webhook is unavailable" in first.message) == (Step.LOOK, True)
        assert after_look(wanted(), Reply(code=404, body={})).step is Step.CREATE
        late = {"message": "Timeout: request did not complete within requested timeout"}
        assert after_create(wanted(), Reply(code=504, body=late)).step is Step.LOOK
        exists = {"reason": "AlreadyExists", "message": 'jobs.batch "pick-1" already exists'}
        assert after_create(wanted(), Reply(code=409, body=exists)).step is Step.LOOK
        found = after_look(wanted(), Reply(code=200, body=stored()))
        assert (found.step, found.uid) == (Step.ADOPT, "u-1")

    def test_a_foreign_job_of_that_name_is_a_conflict(self) -> None:
        """By whom it is managed, and what to do."""
        foreign = stored()
        foreign["metadata"]["labels"] = {"app": "someone-else"}
        found = after_look(wanted(), Reply(code=200, body=foreign))
        assert (found.step, "left alone" in found.message) == (Step.CONFLICT, True)

    @pytest.mark.parametrize("field", [layout.PROJECT_LABEL, layout.JOB_LABEL, layout.MANAGED_BY])
    def test_another_projects_job_is_foreign_too(self, field: str) -> None:
        """All three labels must be ours."""
        other = stored()
        other["metadata"]["labels"][field] = "other"
        assert after_look(wanted(), Reply(code=200, body=other)).step is Step.CONFLICT

    def test_ours_with_other_content_is_a_conflict(self) -> None:
        """The digest of the spec decides."""
        other = stored()
        other["metadata"]["annotations"][layout.SPEC_DIGEST] = "0" * 64
        assert after_look(wanted(), Reply(code=200, body=other)).step is Step.CONFLICT

    def test_what_was_removed_is_never_made_again(self) -> None:
        """A failed Job that its TTL removed does not start a second time; nor does its successor of that name count."""
        assert after_look(wanted("u-1"), Reply(code=404, body={})).step is Step.GONE
        assert after_look(wanted("u-0"), Reply(code=200, body=stored())).step is Step.GONE
        assert after_look(wanted("u-1"), Reply(code=200, body=stored())).step is Step.ADOPT

    def test_an_earlier_job_that_is_being_deleted_is_waited_for(self) -> None:
        """Adopting it would lose the run."""
        dying = copy.deepcopy(stored())
        dying["metadata"]["deletionTimestamp"] = "2026-01-10T08:00:00Z"
        assert after_look(wanted(), Reply(code=200, body=dying)).step is Step.WAIT

    @pytest.mark.parametrize(
        ("code", "body", "step"),
        [
            (201, None, Step.ADOPT),
            (0, {}, Step.LOOK),
            (502, {"message": "bad gateway"}, Step.LOOK),
            (500, {"message": "etcdserver: request timed out"}, Step.LOOK),
            (429, {"message": "too many requests"}, Step.WAIT),
            (409, {"reason": "Conflict", "message": "object has been modified"}, Step.WAIT),
            (403, {"message": 'jobs "pick-1" is forbidden: exceeded quota: q, requested: count/jobs.batch=1'}, Step.WAIT),
            (403, {"message": "jobs is forbidden: User cannot create resource"}, Step.REFUSED),
            (404, {"message": 'namespaces "robot-train" not found'}, Step.WAIT),
            (422, {"message": "Job is invalid: spec.template"}, Step.REFUSED),
            (400, {"message": 'admission webhook "x" denied the request: no'}, Step.REFUSED),
        ],
    )  # fmt: skip
    def test_every_answer_to_a_create_has_one_next_step(self, code: int, body: Any, step: Step) -> None:
        """Unclear: look. Busy or denied for now: wait. Refused: say why."""
        found = after_create(wanted(), Reply(code=code, body=stored() if body is None else body))
        assert found.step is step
        assert found.message

    @pytest.mark.parametrize("code", [0, 403, 429, 500, 503])
    def test_a_look_that_is_not_answered_is_repeated(self, code: int) -> None:
        """Never a create on a guess."""
        assert after_look(wanted(), Reply(code=code, body={})).step is Step.WAIT
