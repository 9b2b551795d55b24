"""A graph as one SVG file, drawn without any other program.

Layers from left to right: whatever was made of something stands right of it. Inside
a layer the order follows the neighbours' places, so that few arrows cross.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from textwrap import wrap

from forebay.cli.graphs import Box, Graph

_BOX_WIDTH, _LINE, _PAD = 216, 15, 9
_GAP_X, _GAP_Y, _MARGIN = 84, 20, 24
_LETTERS = 33
_MOST_LINES = 4
_ROUNDS = 6
_LABELS = 60
"""With more arrows than this, labels would only cover each other; they stay as tooltips."""


@dataclass(slots=True)
class _Place:
    """Where a box stands."""

    box: Box
    lines: list[str]
    layer: int = 0
    x: float = 0
    y: float = 0

    @property
    def height(self) -> int:
        return 2 * _PAD + _LINE * (1 + len(self.lines)) - 3


def svg(graph: Graph, title: str) -> str:
    """The whole picture."""
    places = {name: _Place(box, _text(box)) for name, box in graph.boxes.items()}
    _layers(graph, places)
    columns = _ordered(graph, places)
    width, height = _coordinates(graph, places, columns)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="ui-sans-serif, Helvetica, Arial, sans-serif">'
    )
    parts = [
        head,
        f"<title>{escape(title)}</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z" fill="#90a4ae"/></marker></defs>'
        ),
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_arrows(graph, places),
        *(_drawn(place) for place in places.values()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(box: Box) -> list[str]:
    lines = wrap(box.title, _LETTERS, break_long_words=True) or [""]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][: _LETTERS - 1] + "…"]
    return [*lines, *wrap(box.warn, _LETTERS)[:1]] if box.warn else lines


def _layers(graph: Graph, places: dict[str, _Place]) -> None:
    """The longest way from a source; an arrow that would close a circle is passed over."""
    after: dict[str, list[str]] = {name: [] for name in places}
    waits = dict.fromkeys(places, 0)
    for first, second in graph.arrows:
        after[first].append(second)
        waits[second] += 1
    ready = [name for name, count in waits.items() if count == 0]
    done: set[str] = set()
    while len(done) < len(places):
        if not ready:  # only circles are left
            ready = [min((name for name in places if name not in done), key=lambda name: waits[name])]
        name = ready.pop(0)
        if name in done:
            continue
        done.add(name)
        for following in after[name]:
            if following in done:
                continue
            places[following].layer = max(places[following].layer, places[name].layer + 1)
            waits[following] -= 1
            if waits[following] == 0:
                ready.append(following)
    _pull(after, places)


def _pull(after: dict[str, list[str]], places: dict[str, _Place]) -> None:
    """Sources move right, next to what they were used for."""
    targets = {following for several in after.values() for following in several}
    for name, following in after.items():
        if name not in targets and following:
            nearest = min(places[one].layer for one in following)
            places[name].layer = max(places[name].layer, nearest - 1)


def _ordered(graph: Graph, places: dict[str, _Place]) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(1 + max((place.layer for place in places.values()), default=0))]
    for name, place in places.items():
        columns[place.layer].append(name)
    near: dict[str, list[str]] = {name: [] for name in places}
    for first, second in graph.arrows:
        near[first].append(second)
        near[second].append(first)
    rank = {name: float(index) for column in columns for index, name in enumerate(column)}
    for turn in range(_ROUNDS):
        for column in columns if turn % 2 == 0 else columns[::-1]:
            mean = {
                name: sum(rank[other] for other in near[name]) / len(near[name]) if near[name] else rank[name]
                for name in column
            }
            column.sort(key=lambda name: mean[name])
            rank.update({name: float(index) for index, name in enumerate(column)})
    return columns


def _coordinates(graph: Graph, places: dict[str, _Place], columns: list[list[str]]) -> tuple[float, float]:
    heights = [sum(places[name].height + _GAP_Y for name in column) - _GAP_Y for column in columns]
    tallest = max(heights, default=0)
    for index, column in enumerate(columns):
        y = _MARGIN + (tallest - heights[index]) / 2
        for name in column:
            places[name].x = _MARGIN + index * (_BOX_WIDTH + _GAP_X)
            places[name].y = y
            y += places[name].height + _GAP_Y
    width = 2 * _MARGIN + len(columns) * _BOX_WIDTH + (len(columns) - 1) * _GAP_X
    low = max((place.y + place.height for place in places.values()), default=0)
    long = any(abs(places[second].layer - places[first].layer) > 1 for first, second in graph.arrows)
    return width, max(low, tallest) + _MARGIN + (_MARGIN if long else 0)


def _arrows(graph: Graph, places: dict[str, _Place]) -> list[str]:
    found: list[str] = []
    labelled = len(graph.arrows) <= _LABELS
    for (first, second), relation in graph.arrows.items():
        a, b = places[first], places[second]
        x1, y1 = a.x + _BOX_WIDTH, a.y + a.height / 2
        x2, y2 = b.x - 2, b.y + b.height / 2
        bend = max(36.0, abs(x2 - x1) * 0.4)
        path = f"M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        words = escape(f"{second} {relation} {first}")
        found.append(
            f'<path d="{path}" fill="none" stroke="#90a4ae" stroke-width="1.3" marker-end="url(#tip)">'
            f"<title>{words}</title></path>"
        )
        if labelled and relation:
            x, y = x2 - _GAP_X / 2 + 6, (y1 + y2) / 2 if b.layer - a.layer == 1 else y2
            found.append(
                f'<text x="{x:.1f}" y="{y - 4:.1f}" font-size="9" fill="#607d8b" text-anchor="middle"'
                f' stroke="#ffffff" stroke-width="3" paint-order="stroke">{escape(relation)}</text>'
            )
    return found


def _drawn(place: _Place) -> str:
    fill, border = place.box.colours
    x, y = place.x, place.y
    parts = [
        (
            f'<g><title>{escape(place.box.id)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{_BOX_WIDTH}"'
            f' height="{place.height}" rx="6" fill="{fill}" stroke="{border}" stroke-width="1.4"/>'
        ),
        (
            f'<text x="{x + _PAD:.1f}" y="{y + _PAD + 10:.1f}" font-size="11" font-weight="700" fill="{border}">'
            f"{escape(place.box.kind or 'more')}</text>"
        ),
    ]
    last = len(place.lines) - 1
    for index, line in enumerate(place.lines):
        colour = "#c62828" if place.box.warn and index == last else "#263238"
        at = y + _PAD + 10 + _LINE * (index + 1)
        parts.append(f'<text x="{x + _PAD:.1f}" y="{at:.1f}" font-size="11" fill="{colour}">{escape(line)}</text>')
    return "".join(parts) + "</g>"
