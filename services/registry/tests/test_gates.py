"""Release gates: rules over metrics, alone and next to what is live; refused, or forced with everything on record."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.v1.models import ModelReleased, ReleasePolicySet
from forebay.registry.domain.gates import check, policy_of
from forebay.registry.domain.nodes import Fact, Node
from forebay.runtime.errors import Refused

from services.registry.tests.histories import START, Registry, fold, trained


def one(rule: dict[str, Any], metrics: dict[str, float], live: dict[str, float] | None = None) -> tuple[bool, str]:
    fact = Fact(event="e", name="EvaluationRecorded", time=START, values={"metrics": metrics})
    evaluation = Node(project="p", id="evaluation:ev-1", facts=(fact,))
    result = check(policy_of({"rules": [rule]}), evaluation, {"production": live})[0]
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
            {"evidence": "typed", "rules": [{"metric": "s", "at_least": 1}]},
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


class TestKeptPolicies:
    """What a channel asks for is kept in the log: every release meets it, without being told again."""

    def keep(self, registry: Registry, model: str | None = None, **more: Any) -> dict[str, Any]:
        args = {"channel": "production", "policy": POLICY, "reason": "robots on the floor"} | more
        return registry.command("model-policy", **args | ({} if model is None else {"model": model}))

    @pytest.mark.parametrize("model", [None, "reach"])
    def test_holds_without_being_said_again(self, registry: Registry, model: str | None) -> None:
        """Of the project or of the model: a release that breaks it is refused; other channels ask for nothing."""
        assert self.keep(registry, model)["number"] == 1
        with pytest.raises(Refused) as refused:
            registry.command("model-release", model="reach", number=2, channel="production")
        assert refused.value.code == "gate-failed"
        assert registry.command("model-release", model="reach", number=2, channel="canary")["gate"] is None

    def test_of_another_model(self, registry: Registry) -> None:
        """A model's own policy is nobody else's."""
        self.keep(registry, "other")
        assert registry.command("model-release", model="reach", number=2, channel="production")["gate"] is None

    def test_all_hold_together(self, registry: Registry) -> None:
        """The project's rules, the model's and those given with the release: a softer file opens nothing."""
        self.keep(registry)
        self.keep(registry, "reach", policy={"rules": [{"metric": "collisions", "at_most": 0}]})
        soft = {"rules": [{"metric": "success", "at_least": 0.1}]}
        with pytest.raises(Refused) as refused:
            registry.command("model-release", model="reach", number=2, channel="production", policy=soft)
        assert [one["metric"] for one in refused.value.details["gate"]] == [
            "success",
            "success",
            "collisions",
            "success",
        ]
        assert [one["passed"] for one in refused.value.details["gate"]] == [True, False, False, True]

    def test_forced_and_rolled_back(self, registry: Registry) -> None:
        """A reason on record opens it; the way back needs none."""
        self.keep(registry)
        registry.command("model-release", model="reach", number=2, channel="production", forced_reason="cups")
        assert registry.command("model-release", model="reach", channel="production", rollback=True, reason="worse")

    def test_retiring_asks_for_nothing(self, registry: Registry) -> None:
        """What nobody uses any more must go without metrics."""
        self.keep(registry)
        assert registry.command("model-release", model="reach", number=2, channel="retired")["gate"] is None
        with pytest.raises(Refused):
            self.keep(registry, channel="retired")

    def test_who_and_why(self, registry: Registry) -> None:
        """It is an event with who and why; the last one counts, the same one again is none, removing is one too."""
        self.keep(registry)
        assert self.keep(registry)["already"] is True
        softer = {"rules": [{"metric": "success", "at_least": 0.6}]}
        assert self.keep(registry, policy=softer, reason="only one robot")["number"] == 2
        said = [one.body for one in registry.said if isinstance(one.body, ReleasePolicySet)]
        assert [(one.number, one.reason, bool(one.by)) for one in said] == [
            (1, "robots on the floor", True),
            (2, "only one robot", True),
        ]
        (kept,) = registry.ask("policies")["policies"]
        assert (kept["number"], kept["reason"], kept["rules"][0]["words"]) == (2, "only one robot", ">= 0.6")
        assert registry.command("model-release", model="reach", number=2, channel="production")["gate"][0]["passed"]
        removed = registry.command("model-policy", channel="production", remove=True, reason="over")
        assert (removed["number"], removed["rules"]) == (3, [])
        assert registry.ask("policies")["policies"][0]["rules"] == []
        assert not [one for one in registry.ask("contradictions")["contradictions"] if "gate" in one["subject"]]

    def test_as_it_was(self, registry: Registry) -> None:
        """The policy of a day in the past is still known."""
        self.keep(registry)
        then = len(registry.said)
        registry.command("model-policy", channel="production", remove=True, reason="over")
        assert len(registry.ask("policies", as_of=then)["policies"][0]["rules"]) == 2

    def test_any_order(self, registry: Registry) -> None:
        """Heard in another order the same policy holds."""
        self.keep(registry)
        self.keep(registry, policy={"rules": [{"metric": "success", "at_least": 0.6}]})
        other = Registry(state=fold(reversed(registry.said)))
        assert other.ask("policies")["policies"] == registry.ask("policies")["policies"]

    @pytest.mark.parametrize(
        "args",
        [
            {"policy": {"rules": []}},
            {"policy": None},
            {"remove": True},
            {"channel": "staging"},
            {"reason": " "},
            {"model": "reach@v1"},
            {"policy": {"rules": [{"metric": "s", "at_least": float(one)} for one in range(51)]}},
        ],
    )
    def test_refused(self, registry: Registry, args: dict[str, Any]) -> None:
        """A policy that says nothing, or with a mistake in it, is not kept."""
        with pytest.raises(Refused):
            self.keep(registry, **args)
