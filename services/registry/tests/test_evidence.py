"""Evaluations carry their source: a file with its digest, the job that wrote it; numbers typed by hand are marked and can be refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from forebay.contracts.v1.models import EvaluationRecorded, ModelReleased
from forebay.runtime.errors import Refused

from services.registry.tests.histories import PROJECT, START, Registry, trained

FILE = {"kind": "file", "file": "/home/ada/eval_info.json", "sha256": "a" * 64}
JOB = {"kind": "job", "job": "reach", "file": f"/srv/jobs/{PROJECT}/reach-1/output/eval_info.json", "sha256": "b" * 64}
RULE = {"metric": "success", "at_least": 0.8}


@pytest.fixture
def registry() -> Registry:
    found = Registry()
    trained(found)
    found.command("model-register", model="reach", job="reach-1")
    return found


def evaluate(
    registry: Registry, evidence: dict[str, Any] | None = None, success: float = 0.9, **more: float
) -> dict[str, Any]:
    args: dict[str, Any] = {} if evidence is None else {"evidence": evidence}
    return registry.command("model-evaluate", model="reach", metrics={"success": success, **more}, source="x", **args)


def release(registry: Registry, **args: Any) -> dict[str, Any]:
    return registry.command("model-release", model="reach", channel="production", **args)


def code_of(registry: Registry, command: str, **args: Any) -> str:
    with pytest.raises(Refused) as refused:
        registry.command(command, **args)
    return refused.value.code


@pytest.mark.parametrize(
    ("evidence", "words", "typed"),
    [
        (None, "typed by hand", True),
        ({"kind": "typed"}, "typed by hand", True),
        (FILE, "file /home/ada/eval_info.json (sha256 aaaaaaaaaaaa)", False),
        (JOB, f"job reach-1, file /srv/jobs/{PROJECT}/reach-1/output/eval_info.json (sha256 bbbbbbbbbbbb)", False),
        (
            FILE | {"typed": ["success"]},
            "file /home/ada/eval_info.json (sha256 aaaaaaaaaaaa); typed by hand: success",
            True,
        ),
    ],
)
def test_the_source_is_shown_everywhere(
    registry: Registry, evidence: dict[str, Any] | None, words: str, *, typed: bool
) -> None:
    """An evaluation, a release, a history, a search, a comparison and the lineage say where the numbers come from."""
    found = evaluate(registry, evidence)
    assert (found["evidence"], found["typed"]) == (words, typed)
    released = release(registry)
    assert (released["evidence"], released["typed"]) == (words, typed)
    (move,) = registry.ask("history", model="reach")["moves"]
    assert (move["evidence"], move["typed"]) == (words, typed)
    (model,) = registry.ask("search", metric="success>=0.8")["models"]
    assert (model["evidence"], model["typed"]) == (words, typed)
    lineage = json.dumps(registry.ask("lineage", id="reach@production"))
    assert ("typed by hand" in lineage) is typed
    assert "metrics from" in registry.ask("diff", a="reach@v1", b="reach@v1")["same"]


@pytest.mark.parametrize(
    ("demanded", "evidence", "passes"),
    [
        ("file", None, False),
        ("file", FILE, True),
        ("file", JOB, True),
        ("job", FILE, False),
        ("job", JOB, True),
        ("job", JOB | {"typed": ["success"]}, False),
        ("job", JOB | {"typed": ["other"]}, True),
        (None, None, True),
    ],
)
def test_a_policy_demands_a_source(
    registry: Registry, demanded: str | None, evidence: dict[str, Any] | None, *, passes: bool
) -> None:
    """Numbers without the demanded source fail the gate, however good they are; a forced release says so on record."""
    policy = {"rules": [RULE]} | ({} if demanded is None else {"evidence": demanded})
    registry.command("model-policy", channel="production", policy=policy, reason="pilot")
    evaluate(registry, evidence, other=1.0)
    if passes:
        assert all(one["passed"] for one in release(registry)["gate"])
        return
    assert code_of(registry, "model-release", model="reach", channel="production") == "gate-failed"
    release(registry, forced_reason="demonstration")
    body = next(one.body for one in registry.said if isinstance(one.body, ModelReleased))
    assert body.gate is not None
    assert [one.metric for one in body.gate if not one.passed] == ["evidence"]


def test_a_policy_of_a_source_alone(registry: Registry) -> None:
    """A policy may ask for nothing but a source; the strictest of all policies holds, and it can be removed."""
    registry.command("model-policy", channel="production", policy={"evidence": "file"}, reason="pilot")
    registry.command("model-policy", channel="production", model="reach", policy={"evidence": "job"}, reason="pilot")
    assert [one["evidence"] for one in registry.ask("policies")["policies"]] == ["file", "job"]
    evaluate(registry, FILE)
    assert code_of(registry, "model-release", model="reach", channel="production") == "gate-failed"
    registry.command("model-policy", channel="production", model="reach", remove=True, reason="too strict")
    assert release(registry)["number"] == 1
    assert registry.command("model-policy", channel="production", policy={"evidence": "file"}, reason="again")[
        "already"
    ]


def test_typed_numbers_do_not_replace_measured_ones(registry: Registry) -> None:
    """Where a source is demanded, later numbers typed by hand are passed over, good or bad."""
    evaluate(registry, JOB, success=0.5)
    evaluate(registry, None, success=0.99)
    registry.command("model-policy", channel="production", policy={"evidence": "job", "rules": [RULE]}, reason="pilot")
    with pytest.raises(Refused, match=r"success is 0\.5"):
        release(registry)


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        ({"kind": "file"}, "bad-request"),
        ({"kind": "guess"}, "bad-request"),
        (FILE | {"sha256": "abc"}, "bad-request"),
        (JOB | {"job": "nobody-1"}, "unknown-id"),
        (JOB | {"file": "/home/ada/eval_info.json"}, "not-of-this-job"),
        (JOB | {"file": f"/srv/jobs/{PROJECT}/reach-12/eval_info.json"}, "not-of-this-job"),
    ],
)
def test_sources_that_do_not_fit(registry: Registry, evidence: dict[str, Any], code: str) -> None:
    """A job is a source only of files that lie in its own folder; nothing is recorded otherwise."""
    assert code_of(registry, "model-evaluate", model="reach", metrics={"s": 1.0}, source="x", evidence=evidence) == code
    assert not any(isinstance(one.body, EvaluationRecorded) for one in registry.said)


def test_the_last_word_is_the_logs(registry: Registry) -> None:
    """The latest evaluation is the last in the log, whatever its writer's clock said."""
    evaluate(registry, FILE, success=0.4)
    late = next(one for one in registry.said if isinstance(one.body, EvaluationRecorded))
    body = late.body
    assert isinstance(body, EvaluationRecorded)
    early = body.model_copy(update={"evaluation": "ev-other", "metrics": {"success": 0.9}})
    registry.say(early, time=START.replace(year=2020))
    (model,) = registry.ask("search", metric="success")["models"]
    assert model["metrics"] == {"success": 0.9}
