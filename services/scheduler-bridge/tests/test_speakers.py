"""Which pod may speak for which job: only one of its own Job object, while it lives and the job does."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from forebay.contracts.errors import InvalidNameError
from forebay.contracts.permissions import TOKEN_AUDIENCE, permission_of_attempt
from forebay.scheduler_bridge.domain.speakers import (
    LONGEST_S,
    NOT_SEEN,
    Asked,
    PodProof,
    asked_of,
    ends_at,
    proof_of,
    refusal_of,
    review_of,
)

from .cluster_objects import NAMESPACE, Cluster, ended, kube_job, pod, running

POD_UID = "authentication.kubernetes.io/pod-uid"


def jwt(**claims: Any) -> str:
    middle = urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{middle}.c2ln"


def request(name: str = "/forebay/agent/arm-lab/pick-1", token: str | None = "t") -> bytes:  # noqa: S107 no secret
    options = {"name": name, **({"auth_token": token} if token else {})}
    return jwt(nats={"server_id": {"id": "N1"}, "user_nkey": "U1", "connect_opts": options}).encode()


def review(**changes: Any) -> dict[str, Any]:
    user = {"username": f"system:serviceaccount:{NAMESPACE}:default", "extra": {POD_UID: ["p1"]}}
    return {"status": {"authenticated": True, "audiences": [TOKEN_AUDIENCE], "user": user, **changes}}


def world_with_pod() -> tuple[Cluster, str]:
    """A job of ours whose Job object has one running pod, p1."""
    world = Cluster()
    job = world.submit("pick", image="busybox", command=["train"])
    world.see(job, kube_job(job, suspend=False))
    world.see(job, pod(job, "p1", world.stamp(1), node="n1", **running(world.stamp(1))))
    return world, job


def asked(job: str, project: str = "arm-lab") -> Asked:
    return Asked(server="N1", connection="U1", project=project, job=job, token="t")  # noqa: S106 no secret


def why(world: Cluster, job: str, uid: str = "p1", namespace: str = NAMESPACE, project: str = "arm-lab") -> str | None:
    proof = PodProof(namespace=namespace, uid=uid)
    return refusal_of(world.state, asked(job, project), proof, NAMESPACE)


def test_what_the_server_asks_is_read_from_its_request() -> None:
    """Server, connection, what the client claims to be, and its token."""
    assert asked_of(request()) == asked("pick-1")


@pytest.mark.parametrize("name", ["", "mine", "/forebay/collector/arm-lab/pick-1", "/forebay/ingest/pick-1", "//"])
def test_whoever_claims_to_be_no_agent_claims_no_job(name: str) -> None:
    """A name of any other kind is answered with a refusal, not with silence."""
    found = asked_of(request(name, token=None))
    assert (found.project, found.job, found.token) == ("", "", "")
    with pytest.raises(InvalidNameError):
        permission_of_attempt(found.project, found.job)


@pytest.mark.parametrize("data", [b"", b"a.b.c", b"e30.W10.x", b"\xff", b"e30.e30.x"])
def test_what_is_no_request_is_refused_by_its_form(data: bytes) -> None:
    """Nothing but a server's request is read as one."""
    with pytest.raises((ValueError, KeyError)):
        asked_of(data)


def test_the_api_server_is_asked_for_our_audience_only() -> None:
    """A token that is good for the cluster itself is no key of ours."""
    assert review_of("t")["spec"] == {"token": "t", "audiences": [TOKEN_AUDIENCE]}


def test_a_good_token_proves_its_pod() -> None:
    """Namespace and uid, in the API server's own words."""
    assert proof_of(review()) == PodProof(namespace=NAMESPACE, uid="p1")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"authenticated": False}, id="not good, or its pod is gone"),
        pytest.param({"audiences": ["https://kubernetes.default.svc"]}, id="made out to somebody else"),
        pytest.param({"audiences": []}, id="made out to nobody"),
        pytest.param({"user": {"username": "alice", "extra": {POD_UID: ["p1"]}}}, id="a person's"),
        pytest.param({"user": {"username": "system:serviceaccount:a:b", "extra": {}}}, id="of no pod"),
        pytest.param({"user": {"username": "x-system:serviceaccount:a:b", "extra": {POD_UID: ["p1"]}}}, id="alike"),
    ],
)
def test_any_other_answer_proves_nothing(changes: dict[str, Any]) -> None:
    """Only what the API server says outright counts."""
    assert proof_of(review(**changes)) is None


def test_a_pod_speaks_for_the_job_that_owns_it() -> None:
    """And for no other job, whatever it claims."""
    world, job = world_with_pod()
    other = world.submit("other", image="busybox", command=["train"])
    world.see(other, kube_job(other, suspend=False))
    assert why(world, job) is None
    assert why(world, other) == NOT_SEEN
    assert why(world, "none-1") == "there is no such job"
    assert why(world, job, project="dog-lab") == "there is no such job"


def test_a_pod_that_only_wears_the_labels_is_no_pod_of_the_job() -> None:
    """Anybody may write labels; the owner's uid is the API server's own."""
    world, job = world_with_pod()
    stranger = pod(job, "p2", world.stamp(1))
    stranger["metadata"]["ownerReferences"] = [{"kind": "Job", "name": job, "uid": "another"}]
    world.see(job, stranger)
    assert why(world, job, "p2") == "it is no pod of that job's Job object"
    assert why(world, job, "p1", namespace="elsewhere") == "it is no pod of that job's Job object"
    assert why(world, job, f"job-{job}") == "it is no pod of that job's Job object"


def test_a_pod_is_let_in_once_it_was_seen_and_not_after_its_end() -> None:
    """Not before the watch brought it; not when it has ended, is gone, or its job is over."""
    world, job = world_with_pod()
    assert why(world, job, "p9") == NOT_SEEN
    over = pod(job, "p1", world.stamp(1), node="n1", **ended(0, "Completed", at=world.stamp(9), phase="Succeeded"))
    world.see(job, over)
    assert why(world, job) == "it has ended"
    world.see(job, pod(job, "p3", world.stamp(1)))
    assert why(world, job, "p3") is None
    world.see(job, pod(job, "p3", world.stamp(1)), gone=True)
    assert why(world, job, "p3") == "it has ended"
    world.see(job, pod(job, "p4", world.stamp(1)))
    world.command("cancel", job=job)
    assert why(world, job, "p4") == "the job is over"


@pytest.mark.parametrize(
    ("token", "until"),
    [
        (jwt(exp=1_500), 1_500),
        (jwt(exp=10**9), 1_000 + LONGEST_S),
        (jwt(), 1_000 + LONGEST_S),
        (jwt(exp="soon"), 1_000 + LONGEST_S),
        ("opaque", 1_000 + LONGEST_S),
    ],
)
def test_a_connection_lasts_no_longer_than_its_token(token: str, until: int) -> None:
    """And an hour at most, after which somebody looks again."""
    assert ends_at(token, 1_000) == until


@pytest.mark.parametrize("job", ["ab", "", "*", ">", "pick-1.x", "Pick-1", "pick_1"])
def test_a_permission_is_for_one_job_by_name(job: str) -> None:
    """No wildcard, no second token, and no key under which events of an older version stand."""
    with pytest.raises(InvalidNameError):
        permission_of_attempt("arm-lab", job)
