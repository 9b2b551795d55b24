"""Trees as graphs: each thing once, arrows from cause to effect, Mermaid and SVG that nothing in a name can break."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from forebay.cli.graph_svg import svg
from forebay.cli.graphs import Graph, graph_of, mermaid, table_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

SVG = "{http://www.w3.org/2000/svg}"


def node(name: str, *below: dict[str, Any], side: str = "parents", **more: Any) -> dict[str, Any]:
    kind = name.partition(":")[0]
    via = {"relation": "made-from", "event": f"e-{name}"}
    return {
        "id": name,
        "kind": kind,
        "title": f"{kind} {name.partition(':')[2]}",
        "via": via,
        side: list(below),
        **more,
    }


EPISODES = [node(f"episode:ep-{number}", state="accepted") for number in range(9)]
TREE = node(
    "model:reach@v1",
    node("checkpoint:ck-1", node("job:a-1", node("dataset:pick@v1", *EPISODES[:3]))),
    node("job:a-1", repeated=True),
    node("checkpoint:ck-2", placeholder=True),
)


def shapes(text: str, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(text).iter(f"{SVG}{tag}"))  # noqa: S314 our own text


class TestGraph:
    def test_each_thing_once(self) -> None:
        """What a tree repeats is one box with two arrows."""
        graph = graph_of(TREE, "parents")
        assert len(graph.boxes) == 8
        assert ("job:a-1", "model:reach@v1") in graph.arrows
        assert ("job:a-1", "checkpoint:ck-1") in graph.arrows

    def test_direction(self) -> None:
        """Arrows go from cause to effect, whichever way the tree was walked."""
        down = node("episode:e", node("dataset:d@v1", side="children"), side="children")
        assert list(graph_of(down, "children").arrows) == [("episode:e", "dataset:d@v1")]
        up = node("dataset:d@v1", node("episode:e"))
        assert list(graph_of(up, "parents").arrows) == [("episode:e", "dataset:d@v1")]

    def test_many_episodes_are_one_box(self) -> None:
        """Nine episodes become one box that counts them all, and says that one is not good."""
        episodes = [*EPISODES[:8], {**EPISODES[8], "state": "withdrawn"}]
        graph = graph_of(node("dataset:d@v1", *episodes, episodes={"read": 900}), "parents")
        (box,) = [box for box in graph.boxes.values() if box.kind == "episode"]
        assert (box.title, box.warn) == ("900 episodes", "1 of 9 listed are not good")

    def test_placeholder(self) -> None:
        """What no event has described is marked."""
        assert graph_of(TREE, "parents").boxes["checkpoint:ck-2"].warn == "no event has described it"


class TestMermaid:
    def test_form(self) -> None:
        """A line for each box and each arrow."""
        text = mermaid(graph_of(TREE, "parents"))
        assert text.startswith("flowchart TB\n")
        assert text.count("-->") == 8 - 1 + 1
        assert '|"made-from"|' in text

    @given(st.text(max_size=40))
    def test_no_name_breaks_it(self, name: str) -> None:
        """Quotes, brackets and pipes in a name stay inside their label."""
        graph = graph_of(node("model:x") | {"title": name}, "parents")
        line = mermaid(graph).split("\n  classDef")[0].removeprefix("flowchart TB\n")
        assert line.startswith('  n0["<b>model</b><br/>')
        assert line.endswith('"]')
        assert line.count('"') == 2


class TestSvg:
    def test_boxes_and_arrows(self) -> None:
        """Well-formed; a box for each thing, an arrow for each edge, effects below their causes."""
        graph = graph_of(TREE, "parents")
        text = svg(graph, "model:reach@v1")
        assert len(shapes(text, "g")) == len(graph.boxes)
        assert len(shapes(text, "path")) == len(graph.arrows) + 1
        tops = {g[0].text: float(g[1].attrib["y"]) for g in shapes(text, "g")}
        assert all(tops[first] < tops[second] for first, second in graph.arrows)

    def test_inside_and_apart(self) -> None:
        """No box leaves the picture, and no two boxes overlap."""
        many = node("model:m", *(node(f"checkpoint:{n}", node(f"job:{n % 3}")) for n in range(20)))
        text = svg(graph_of(many, "parents"), "m")
        root = ET.fromstring(text)  # noqa: S314 our own text
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        boxes = [
            tuple(float(g[1].attrib[side]) for side in ("x", "y", "width", "height")) for g in root.iter(f"{SVG}g")
        ]
        for index, (x, y, w, h) in enumerate(boxes):
            assert 0 <= x <= width - w
            assert 0 <= y <= height - h
            for a, b, c, d in boxes[index + 1 :]:
                assert x + w <= a or a + c <= x or y + h <= b or b + d <= y

    @settings(max_examples=30)
    @given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=15))
    def test_any_graph(self, pairs: list[tuple[int, int]]) -> None:
        """Circles and loops are drawn, too: a contradiction must not end the picture."""
        graph = graph_of(node("model:0"), "parents")
        for first, second in pairs:
            for number in (first, second):
                graph.boxes |= graph_of(node(f"model:{number}"), "parents").boxes
            graph.arrows[f"model:{first}", f"model:{second}"] = "made-from"
        assert len(shapes(svg(graph, "x"), "g")) == len(graph.boxes)

    @pytest.mark.parametrize("title", ["<script>alert(1)</script>", "a & b", 'q"uote', "x" * 500])
    def test_hostile_titles(self, title: str) -> None:
        """A title is text, never markup."""
        text = svg(graph_of(node("model:x") | {"title": title}, "parents"), title)
        assert not shapes(text, "script")

    def test_nothing(self) -> None:
        """An empty graph is an empty picture."""
        assert shapes(svg(Graph(), ""), "rect")


def test_table() -> None:
    """One line for each node of the tree, with its depth and the event that made the edge."""
    console = Console(width=200, record=True, file=None, quiet=True)
    table = table_of(TREE, "parents")
    console.print(table)
    assert table.row_count == 9
