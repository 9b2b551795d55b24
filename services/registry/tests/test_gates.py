"""Release gates: rules over metrics, alone and next to what is live; refused, or forced with everything on record."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.v1.models import ModelReleased
from forebay.registry.domain.gates import check, policy_of
from forebay.runtime.errors import Refused

from services.registry.tests.histories import Registry, trained


def one(rule: dict[str, Any], metrics: dict[str, float], live: dict[str, float] | None = None) -> tuple[bool, str]:
    result = check(policy_of({"rules": [rule]}), metrics, {"production": live})[0]
    return result.passed, result.message


class TestRules:
    @pytest.mark.parametrize(
        ("rule", "metrics", "live", "passed"),
        [
            ({"metric": "s", "at_least": 0.8}, {"s": 0.8}, None, True),
            ({"metric": "s", "at_least": 0.8}, {"s": 0.79}, None, False),
            ({"metric": "loss", "at_most": 0.1}, {"loss": 0.2}, None, False),
            ({"metric": "s", "at_least": 0.8}, {"other": 1.0}, None, False),
            ({"metric": "s", "at_least": -0.05, "compared_with": "production"}, {"s": 0.86}, {"s": 0.9}, True),
            ({"metric": "s", "at_least": -0.05, "compared_with": "production"}, {"s": 0.84}, {"s": 0.9}, False),
            ({"metric": "s", "at_least": 0, "compared_with": "production"}, {"s": 0.1}, None, True),
            ({"metric": "s", "at_least": 0, "compared_with": "production"}, {}, None, False),
            ({"metric": "s", "at_least": 0, "compared_with": "production"}, {"s": 0.9}, {"t": 1.0}, False),
        ],
    )
    def test_rules(
        self, rule: dict[str, Any], metrics: dict[str, float], live: dict[str, float] | None, *, passed: bool
    ) -> None:
        """Each bound, alone and relative; what cannot be compared does not pass, an empty channel does."""
        found, message = one(rule, metrics, live)
        assert found is passed
        assert message

    @pytest.mark.parametrize(
        "policy",
        [
            None,
            {},
            {"rules": []},
            {"rules": [{"metric": "s"}]},
            {"rules": [{"metric": "s", "at_least": 1, "at_most": 2}]},
            {"rules": [{"metric": "s", "at_least": "high"}]},
            {"rules": [{"metric": "s", "at_least": float("nan")}]},
            {"rules": [{"metric": "s", "at_least": 1, "compared_with": "staging"}]},
            {"rules": [{"metric": "s", "at_last": 1}]},
        ],
    )
    def test_bad_policies(self, policy: Any) -> None:
        """A policy with a typo is refused: a gate that silently lets everything through is worse than none."""
        with pytest.raises(ValueError, match=r"."):
            policy_of(policy)


POLICY = {
    "rules": [
        {"metric": "success", "at_least": 0.5},
        {"metric": "success", "at_least": -0.02, "compared_with": "production"},
    ]
}


@pytest.fixture
def registry() -> Registry:
    """Version 1 in production with 0.9, version 2 evaluated with 0.7."""
    found = Registry()
    trained(found)
    for checkpoint, success in (("200", 0.9), ("300", 0.7)):
        number = found.command("model-register", model="reach", job="reach-1", checkpoint=checkpoint)["number"]
        found.command("model-evaluate", model="reach", number=number, metrics={"success": success}, source="e")
    found.command("model-release", model="reach", number=1, channel="production", policy=POLICY)
    return found


class TestRelease:
    def test_passed(self, registry: Registry) -> None:
        """The release keeps every rule with what it found, and the policy's digest."""
        body = registry.said[-1].body
        assert isinstance(body, ModelReleased)
        assert [rule.passed for rule in body.gate or ()] == [True, True]
        assert body.policy_sha256
        assert registry.ask("history", model="reach")["moves"][-1]["gate"][0]["rule"] == ">= 0.5"

    def test_failing(self, registry: Registry) -> None:
        """A version worse than what is live is refused, with each failing rule and its numbers."""
        with pytest.raises(Refused) as refused:
            registry.command("model-release", model="reach", number=2, channel="production", policy=POLICY)
        assert refused.value.code == "gate-failed"
        assert "0.88 is needed" in refused.value.message
        assert [rule["passed"] for rule in refused.value.details["gate"]] == [True, False]

    def test_forced(self, registry: Registry) -> None:
        """Forced, the release says why, and which rules it broke."""
        args: dict[str, Any] = {"model": "reach", "number": 2, "channel": "production", "policy": POLICY}
        registry.command("model-release", **args, forced_reason="the old one breaks cups")
        body = registry.said[-1].body
        assert isinstance(body, ModelReleased)
        assert body.forced_reason == "the old one breaks cups"
        assert [rule.passed for rule in body.gate or ()] == [True, False]

    def test_bad_policy(self, registry: Registry) -> None:
        """A policy that cannot be read stops the release."""
        with pytest.raises(Refused) as refused:
            registry.command("model-release", model="reach", number=2, channel="canary", policy={"rules": "all"})
        assert refused.value.code == "bad-policy"
