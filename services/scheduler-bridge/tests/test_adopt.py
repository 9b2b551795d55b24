"""A Job of `kubectl apply` from the watch that sees it to its end: gate, identity, deletion, and one that came ungated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from forebay.contracts.codec import encode
from forebay.contracts.v1 import jobs
from forebay.runtime.machine import event_of
from forebay.runtime.state import MemoryState
from forebay.scheduler_bridge.adapters.list_watch import Gone, Listed, Put
from forebay.scheduler_bridge.app import definition
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.adopt import NOBODY, adoption_of, submission
from forebay.scheduler_bridge.domain.cluster.decide import RECONCILE, SENTENCE
from forebay.scheduler_bridge.domain.cluster.documents import Carrier
from forebay.scheduler_bridge.domain.cluster.moves import moves
from forebay.scheduler_bridge.domain.instrument import instrument
from forebay.scheduler_bridge.domain.job_identity import Reply, Step, Wanted, after_look
from forebay.scheduler_bridge.domain.manifest import Submission, pod_annotations
from forebay.scheduler_bridge.workers.observe import Observer
from hypothesis import given
from hypothesis import strategies as st

from tests.eventually import WITHIN_S

from .cluster_jobs import site
from .cluster_objects import NAMESPACE, Cluster, condition, ended, pod, running, workload
from .test_instrument import applied, plain_job
from .test_observe import InMemory, Stage, numbered
from .world import make_ready

Json = dict[str, Any]
SITE = site(namespace=NAMESPACE)
MARK = "1234abcd"
JOB = f"by-hand-{MARK}"


def seen_job(*, uid: str = "u-1", mark: str = MARK, version: int = 1, **status: Any) -> Json:
    """As the webhook and the API server left it."""
    job = plain_job()
    job["metadata"] |= {"namespace": NAMESPACE}
    return stored(applied(job, instrument(job, user="alice", site=SITE, mark=mark).patch), uid, version, **status)


def past_the_webhook(*, uid: str = "abcdef12-3456", version: int = 1, asks: str = "", **status: Any) -> Json:
    """As its owner wrote it."""
    job = plain_job(**({layout.DATASET_ANNOTATION: asks} if asks else {}))
    job["metadata"] |= {"namespace": NAMESPACE, "labels": {layout.KUEUE_QUEUE: "team-a"}}
    return stored(job, uid, version, **status)


def stored(job: Json, uid: str, version: int, **status: Any) -> Json:
    made = {"uid": uid, "creationTimestamp": "2026-01-10T08:00:00Z", "resourceVersion": str(version)}
    return {**job, "metadata": {**job["metadata"], **made}, "status": status}


class Watch:
    """A bridge over a world in memory, whose watch the test plays."""

    def __init__(self, world: Cluster) -> None:
        self.world, self.stage = world, Stage()
        self._versions = 100

    def bring(self, kind: str, item: Json, *, gone: bool = False) -> None:
        self._versions += 1
        item = numbered(item, self._versions)
        self.stage.bring(Gone(item) if gone else Put(item), kind)

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Run the observer until it holds; it is a process that is then killed."""
        company = InMemory(self.world)
        observer = Observer(self.stage.watch, {"arm-lab": NAMESPACE}, partial(adoption_of, sites={"arm-lab": SITE}))
        task = asyncio.create_task(observer(company))
        try:
            async with asyncio.timeout(WITHIN_S):
                while not (found := holds()):
                    company.said.clear()
                    waiting = asyncio.create_task(company.said.wait())
                    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
                    if task.done():
                        task.result()
            return found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def facts(self, kind: str) -> list[str]:
        return [body.reason for body in self.world.said(jobs.RuntimeFactRecorded) if body.object.startswith(f"{kind}/")]


async def adopted(world: Cluster, item: Json) -> Watch:
    watch = Watch(world)
    watch.bring("Job", item)
    await watch.until(lambda: watch.facts("Job"))
    return watch


def why(world: Cluster, job: str) -> Json:
    found: Json = world.ask("why", job=job)
    return found


async def test_it_becomes_a_job_of_whoever_applied_it() -> None:
    """With what its owner wrote, the object's uid, and everything around it, in whatever order the watches bring it."""
    world = Cluster()
    watch = Watch(world)
    owner = [{"kind": "Job", "name": "by-hand", "uid": "u-1"}]
    gated = workload("by-hand", condition("QuotaReserved", "False", reason="AdmissionGated", message="gated"))
    gated["metadata"]["ownerReferences"] = owner
    watch.bring("Workload", gated)
    watch.bring("Job", seen_job())
    await watch.until(lambda: watch.facts("Workload"))
    (body,) = world.said(jobs.JobSubmitted)
    assert (body.job, body.run, body.submitted_by) == (JOB, 1, "alice")
    assert body.applied == jobs.AppliedObject(name="by-hand", uid="u-1", gated=True)
    assert [item.name for item in body.spec.datasets] == ["pick-place@train-ready"]
    assert body.spec.queue == "team-a"
    carrier = world.state.get(Carrier, f"arm-lab/{JOB}")
    assert carrier is not None
    assert carrier.uid == "u-1", "the object exists, so none is ever made"
    assert {item.kind for item in world.work} == {RECONCILE, SENTENCE}
    answer = why(world, "by-hand")
    assert (answer["job"], answer["state"]) == (JOB, "QUEUED")
    assert answer["queued_for"] in {"data", "not-evaluated-yet"}


async def test_ready_data_opens_its_gate_and_it_runs_to_its_end() -> None:
    """The same story as of a submitted job: one patch, then attempts from what the cluster says."""
    world = Cluster()
    watch = await adopted(world, seen_job())
    make_ready(world, JOB)
    job = world.job(JOB)
    assert job.gate == "open"
    told = pod_annotations(Submission(spec=job.request, job=job.id, run=job.run, user=job.submitted_by), (), SITE)
    (opened, *_) = moves(job, seen_job(), None, pod_annotations=told)
    assert opened.patch["metadata"]["annotations"] == {layout.KUEUE_GATED_BY: None}
    assert set(opened.patch["spec"]["template"]["metadata"]["annotations"]) >= {layout.INPUTS}
    admitted = workload("by-hand", condition("QuotaReserved"), condition("Admitted", lastTransitionTime=world.stamp(1)))
    admitted["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "by-hand", "uid": "u-1"}]
    made = world.stamp(5)
    running_pod = pod("by-hand", "p1", made, node="n1", **running(world.stamp(1)))
    done = pod("by-hand", "p1", made, node="n1", **ended(0, "Completed", at=world.stamp(9), phase="Succeeded"))
    for item in (running_pod, done):
        item["metadata"] |= {"ownerReferences": admitted["metadata"]["ownerReferences"], "labels": {}}
    for kind, item in [("Job", seen_job()), ("Workload", admitted), ("Pod", running_pod), ("Pod", done)]:
        watch.bring(kind, item)
    await watch.until(lambda: world.job(JOB).attempts and world.job(JOB).attempts[0].ending)
    watch.bring("Job", seen_job(conditions=[condition("Complete")]))
    await watch.until(lambda: world.job(JOB).state == "SUCCEEDED")
    assert [item.number for item in world.job(JOB).attempts] == [1]


async def test_a_second_process_knows_it() -> None:
    """Said once; what happened meanwhile is followed, also when it ended meanwhile."""
    world = Cluster()
    await adopted(world, seen_job())
    again = Watch(world)
    again.stage.bring(Listed([seen_job(version=7, conditions=[condition("Complete")])]), "Job")
    await again.until(lambda: world.job(JOB).state == "SUCCEEDED")
    assert len(world.said(jobs.JobSubmitted)) == 1


@pytest.mark.parametrize(
    ("unseen", "state", "reason"), [(False, "CANCELLED", "Cancelled"), (True, "FAILED", "JobDeleted")]
)
async def test_deleting_the_job_cancels_it(*, unseen: bool, state: str, reason: str) -> None:
    """Whoever deletes an applied Job means its end. One that went while nobody watched may have ended before."""
    world = Cluster()
    watch = await adopted(world, seen_job())
    if unseen:
        watch.stage.bring(Listed([]), "Job")
    else:
        watch.bring("Job", seen_job(), gone=True)
    await watch.until(lambda: world.job(JOB).terminal)
    end = world.job(JOB).terminal
    assert end is not None
    assert (end.state, end.reason) == (state, reason)
    assert "deleted on the cluster" in end.message


async def test_the_name_may_be_used_again() -> None:
    """Another object is another job; the name alone means the newest."""
    world = Cluster()
    watch = await adopted(world, seen_job())
    watch.bring("Job", seen_job(), gone=True)
    watch.bring("Job", seen_job(uid="u-2", mark="00000002"))
    await watch.until(lambda: len(world.said(jobs.JobSubmitted)) == 2)
    assert [body.run for body in world.said(jobs.JobSubmitted)] == [1, 2]
    assert why(world, "by-hand")["job"] == "by-hand-00000002"


async def test_a_copy_is_left_alone() -> None:
    """It carries another Job's marks; neither it nor its pods are taken for that one's."""
    world = Cluster()
    watch = await adopted(world, seen_job())
    copied = seen_job(uid="u-9")
    copied["metadata"]["name"] = "by-hand-copy"
    watch.bring("Job", copied)
    stranger = pod(JOB, "p9", "2026-01-10T08:00:02Z")
    stranger["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "by-hand-copy", "uid": "u-9"}]
    watch.bring("Job", seen_job(version=9, active=1))
    await watch.until(lambda: len(watch.facts("Job")) == 2)
    watch.bring("Pod", stranger)
    watch.bring("Job", seen_job(version=10, active=2))
    await watch.until(lambda: len(watch.facts("Job")) == 3)
    assert len(world.said(jobs.JobSubmitted)) == 1
    assert watch.facts("Pod") == []


async def test_what_came_past_the_webhook_is_said_to() -> None:
    """It runs as its owner wrote it: nothing is opened, shut or made; its verdict says what it does without."""
    world = Cluster()
    watch = await adopted(world, past_the_webhook())
    job = "by-hand-abcdef12"
    (body,) = world.said(jobs.JobSubmitted)
    assert (body.job, body.submitted_by) == (job, NOBODY)
    assert world.said(jobs.JobGated) == []
    verdict = why(world, job)["verdict"]
    assert "while Forebay's webhook was away" in verdict["message"]
    assert "apply it again" in verdict["next_action"]
    assert list(moves(world.job(job), past_the_webhook(), None, pod_annotations={})) == []
    assert {item.kind for item in world.work} == {SENTENCE}
    owner = [{"kind": "Job", "name": "by-hand", "uid": "abcdef12-3456"}]
    admitted = workload("by-hand", condition("QuotaReserved"), condition("Admitted", lastTransitionTime=world.stamp(1)))
    running_pod = pod("by-hand", "p1", world.stamp(5), node="n1", **running(world.stamp(1)))
    for item in (admitted, running_pod):
        item["metadata"] |= {"ownerReferences": owner, "labels": {}}
        watch.bring(item["kind"], item)
    watch.bring("Job", past_the_webhook(active=1))
    await watch.until(lambda: world.job(job).state == "RUNNING")
    assert "runs on n1" in why(world, job)["verdict"]["message"]
    assert "webhook was away" in why(world, job)["verdict"]["message"]
    watch.bring("Job", past_the_webhook(conditions=[condition("Complete")]))
    done = pod(
        "by-hand", "p1", world.stamp(5), node="n1", **ended(0, "Completed", at=world.stamp(9), phase="Succeeded")
    )
    done["metadata"] |= {"ownerReferences": owner, "labels": {}}
    watch.bring("Pod", done)
    await watch.until(lambda: world.job(job).state == "SUCCEEDED")
    assert "webhook" not in why(world, job)["verdict"]["message"]


def waiting(*conditions: Json, active: bool = True, held: bool = False) -> Json:
    """Kueue's Workload of the Job that came past the webhook."""
    item = workload("by-hand", *conditions)
    item["metadata"] |= {
        "ownerReferences": [{"kind": "Job", "name": "by-hand", "uid": "abcdef12-3456"}],
        "resourceVersion": "7",
        "annotations": {layout.HELD: "true"} if held else {},
    }
    item["spec"] |= {"active": active}
    return item


async def test_what_came_past_the_webhook_and_holds_nothing_is_stopped() -> None:
    """Its Workload is deactivated, in the version that was seen; the sentence says to apply it again."""
    world, job = Cluster(), "by-hand-abcdef12"
    watch = await adopted(world, past_the_webhook())
    watch.bring("Workload", waiting(condition("QuotaReserved", "False", reason="Pending")))
    watch.bring("Job", past_the_webhook())
    await watch.until(lambda: RECONCILE in {item.kind for item in world.work})
    (move,) = moves(world.job(job), past_the_webhook(), waiting(), pod_annotations={}, has_pods=False)
    assert move.what == "patch-workload"
    assert move.patch == {
        "metadata": {"resourceVersion": "7", "annotations": {layout.HELD: "true"}},
        "spec": {"active": False},
    }
    watch.bring("Workload", waiting(condition("Evicted", reason="Deactivated"), active=False, held=True))
    watch.bring("Job", past_the_webhook())
    await watch.until(lambda: "stopped before it started" in why(world, job)["verdict"]["message"])
    verdict = why(world, job)["verdict"]
    assert verdict["cause"] == "WebhookUnavailable"
    assert "kubectl delete job by-hand" in verdict["next_action"]
    watch.bring("Workload", waiting(condition("QuotaReserved", "False", reason="Pending"), held=True))
    watch.bring("Job", past_the_webhook())
    await watch.until(lambda: "stopped" not in why(world, job)["verdict"]["message"])
    assert "no gate holds it" in why(world, job)["verdict"]["message"], "somebody has started it nevertheless"


@pytest.mark.parametrize(
    ("found", "beside"),
    [
        (past_the_webhook(), waiting(condition("QuotaReserved"))),
        (past_the_webhook(), waiting(condition("Finished"))),
        (past_the_webhook(), waiting(active=False)),
        (past_the_webhook(), waiting(held=True)),
        (past_the_webhook(active=1), waiting()),
        (past_the_webhook(failed=1), waiting()),
        (past_the_webhook(), None),
    ],
)
async def test_what_holds_quota_or_pods_is_only_told(found: Json, beside: Json | None) -> None:
    """Neither is one stopped that somebody else has stopped, or that was started after we had stopped it."""
    world = Cluster()
    await adopted(world, past_the_webhook())
    known = world.job("by-hand-abcdef12")
    assert list(moves(known, found, beside, pod_annotations={}, has_pods=False)) == []
    assert list(moves(known, past_the_webhook(), waiting(), pod_annotations={}, has_pods=True)) == []
    assert list(moves(known, past_the_webhook(), waiting(), pod_annotations={}, has_pods=False)) != []


async def test_without_kueue_it_is_suspended() -> None:
    """With a test on its version; one that its owner has suspended stays as it is."""
    world, job = Cluster(), "by-hand-abcdef12"
    bare = past_the_webhook()
    bare["metadata"]["labels"] = {}
    watch = await adopted(world, bare)
    assert RECONCILE in {item.kind for item in world.work}
    (move,) = moves(world.job(job), bare, None, pod_annotations={}, has_pods=False)
    assert move.patch == {
        "metadata": {"resourceVersion": "1", "annotations": {layout.HELD: "true"}},
        "spec": {"suspend": True},
    }
    suspended = {**bare, "spec": {**bare["spec"], "suspend": True}}
    assert list(moves(world.job(job), suspended, None, pod_annotations={}, has_pods=False)) == []
    suspended["metadata"] = {
        **bare["metadata"],
        "annotations": {**bare["metadata"]["annotations"], layout.HELD: "true"},
    }
    watch.bring("Job", suspended)
    await watch.until(lambda: "stopped before it started" in why(world, job)["verdict"]["message"])


async def test_an_applied_job_with_a_secret_is_told_and_the_secret_is_not_on_record() -> None:
    """It came past the webhook, which would have refused it."""
    world = Cluster()
    item = past_the_webhook()
    container, *_ = item["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "WANDB_API_KEY", "value": "hunter2hunter2"}]
    await adopted(world, item)
    (body,) = world.said(jobs.JobSubmitted)
    assert "secrets are names" in why(world, body.job)["verdict"]["message"]
    assert "hunter2" not in "".join(str(event) for event in world.log)


async def test_an_annotation_that_cannot_be_followed_is_told() -> None:
    """The webhook would have refused it; now it runs, and the verdict says what is wrong."""
    world = Cluster()
    await adopted(world, past_the_webhook(asks="pick-place@@"))
    (body,) = world.said(jobs.JobSubmitted)
    assert body.spec.datasets == ()
    assert layout.DATASET_ANNOTATION in why(world, body.job)["verdict"]["message"]


@pytest.mark.parametrize(
    "item",
    [
        past_the_webhook(conditions=[condition("Complete")]),
        {**past_the_webhook(), "metadata": {**past_the_webhook()["metadata"], "namespace": "elsewhere"}},
        {**past_the_webhook(), "metadata": {**past_the_webhook()["metadata"], "annotations": {}}},
    ],
)
async def test_what_is_no_job_of_ours_stays_none(item: Json) -> None:
    """One that was over when it was first seen, one of another namespace, one that asks for nothing."""
    world = Cluster()
    watch = Watch(world)
    watch.bring("Job", item)
    watch.bring("Job", seen_job())
    await watch.until(lambda: watch.facts("Job"))
    assert [body.job for body in world.said(jobs.JobSubmitted)] == [JOB]


KEYS = [layout.DATASET_ANNOTATION, layout.INSTRUMENTED, layout.OWNER, layout.WAITING_QUEUE, layout.KUEUE_GATED_BY]
WORDS = st.text(max_size=80) | st.sampled_from(["pick-place", "a@b@c", "x" * 5000, JOB, "pick-7", "v1", "true"])


@given(
    annotations=st.dictionaries(st.sampled_from(KEYS), WORDS),
    labels=st.dictionaries(st.sampled_from([layout.JOB_LABEL, layout.PROJECT_LABEL, layout.KUEUE_QUEUE]), WORDS),
    name=st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True),
)
def test_whatever_people_write_can_go_on_record(annotations: Json, labels: Json, name: str) -> None:
    """Annotations and labels are anybody's; the watch goes on, and what it says fits into an event."""
    item = past_the_webhook()
    annotations = {layout.DATASET_ANNOTATION: "pick-place"} | annotations
    item["metadata"] |= {"name": name, "annotations": annotations, "labels": labels}
    found = adoption_of(item, {"arm-lab": SITE})
    if found is None:
        return
    emit = submission(MemoryState(), found)
    assert emit is not None
    encode(event_of(definition(), emit, causation=None, correlation=None))


def test_the_uid_is_its_identity() -> None:
    """Labels may be changed by anybody; another object of the same name is another job, and none is ever made."""
    wanted = Wanted(name="by-hand", project="arm-lab", job=JOB, spec_sha256="s", uid="u-1", applied=True)
    plain = {"metadata": {"name": "by-hand", "uid": "u-1"}}
    assert after_look(wanted, Reply(code=200, body=plain)).step is Step.ADOPT
    assert after_look(wanted, Reply(code=200, body={"metadata": {"uid": "u-2"}})).step is Step.GONE
    assert after_look(wanted, Reply(code=404, body={})).step is Step.GONE
