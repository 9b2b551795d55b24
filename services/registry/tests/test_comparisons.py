"""Diff, history and search: what changed, what was named when, and what there is."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.v1.episodes import EpisodeUploaded
from forebay.runtime.errors import Refused

from services.registry.tests.histories import (
    Registry,
    accepted,
    committed,
    episode_id,
    leased,
    run,
    submitted,
    tagged,
    trained,
    uploaded,
)


@pytest.fixture
def registry() -> Registry:
    """`base` from pick@v1 (3 episodes); `reach` fine-tuned from it on pick@v2 (2 episodes), other lr and code."""
    found = Registry()
    trained(found)
    found.command("model-register", model="base", job="reach-1")
    found.command("model-evaluate", model="base", metrics={"success": 0.5}, source="e")
    ids = [episode_id(0), episode_id(1)]
    found.say(committed(2, found.lists.add(ids), 2, parent=1, parent_reason="withdrawn"), tagged(2))
    found.say(submitted("fine-1", parameters={"lr": 0.1}, code_revision="9999fff", image="lab@sha256:1"))
    found.say(leased("fine-1", 2, base=1))
    run(found, "fine-1")
    found.command("model-register", model="reach", job="fine-1")
    found.command("model-evaluate", model="reach", metrics={"success": 0.9, "reward": 7.0}, source="e")
    return found


def differences(answer: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {one["what"]: (one["a"], one["b"]) for one in answer["differences"]}


class TestDiff:
    def test_everything_that_changed(self, registry: Registry) -> None:
        """Data, base model, code, image, parameters and result, each with both sides."""
        answer = registry.ask("diff", a="base", b="reach")
        found = differences(answer)
        assert found["dataset:pick@v1"][1] is None
        assert found["dataset:pick@v2"][0] is None
        assert found["episodes"][0]["episodes"] == [episode_id(2)]
        assert found["base models"] == ([], ["model:base@v1"])
        assert found["code revision"] == (None, "9999fff")
        assert found["image"] == (None, "lab@sha256:1")
        assert found["lr"] == (None, 0.1)
        assert found["success"] == (0.5, 0.9)
        assert [one["group"] for one in answer["differences"]][:2] == ["data", "data"]
        assert answer["complete"]

    def test_same(self, registry: Registry) -> None:
        """A version does not differ from itself, and what nobody said is called unknown."""
        answer = registry.ask("diff", a="base@v1", b="base@v1")
        assert answer["differences"] == []
        assert set(answer["unknown"]) == {"code revision", "image"}

    def test_channel(self, registry: Registry) -> None:
        """A channel stands for what it names."""
        registry.command("model-release", model="reach", channel="production")
        assert registry.ask("diff", a="base", b="reach@production")["b"] == "model:reach@v1"

    def test_missing_list(self, registry: Registry) -> None:
        """Without an episode list the episodes are not compared, and the answer is not complete."""
        registry.lists.lists.clear()
        answer = registry.ask("diff", a="base", b="reach")
        assert "episodes" not in differences(answer)
        assert not answer["complete"]

    @pytest.mark.parametrize("b", ["nobody", "reach@v9", "reach@production"])
    def test_unknown(self, registry: Registry, b: str) -> None:
        """What is not there is refused."""
        with pytest.raises(Refused):
            registry.ask("diff", a="base", b=b)


class TestHistory:
    def test_moves(self, registry: Registry) -> None:
        """Every move with its grounds, in the order of the log, and until when it stood; in pages."""
        registry.command("model-register", model="base", job="reach-1", checkpoint="200")
        registry.command("model-release", model="base", number=1, channel="production")
        registry.command("model-release", model="base", number=2, channel="production", forced_reason="speed")
        registry.command("model-release", model="base", channel="production", rollback=True, reason="worse")
        answer = registry.ask("history", model="base")
        assert [(one["action"], one["number"], one["reason"]) for one in answer["moves"]] == [
            ("release", 1, None),
            ("release", 2, "speed"),
            ("rollback", 1, "worse"),
        ]
        assert answer["moves"][0]["until"] == answer["moves"][1]["at"]
        assert answer["channels"] == {"production": 1}
        page = registry.ask("history", model="base", limit=2)
        rest = registry.ask("history", model="base", after=page["after"])
        assert page["moves"] + rest["moves"] == answer["moves"]

    def test_then(self, registry: Registry) -> None:
        """As of between two moves the channel names the first one."""
        registry.command("model-register", model="base", job="reach-1", checkpoint="200")
        registry.command("model-release", model="base", number=1, channel="production")
        then = len(registry.said)
        registry.command("model-release", model="base", number=2, channel="production", forced_reason="speed")
        assert registry.ask("history", model="base", as_of=then)["channels"] == {"production": 1}
        assert registry.ask("history", model="base")["channels"] == {"production": 2}

    @pytest.mark.parametrize(("args", "code"), [({"model": "x"}, "unknown-id"), ({"channel": "prod"}, "bad-channel")])
    def test_refusals(self, registry: Registry, args: dict[str, Any], code: str) -> None:
        """Unknown models and channels are refused."""
        with pytest.raises(Refused) as refused:
            registry.ask("history", **({"model": "base"} | args))
        assert refused.value.code == code


def _other() -> EpisodeUploaded:
    other = uploaded(0, "up-2", "wipe")
    return other.model_copy(update={"tasks": ("Wipe the table",), "robot": "so101"})


class TestSearch:
    @pytest.mark.parametrize(
        ("args", "models"),
        [
            ({"task": "REACH"}, ["base", "reach"]),
            ({"task": "fold"}, []),
            ({"robot": "arm2", "metric": "success>=0.8"}, ["reach"]),
            ({"robot": "so101"}, []),
            ({"dataset": "pick"}, ["base", "reach"]),
            ({"dataset": "pick@v1"}, ["base"]),
            ({"dataset": "wipe", "task": "reach"}, []),
            ({"metric": "reward"}, ["reach"]),
            ({"metric": "success < 0.8"}, ["base"]),
        ],
    )
    def test_conditions(self, registry: Registry, args: dict[str, Any], models: list[str]) -> None:
        """By task, robot, dataset and metric; every condition has to hold."""
        registry.say(_other())
        answer = registry.ask("search", **args)
        assert [one["model"] for one in answer["models"]] == models
        assert answer["complete"]

    def test_datasets(self, registry: Registry) -> None:
        """Datasets that fit are listed with what fits, those without a version too; an upload alone is only a claim."""
        registry.say(_other())
        assert registry.ask("search", task="wipe")["datasets"] == []
        registry.say(accepted(0, "up-2", "wipe"))
        found = registry.ask("search", task="wipe")["datasets"]
        assert found == [{"dataset": "wipe", "latest": None, "tasks": ["Wipe the table"]}]

    def test_pages(self, registry: Registry) -> None:
        """A page says where to go on, and that it is not all."""
        page = registry.ask("search", dataset="pick", limit=1)
        assert (page["complete"], [one["model"] for one in page["models"]]) == (False, ["base"])
        rest = registry.ask("search", dataset="pick", after=page["after"])
        assert (rest["complete"], [one["model"] for one in rest["models"]]) == (True, ["reach"])

    @pytest.mark.parametrize("args", [{}, {"metric": "success>=high"}, {"metric": ">=1"}, {"task": " "}])
    def test_refusals(self, registry: Registry, args: dict[str, Any]) -> None:
        """No condition, or one that is none, is refused."""
        with pytest.raises(Refused) as refused:
            registry.ask("search", **args)
        assert refused.value.code == "bad-request"
