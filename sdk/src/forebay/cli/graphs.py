"""The registry's trees as a graph, and as text that other tools draw: tables and Mermaid.

A tree repeats what is reached twice; a graph has each thing once. Long runs of
episodes become one node, because a picture of a thousand boxes shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

from forebay.cli.output import plain_table
from forebay.runtime.escaping import mermaid_text, shortened

EPISODES_DRAWN = 6
STYLES = {
    "episode": ("#e8f5e9", "#2e7d32"),
    "upload": ("#e0f7fa", "#00838f"),
    "dataset": ("#e0f2f1", "#00695c"),
    "job": ("#fff8e1", "#f9a825"),
    "attempt": ("#fff3e0", "#ef6c00"),
    "checkpoint": ("#e3f2fd", "#1565c0"),
    "model": ("#f3e5f5", "#7b1fa2"),
    "evaluation": ("#fafafa", "#616161"),
    "release": ("#fce4ec", "#c2185b"),
}
"""Fill and border of each kind."""
UNKNOWN = ("#ffebee", "#c62828")
_PLAIN = ("#f5f5f5", "#757575")
_LONGEST_LABEL = 300


@dataclass(slots=True)
class Box:
    """One thing in the picture."""

    id: str
    kind: str
    title: str
    warn: str = ""
    """What is wrong or not known about it; drawn in red."""

    @property
    def colours(self) -> tuple[str, str]:
        return UNKNOWN if self.warn else STYLES.get(self.kind, _PLAIN)


@dataclass(slots=True)
class Graph:
    """Boxes in the order they were met, and arrows from what came first to what was made of it."""

    boxes: dict[str, Box] = field(default_factory=dict)
    arrows: dict[tuple[str, str], str] = field(default_factory=dict)
    """(from, to) -> relation."""


def graph_of(tree: Mapping[str, Any], below: str) -> Graph:
    """The graph of an answer's tree; `below` is `parents` (lineage) or `children` (impact)."""
    graph = Graph()
    waiting: list[tuple[Mapping[str, Any], str | None]] = [(tree, None)]
    while waiting:
        node, above = waiting.pop(0)
        _add(graph, node)
        if above is not None:
            _arrow(graph, str(node["id"]), above, node, upwards=below == "parents")
        near = list(node.get(below) or ())
        episodes = [one for one in near if one.get("kind") == "episode"]
        if len(episodes) > EPISODES_DRAWN:
            near = [one for one in near if one.get("kind") != "episode"]
            near.append(_bundle(node, episodes))
        waiting += [(one, str(node["id"])) for one in near]
    return graph


def _add(graph: Graph, node: Mapping[str, Any]) -> None:
    name = str(node["id"])
    if name in graph.boxes and node.get("repeated"):
        return
    kind = str(node.get("kind", ""))
    title = str(node.get("title") or name).removeprefix(f"{kind} ")
    graph.boxes[name] = Box(name, kind, title, _warning(node))


def _warning(node: Mapping[str, Any]) -> str:
    if node.get("warn"):
        return str(node["warn"])
    if node.get("placeholder"):
        return "no event has described it"
    if node.get("contested"):
        return f"contested: {', '.join(node['contested'])}"
    if node.get("state") in {"withdrawn", "corrupt", "missing", "removed", "rejected"}:
        return str(node["state"])
    return "possibly" if node.get("possible") else ""


def _arrow(graph: Graph, here: str, above: str, node: Mapping[str, Any], *, upwards: bool) -> None:
    relation = str((node.get("via") or {}).get("relation", ""))
    pair = (here, above) if upwards else (above, here)
    graph.arrows.setdefault(pair, relation)


def _bundle(node: Mapping[str, Any], episodes: list[Mapping[str, Any]]) -> dict[str, Any]:
    """One box for many episodes; those that are not as they should be are counted."""
    paging = node.get("episodes") or {}
    total = paging.get("read") or len(episodes)
    bad = sum(1 for one in episodes if _warning(one))
    warn = f"{bad} of {len(episodes)} listed are not good" if bad else ""
    via = episodes[0].get("via")
    return {"id": f"{node['id']}>episodes", "kind": "episode", "title": f"{total} episodes", "via": via, "warn": warn}


def mermaid(graph: Graph) -> str:
    """A Mermaid flowchart, top to bottom."""
    names = {name: f"n{index}" for index, name in enumerate(graph.boxes)}
    styles = {name: _style(box) for name, box in graph.boxes.items()}
    lines = ["flowchart TB"]
    for name, box in graph.boxes.items():
        warn = f"<br/>{_quoted(box.warn)}" if box.warn else ""
        lines.append(f'  {names[name]}["<b>{_quoted(box.kind)}</b><br/>{_quoted(box.title)}{warn}"]')
    for (first, second), relation in graph.arrows.items():
        label = f'|"{_quoted(relation)}"|' if relation else ""
        lines.append(f"  {names[first]} -->{label} {names[second]}")
    for style in sorted(set(styles.values())):
        fill, border = UNKNOWN if style == "warn" else STYLES.get(style, _PLAIN)
        members = [names[name] for name in graph.boxes if styles[name] == style]
        lines.append(f"  classDef {style} fill:{fill},stroke:{border},color:#212121")
        lines.append(f"  class {','.join(members)} {style}")
    return "\n".join(lines) + "\n"


def _style(box: Box) -> str:
    return "warn" if box.warn else box.kind if box.kind in STYLES else "other"


def _quoted(text: str) -> str:
    return mermaid_text(shortened(text, _LONGEST_LABEL))


def table_of(tree: Mapping[str, Any], below: str) -> Table:
    """One line for each thing: how deep, what, its state, how it is connected."""
    table = plain_table("depth", "kind", "id", "state", "relation", "event")
    for depth, node in _lines(tree, below):
        via = node.get("via") or {}
        kind = str(node.get("kind", ""))
        cells = (
            str(depth),
            kind,
            str(node["id"]).removeprefix(f"{kind}:"),
            _warning(node) or str(node.get("state") or "-"),
            str(via.get("relation") or "-"),
            str(via.get("event") or "-"),
        )
        table.add_row(*(escape(cell) for cell in cells))
    return table


def _lines(tree: Mapping[str, Any], below: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    waiting = [(0, tree)]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting += [(depth + 1, one) for one in reversed(node.get(below) or ())]
