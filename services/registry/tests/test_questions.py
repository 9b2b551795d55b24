"""Lineage up, impact down: exact to the episode, and honest about what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.body import FileRef
from forebay.contracts.v1.episodes import EpisodeWithdrawn
from forebay.registry.adapters.file_episode_lists import FileEpisodeLists
from forebay.registry.ports import ListUnavailableError
from forebay.runtime.errors import Refused

from services.registry.tests.histories import (
    Registry,
    committed,
    episode_id,
    leased,
    run,
    sha,
    started,
    submitted,
    tagged,
    trained,
    uploaded,
    write_list,
    written,
)

FIRST = f"episode:{episode_id(0)}"


@pytest.fixture
def registry() -> Registry:
    """Version 1 (episodes 0 to 2) made reach@v1, which is in production; version 2 (0 and 1) made reach@v2."""
    found = Registry()
    trained(found)
    found.command("model-register", model="reach", job="reach-1")
    found.command("model-evaluate", model="reach", metrics={"success": 0.9}, source="x")
    found.command("model-release", model="reach", channel="production")
    found.say(committed(2, found.lists.add([episode_id(0), episode_id(1)]), 2, parent=1), tagged(2))
    found.say(submitted("fine-1"), leased("fine-1", 2))
    run(found, "fine-1")
    found.command("model-register", model="reach", job="fine-1")
    return found


def nodes(tree: dict[str, Any], below: str = "parents") -> Iterator[dict[str, Any]]:
    yield tree
    for one in tree[below]:
        yield from nodes(one, below)


def ids(tree: dict[str, Any], kind: str, below: str = "parents") -> list[str]:
    return [one["id"] for one in nodes(tree, below) if one["kind"] == kind]


def test_a_kept_list_outlives_its_version(tmp_path: Path) -> None:
    """It is found by its digest; a damaged one is not believed, and the list beside the version still serves."""
    ref = write_list(tmp_path / "episodes.json", [episode_id(0), episode_id(1)])
    records = tmp_path / "records"
    records.mkdir()
    kept = records / f"{ref.sha256}.json"
    kept.write_bytes(b"x" * ref.bytes)
    assert len(FileEpisodeLists(records).read(ref).indices) == 2
    content = (tmp_path / "episodes.json").read_bytes()
    (tmp_path / "episodes.json").unlink()
    with pytest.raises(ListUnavailableError):
        FileEpisodeLists(records).read(ref)
    kept.write_bytes(content)
    assert len(FileEpisodeLists(records).read(ref).indices) == 2


class TestLineage:
    def test_to_the_episodes(self, registry: Registry) -> None:
        """A model's tree goes over checkpoint, attempt, the save it resumed from, job and version to each episode."""
        answer = registry.ask("lineage", id="reach@v1")
        tree = answer["tree"]
        assert answer["id"] == "model:reach@v1"
        assert set(ids(tree, "checkpoint")) == {
            f"checkpoint:{save.checkpoint}" for save in (written(300, 2), written(200))
        }
        assert set(ids(tree, "attempt")) == {"attempt:reach-1/1", "attempt:reach-1/2"}
        assert ids(tree, "dataset") == ["dataset:pick@v1"]
        assert ids(tree, "episode") == [f"episode:{episode_id(number)}" for number in range(3)]
        assert answer["complete"] is True
        assert answer["missing"] == []

    def test_an_episode_is_named_by_its_number_in_a_version(self, registry: Registry) -> None:
        """Versions by number or tag, with or without the kind; answers have both names."""
        for name in ("pick@v1/2", "dataset:pick@v1/2", "episode:pick@v1/2", episode_id(2)):
            assert registry.ask("lineage", id=name)["id"] == f"episode:{episode_id(2)}"
        assert registry.ask("impact", id="pick@train-ready/1")["id"] == f"episode:{episode_id(1)}"
        tree = registry.ask("lineage", id="reach@v1")["tree"]
        named = [one["name"] for one in nodes(tree) if one["kind"] == "episode"]
        assert named == ["pick@v1/0", "pick@v1/1", "pick@v1/2"]
        reached = registry.ask("impact", id="pick@v1/1")["tree"]
        assert {one["name"] for one in nodes(reached, "children") if one["kind"] == "dataset"} == {
            "pick@v1/1",
            "pick@v2/1",
        }
        for wrong, says in (("pick@v1/3", "has no episode 3; it has 3"), ("pick@v9/0", "pick@v9")):
            with pytest.raises(Refused, match=says):
                registry.ask("impact", id=wrong)

    def test_every_edge_names_its_event(self, registry: Registry) -> None:
        """Each node below the root says by which event and in which relation it is there."""
        tree = registry.ask("lineage", id="reach@v1")["tree"]
        known = {one.identity for one in registry.said}
        for node in list(nodes(tree))[1:]:
            assert node["via"]["event"] in known
            assert node["via"]["relation"]

    @pytest.mark.parametrize(
        ("written_as", "means"),
        [
            ("reach", "model:reach@v2"),
            ("reach@production", "release:reach@production/1"),
            ("model:reach@v1", "model:reach@v1"),
            ("pick@train-ready", "dataset:pick@v2"),
            ("pick", "dataset:pick@v2"),
            ("dataset:pick@v1", "dataset:pick@v1"),
            ("fine-1", "job:fine-1"),
            ("fine", "job:fine-1"),
            ("reach-1/2", "attempt:reach-1/2"),
            (episode_id(1), f"episode:{episode_id(1)}"),
            ("up-1", "upload:up-1"),
            (written(200).checkpoint, f"checkpoint:{written(200).checkpoint}"),
        ],
    )
    def test_names(self, registry: Registry, written_as: str, means: str) -> None:
        """Every way people name things leads to one node."""
        answer = registry.ask("lineage", id=written_as)
        assert answer["id"] == means

    def test_ambiguous(self, registry: Registry) -> None:
        """A name that two kinds share is refused with both, not guessed."""
        registry.say(committed(1, FileRef(uri="/l", sha256="1" * 64, bytes=1), 1, dataset="reach"))
        with pytest.raises(Refused) as caught:
            registry.ask("lineage", id="reach@v1")
        assert caught.value.details["candidates"] == ["model:reach@v1", "dataset:reach@v1"]

    @pytest.mark.parametrize(("text", "close"), [("raech", "reach"), ("pik@v1", "pick"), ("fine-2", "fine-1")])
    def test_close_matches(self, registry: Registry, text: str, close: str) -> None:
        """Unknown ids are answered with what they may have been."""
        with pytest.raises(Refused) as caught:
            registry.ask("lineage", id=text)
        assert caught.value.code == "unknown-id"
        assert close in caught.value.next_action

    def test_pinned_stays_pinned(self, registry: Registry) -> None:
        """A job that read version 1 is linked to version 1, however often the tag moved on."""
        assert ids(registry.ask("lineage", id="reach-1")["tree"], "dataset") == ["dataset:pick@v1"]

    def test_list_not_available(self, registry: Registry) -> None:
        """A list that cannot be read makes the answer incomplete, naming the version."""
        registry.lists.lists.clear()
        answer = registry.ask("lineage", id="reach@v1")
        assert answer["complete"] is False
        assert [one["id"] for one in answer["missing"]] == ["dataset:pick@v1"]

    def test_unknown_parent(self) -> None:
        """A parent that no event described is a placeholder, and the answer is incomplete."""
        registry = Registry()
        registry.say(written(100), started(1))
        answer = registry.ask("lineage", id=written(100).checkpoint)
        assert answer["complete"] is False
        (job,) = [one for one in nodes(answer["tree"]) if one["kind"] == "job"]
        assert job["placeholder"] is True
        assert registry.ask("lineage", id="reach-1")["tree"]["placeholder"] is True

    def test_no_pinned_version_is_unknown(self) -> None:
        """A job without a pinned version is UNKNOWN there, never 'latest'."""
        registry = Registry()
        registry.say(committed(1, registry.lists.add([]), 0), tagged(1), submitted())
        answer = registry.ask("lineage", id="reach-1")
        assert ids(answer["tree"], "dataset") == []
        assert "UNKNOWN" in answer["missing"][0]["reason"]

    def test_window(self) -> None:
        """A job that read part of a version reached only that part."""
        registry = Registry()
        trained(registry, episodes=10, window=(2, 4))
        tree = registry.ask("lineage", id="reach-1")["tree"]
        assert ids(tree, "episode") == [f"episode:{episode_id(2)}", f"episode:{episode_id(3)}"]
        (version,) = [one for one in nodes(tree) if one["kind"] == "dataset"]
        assert version["episodes"] == {"total": 10, "read": 2, "shown": 2, "after": None}

    def test_pages_of_episodes(self) -> None:
        """Many episodes come in pages; together they are all of them."""
        registry = Registry()
        trained(registry, episodes=25)
        seen: list[str] = []
        after: str | None = None
        while True:
            more = {} if after is None else {"episodes_after": after}
            tree = registry.ask("lineage", id="pick@v1", episodes=10, **more)["tree"]
            seen += ids(tree, "episode")
            after = tree["episodes"]["after"]
            if after is None:
                break
        assert seen == [f"episode:{episode_id(number)}" for number in range(25)]

    def test_depth(self, registry: Registry) -> None:
        """A tree that was cut says where."""
        answer = registry.ask("lineage", id="reach@v1", depth=1)
        assert answer["complete"] is False
        assert "depth 1" in answer["missing"][0]["reason"]

    def test_late_parent(self) -> None:
        """A parent that was heard of after its child is marked late."""
        registry = Registry()
        registry.say(written(100), started(1))
        (attempt,) = [
            one
            for one in nodes(registry.ask("lineage", id=written(100).checkpoint)["tree"])
            if one["kind"] == "attempt"
        ]
        assert attempt["via"]["late"] is True

    def test_other_projects(self, registry: Registry) -> None:
        """One project's names are unknown in another."""
        with pytest.raises(Refused):
            registry.ask("lineage", id="reach@v1", project="other-lab")


class TestImpact:
    def test_episode_to_release(self, registry: Registry) -> None:
        """An episode of both versions reaches both jobs and models, and what is live is named."""
        answer = registry.ask("impact", id=FIRST)
        assert {one["id"] for one in answer["reached"]["dataset"]} == {"dataset:pick@v1", "dataset:pick@v2"}
        assert {one["id"] for one in answer["reached"]["job"]} == {"job:reach-1", "job:fine-1"}
        assert {one["id"] for one in answer["reached"]["model"]} == {"model:reach@v1", "model:reach@v2"}
        assert answer["live"] == [{"model": "reach", "channel": "production", "number": 1}]
        assert answer["complete"] is True

    def test_exact_to_the_episode(self, registry: Registry) -> None:
        """An episode that version 2 left out reaches version 1 and its model only."""
        answer = registry.ask("impact", id=f"episode:{episode_id(2)}")
        assert [one["id"] for one in answer["reached"]["dataset"]] == ["dataset:pick@v1"]
        assert [one["id"] for one in answer["reached"]["model"]] == ["model:reach@v1"]

    def test_withdrawn_episode_in_a_live_model(self, registry: Registry) -> None:
        """A withdrawn episode still says which live models it is in."""
        registry.say(EpisodeWithdrawn(episode=episode_id(2), dataset="pick", reason="consent", by="owner"))
        answer = registry.ask("impact", id=episode_id(2))
        assert answer["node"]["state"] == "withdrawn"
        assert [one["number"] for one in answer["live"]] == [1]

    def test_window(self) -> None:
        """A job that did not read the episode's part is not reached."""
        registry = Registry()
        trained(registry, episodes=10, window=(2, 4))
        assert "job" not in registry.ask("impact", id=episode_id(7))["counts"]
        assert registry.ask("impact", id=episode_id(3))["counts"]["job"] == 1

    def test_list_not_available(self, registry: Registry) -> None:
        """Where a list cannot be read the version stays as possible, and the answer says it is incomplete."""
        registry.lists.lists.clear()
        answer = registry.ask("impact", id=FIRST)
        assert answer["complete"] is False
        assert all(one["possible"] for one in answer["reached"]["dataset"])

    def test_tree(self, registry: Registry) -> None:
        """The tree is drawn without saves that led nowhere, which are counted."""
        tree = registry.ask("impact", id="reach-1")["tree"]
        summary = [one["count"] for one in nodes(tree, "children") if one["kind"] == "summary"]
        assert summary == [1]
        assert ids(tree, "release", "children") == ["release:reach@production/1"] * 2

    def test_bounded(self, registry: Registry) -> None:
        """A walk that was cut says so."""
        answer = registry.ask("impact", id=FIRST, nodes=3)
        assert answer["complete"] is False

    def test_episode_nobody_used(self, registry: Registry) -> None:
        """An episode in no version reaches nothing, completely."""
        registry.say(uploaded(9))
        answer = registry.ask("impact", id=episode_id(9))
        assert (answer["counts"], answer["complete"]) == ({}, True)


class TestModels:
    def test_models_are_paged(self, registry: Registry) -> None:
        """Models come by name, page by page."""
        for name in ("a", "b", "c"):
            registry.command("model-register", model=name, job="reach-1")
        first = registry.ask("models", limit=2)
        rest = registry.ask("models", limit=2, after=first["after"])
        assert [one["model"] for one in first["models"] + rest["models"]] == ["a", "b", "c", "reach"]
        assert rest["after"] is None

    def test_one_model(self, registry: Registry) -> None:
        """A model shows its versions newest first, with evaluations and where channels point."""
        answer = registry.ask("model", model="reach")
        assert [one["number"] for one in answer["versions"]] == [2, 1]
        assert len(answer["versions"][1]["evaluations"]) == 1
        assert answer["channels"] == {"production": 1}

    def test_unknown_model(self, registry: Registry) -> None:
        """An unknown model is refused."""
        with pytest.raises(Refused):
            registry.ask("model", model="nothing")


class TestEpisodeListFiles:
    def test_read(self, tmp_path: Path) -> None:
        """The list of a version is read once and keeps its dense order."""
        ref = write_list(tmp_path / "episodes.json", ["ep-b", "ep-a"])
        lists = FileEpisodeLists()
        assert list(lists.read(ref).indices.items()) == [("ep-b", 0), ("ep-a", 1)]
        (tmp_path / "episodes.json").unlink()
        assert lists.read(ref).indices["ep-a"] == 1

    @pytest.mark.parametrize("how", ["gone", "changed", "longer", "no list", "remote"])
    def test_not_as_committed(self, tmp_path: Path, how: str) -> None:
        """Anything but the committed bytes is refused, never guessed at."""
        path = tmp_path / "episodes.json"
        ref = write_list(path, ["ep-a"])
        body = path.read_bytes()
        if how == "gone":
            path.unlink()
        elif how == "changed":
            path.write_bytes(body.replace(b"ep-a", b"ep-b"))
        elif how == "longer":
            path.write_bytes(body + b" ")
        elif how == "no list":
            path.write_bytes(b"[]")
            ref = FileRef(uri=str(path), sha256=sha("[]"), bytes=2)
        else:
            ref = FileRef(uri="s3://bucket/list", sha256=ref.sha256, bytes=ref.bytes)
        with pytest.raises(ListUnavailableError):
            FileEpisodeLists().read(ref)

    def test_bounded_memory(self, tmp_path: Path) -> None:
        """Old lists are let go."""
        lists = FileEpisodeLists(keep=3)
        for number in range(4):
            lists.read(write_list(tmp_path / f"{number}.json", [f"ep-{number}-{one}" for one in range(2)]))
        assert len(lists._lists) == 1

    def test_many_short_lists_are_held_to_the_limit_too(self, tmp_path: Path) -> None:
        """A list costs memory however few episodes it has."""
        lists = FileEpisodeLists(keep=20)
        for number in range(30):
            lists.read(write_list(tmp_path / f"{number}.json", [f"ep-{number}"] if number else []))
        assert len(lists._lists) == 5
