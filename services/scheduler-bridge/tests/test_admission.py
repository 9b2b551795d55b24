"""What the webhook answers: a patch, warnings, a refusal with its sentence; to anything that is no question, a clear no."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.admission import NotAReviewError, answer, asked_of, let_through
from hypothesis import given
from hypothesis import strategies as st

from .cluster_jobs import site
from .test_instrument import applied, plain_job

Json = dict[str, Any]
SITES = {"arm-lab": site()}


def review(job: Any, *, before: Any = None, namespace: str = "robot-train", **request: Any) -> Json:
    """As the API server asks."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "operation": "CREATE" if before is None else "UPDATE",
            "namespace": namespace,
            "userInfo": {"username": "alice", "groups": ["lab"]},
            "object": job,
            "oldObject": before,
            "dryRun": False,
            **request,
        },
    }


def answered(question: Json, sites: Any = SITES) -> Json:
    """The response; its form is the API's."""
    found = answer(asked_of(json.dumps(question).encode()), sites, gate="annotation")
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = found["response"]
    assert response["uid"] == question["request"]["uid"]
    assert response["allowed"] or ("patch" not in response and response["status"]["message"])
    return response


def patched(question: Json) -> Json:
    response = answered(question)
    assert response["allowed"], response
    assert response.get("patchType", "JSONPatch") == "JSONPatch"
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    found: Json = applied(question["request"]["object"], patch)
    return found


def test_an_annotated_job_gets_its_gate_and_its_owner() -> None:
    """The patch turns the Job into one that waits; who asked is who submitted it, whatever the file says."""
    after = patched(review(plain_job(**{layout.OWNER: "mallory"})))
    assert after["metadata"]["annotations"][layout.KUEUE_GATED_BY] == layout.GATE
    assert after["metadata"]["annotations"][layout.OWNER] == "alice"


def test_two_jobs_of_one_name_are_two() -> None:
    """Each creation is another job; asking twice about one is the same."""
    first, second = (
        patched(review(plain_job(), uid=uid))["metadata"]["labels"][layout.JOB_LABEL] for uid in ("a", "b")
    )
    assert first != second
    assert patched(review(plain_job(), uid="a"))["metadata"]["labels"][layout.JOB_LABEL] == first


@pytest.mark.parametrize(
    "change",
    [
        {"kind": {"group": "", "kind": "Pod"}},
        {"operation": "DELETE", "object": None},
        {"object": {**plain_job(), "metadata": {"name": "x"}}},
        {"object": {**plain_job(), "metadata": {"name": "x", "annotations": {"a": "b"}}}},
    ],
)
def test_whatever_does_not_ask_is_let_through(change: Json) -> None:
    """Other kinds, other operations, Jobs that want nothing of us."""
    assert answered(review(plain_job(), **change)) == {"uid": review({})["request"]["uid"], "allowed": True}


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (plain_job(**{layout.DATASET_ANNOTATION: "pick-place@@"}), "forebay.dev/dataset"),
        (plain_job(**{layout.DATASET_ANNOTATION: ""}), "names no dataset"),
        (plain_job(**{layout.DATASET_ANNOTATION: "stack"}), "{data:pick-place} names no dataset of this job"),
        (plain_job(**{layout.PROJECT_LABEL: "leg-lab"}), "'leg-lab' is no project of namespace robot-train"),
        ({**plain_job(), "spec": {"template": {"spec": {"containers": []}}}}, "no Job that could be read"),
        (patched(review(plain_job())), "a copy of a Job"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(job: Json, says: str) -> None:
    """Whoever asks for data does not want a Job that starts without it; how to do that is said too."""
    response = answered(review(job))
    assert not response["allowed"]
    assert says in response["status"]["message"]
    assert "Without the annotation" in response["status"]["message"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"queues": ["team-b"]}, "label kueue.x-k8s.io/queue-name: 'team-a' is not allowed for project arm-lab"),
        ({"data": None}, "declares no data pool"),
        ({"namespace": "elsewhere"}, "no project's jobs run in namespace robot-train"),
    ],
)
def test_it_refuses_what_submit_refuses(fields: Json, says: str) -> None:
    """The project file's rules, in the places where a Job says the same."""
    job = plain_job()
    job["metadata"]["labels"] = {layout.KUEUE_QUEUE: "team-a"}
    response = answered(review(job), {"arm-lab": site(**fields)})
    assert says in response["status"]["message"]


def test_a_namespace_of_two_projects_wants_to_know_which() -> None:
    """The annotation names it."""
    sites = {"arm-lab": site(), "leg-lab": site(project="leg-lab")}
    assert "name one" in answered(review(plain_job()), sites)["status"]["message"]
    assert answered(review(plain_job(**{layout.PROJECT_LABEL: "leg-lab"})), sites)["allowed"]


def test_warnings_reach_the_keyboard() -> None:
    """What would lose work, and what cannot be done; short enough for the API server."""
    job = plain_job()
    job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    job["spec"]["template"]["spec"]["containers"][0] |= {"command": ["lerobot-train"], "args": []}
    warnings = answered(review(job))["warnings"]
    assert any("restartPolicy" in warning for warning in warnings)
    assert any("--output_dir" in warning for warning in warnings)
    assert all(len(warning) <= 256 for warning in warnings)


def test_an_update_never_refuses() -> None:
    """The Job exists: the same file again is no change, another annotation is told to be none."""
    live = patched(review(plain_job()))
    assert answered(review(live, before=live)) == {"uid": review({})["request"]["uid"], "allowed": True}
    again = patched(review(plain_job(), before=live))
    assert again["spec"]["template"]["spec"]["containers"][0]["command"] == ["/bin/sh", layout.SHIM]
    other = plain_job(**{layout.DATASET_ANNOTATION: "pick-place@v3"})
    assert "changes nothing" in answered(review(other, before=live))["warnings"][0]
    broken = answered(review(plain_job(**{layout.DATASET_ANNOTATION: "@"}), before=live))
    assert broken["allowed"]


def test_our_own_mistake_lets_the_job_through() -> None:
    """With a warning that says so."""
    response = let_through("u", "KeyError in its webhook")["response"]
    assert response == {
        "uid": "u",
        "allowed": True,
        "warnings": ["Forebay did nothing about this Job: KeyError in its webhook"],
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}',
        b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u", "operation": "CREATE"}}',
        b'{"kind": "Pod", "apiVersion": "v1", "request": {"uid": "u", "operation": "CREATE"}}',
        b'{"a":' * 5000,
        b"[" * 200_000,
    ],
)
def test_what_is_no_question_is_told_so(content: bytes) -> None:
    """One sentence, whatever came."""
    with pytest.raises(NotAReviewError, match="AdmissionReview"):
        asked_of(content)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def spoiled(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """The value with something else at one place."""
    if not path:
        return other
    head, *rest = path
    if isinstance(value, dict):
        return {**value, head: spoiled(value[head], tuple(rest), other)}
    return [*value[:head], spoiled(value[head], tuple(rest), other), *value[head + 1 :]]


LIVE = patched(review(plain_job()))


@given(data=st.data())
def test_no_object_breaks_it(data: st.DataObject) -> None:
    """Anything at any place of a question: an answer of the right form, or the sentence that it is no question."""
    question = data.draw(st.sampled_from([review(plain_job()), review(plain_job(), before=LIVE)]))
    for _ in range(data.draw(st.integers(1, 3))):
        question = spoiled(question, data.draw(st.sampled_from(places(question))), data.draw(ANY))
    content = json.dumps(question).encode()
    try:
        asked = asked_of(content)
    except NotAReviewError:
        return
    response = answer(asked, SITES, gate="annotation")["response"]
    assert response["uid"] == asked.uid
    if "patch" in response:
        applied(asked.object, json.loads(base64.b64decode(response["patch"])))


@given(st.binary(max_size=200))
def test_no_bytes_break_it(content: bytes) -> None:
    """They are never a question."""
    with pytest.raises(NotAReviewError):
        asked_of(content)
