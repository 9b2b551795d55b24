"""A graph as one SVG file, drawn without any other program.

Rows from top to bottom: whatever was made of something stands below it. An arrow
over several rows gets a place of its own in each, so that it passes between boxes;
the order inside a row follows the neighbours' places, so that few arrows cross.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import wrap

from forebay.cli.graphs import Box, Graph
from forebay.runtime.escaping import shortened, visible, xml_text

_BOX_WIDTH, _LINE, _PAD = 222, 15, 9
_GAP_X, _GAP_Y, _MARGIN = 18, 46, 20
_THREAD = 14
"""Width that a passing arrow takes in a row."""
_LETTERS = 31
_MOST_LINES = 4
_LONGEST = 500
_ROUNDS = 8
_LABELS = 80
"""With more arrows than this, labels would only cover each other; they stay as tooltips."""
_ID = re.compile(r"\b(ck|ep|ev|up|ct)-([0-9a-f]{8})[0-9a-f]{10,}")


@dataclass(slots=True)
class _Place:
    """Where a box stands, or where an arrow passes (no box)."""

    box: Box | None
    lines: list[str] = field(default_factory=list)
    row: int = 0
    x: float = 0
    y: float = 0
    tall: int = 0
    """Of a passing arrow: the height of its row."""

    @property
    def width(self) -> int:
        return _THREAD if self.box is None else _BOX_WIDTH

    @property
    def height(self) -> int:
        return self.tall if self.box is None else 2 * _PAD + _LINE * (1 + len(self.lines)) - 3

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def svg(graph: Graph, title: str) -> str:
    """The whole picture."""
    places = {name: _Place(box, _text(box)) for name, box in graph.boxes.items()}
    _rank(graph, places)
    ways = _ways(graph, places)
    rows = _ordered(ways, places)
    width, height = _coordinates(places, rows, ways)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
            f' viewBox="0 0 {width:.0f} {height:.0f}"'
            ' font-family="Helvetica, Arial, DejaVu Sans, Liberation Sans, sans-serif">'
        ),
        f"<title>{_escaped(title)}</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            ' orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#90a4ae"/></marker></defs>'
        ),
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_arrows(graph, ways, places),
        *(_drawn(place, place.box) for place in places.values() if place.box is not None),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _escaped(text: str, limit: int = _LONGEST) -> str:
    return xml_text(shortened(text, limit))


def _text(box: Box) -> list[str]:
    lines = wrap(_ID.sub(r"\1-\2…", visible(box.title)), _LETTERS, break_long_words=True) or [""]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][: _LETTERS - 1] + "…"]
    return [*lines, *wrap(visible(box.warn), _LETTERS)[:1]] if box.warn else lines


def _rank(graph: Graph, places: dict[str, _Place]) -> None:
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
            if following not in done:
                places[following].row = max(places[following].row, places[name].row + 1)
                waits[following] -= 1
                if waits[following] == 0:
                    ready.append(following)
    targets = {following for several in after.values() for following in several}
    for name, several in after.items():  # sources stand next to what they were used for
        if name not in targets and several:
            places[name].row = max(places[name].row, min(places[one].row for one in several) - 1)


def _ways(graph: Graph, places: dict[str, _Place]) -> dict[tuple[str, str], list[str]]:
    """Each arrow as the places it goes through, with a thread in every row between."""
    ways: dict[tuple[str, str], list[str]] = {}
    for first, second in graph.arrows:
        way = [first]
        for row in range(places[first].row + 1, places[second].row):
            name = f"{first}>>{second}>>{row}"
            places[name] = _Place(None, row=row)
            way.append(name)
        ways[first, second] = [*way, second]
    return ways


def _ordered(ways: dict[tuple[str, str], list[str]], places: dict[str, _Place]) -> list[list[str]]:
    rows: list[list[str]] = [[] for _ in range(1 + max((place.row for place in places.values()), default=0))]
    for name, place in places.items():
        rows[place.row].append(name)
    near: dict[str, list[str]] = {name: [] for name in places}
    for way in ways.values():
        for one, other in pairwise(way):
            near[one].append(other)
            near[other].append(one)
    rank = {name: (index + 0.5) / len(row) for row in rows for index, name in enumerate(row)}
    for turn in range(_ROUNDS):
        for row in rows if turn % 2 == 0 else rows[::-1]:
            mean = {name: _mean([rank[other] for other in near[name]], rank[name]) for name in row}
            row.sort(key=lambda name: mean[name])
            rank.update({name: (index + 0.5) / len(row) for index, name in enumerate(row)})
    return rows


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _coordinates(
    places: dict[str, _Place], rows: list[list[str]], ways: dict[tuple[str, str], list[str]]
) -> tuple[float, float]:
    widths = [sum(places[name].width + _GAP_X for name in row) - _GAP_X for row in rows]
    widest, y = max(widths, default=0), float(_MARGIN)
    for row, width in zip(rows, widths, strict=True):
        x = _MARGIN + (widest - width) / 2
        tallest = max((places[name].height for name in row), default=0)
        for name in row:
            place = places[name]
            place.tall = tallest
            place.x, place.y = x, y + (tallest - place.height) / 2
            x += place.width + _GAP_X
        y += tallest + _GAP_Y
    backwards = any(places[second].row <= places[first].row for first, second in ways)
    return widest + 2 * _MARGIN + (_GAP_Y if backwards else 0), y - _GAP_Y + _MARGIN


def _arrows(graph: Graph, ways: dict[tuple[str, str], list[str]], places: dict[str, _Place]) -> list[str]:
    lines: list[str] = []
    labels: list[str] = []
    leaves, arrives = _ports(ways, places, out=True), _ports(ways, places, out=False)
    for (first, second), relation in graph.arrows.items():
        stops = [places[name] for name in ways[first, second]]
        x = arrives[first, second]
        words = _escaped(f"{second} {relation} {first}")
        lines.append(
            f'<path d="{_path(stops, leaves[first, second], x)}" fill="none" stroke="#90a4ae" stroke-width="1.3"'
            f' marker-end="url(#tip)"><title>{words}</title></path>'
        )
        if relation and len(graph.arrows) <= _LABELS:
            labels.append(
                f'<text x="{x:.1f}" y="{stops[-1].y - 10:.1f}" font-size="9" fill="#546e7a" text-anchor="middle"'
                f' stroke="#ffffff" stroke-width="3" paint-order="stroke">{_escaped(relation, _LETTERS)}</text>'
            )
    return lines + labels


def _ports(
    ways: dict[tuple[str, str], list[str]], places: dict[str, _Place], *, out: bool
) -> dict[tuple[str, str], float]:
    """Where on its box each arrow leaves or arrives: side by side, in the order of what is at its other end."""
    by_box: dict[str, list[tuple[str, str]]] = {}
    for arrow in ways:
        by_box.setdefault(arrow[0 if out else 1], []).append(arrow)
    found: dict[tuple[str, str], float] = {}
    for name, arrows in by_box.items():
        arrows.sort(key=lambda arrow: places[ways[arrow][1 if out else -2]].middle)
        step = min(62.0, (_BOX_WIDTH - 2 * _PAD) / len(arrows))
        for index, arrow in enumerate(arrows):
            found[arrow] = places[name].middle + (index - (len(arrows) - 1) / 2) * step
    return found


def _path(stops: list[_Place], start: float, goal: float) -> str:
    x, y = start, stops[0].y + stops[0].height
    parts = [f"M{x:.1f} {y:.1f}"]
    for stop in stops[1:]:
        to, end = (goal, stop.y - 2) if stop.box is not None else (stop.middle, stop.y)
        bend = max(20.0, abs(end - y) * 0.5)
        parts.append(f"C{x:.1f} {y + bend:.1f} {to:.1f} {end - bend:.1f} {to:.1f} {end:.1f}")
        x, y = to, end
        if stop.box is None:
            y += stop.height
            parts.append(f"L{x:.1f} {y:.1f}")
    return " ".join(parts)


def _drawn(place: _Place, box: Box) -> str:
    fill, border = box.colours
    x, y = place.x, place.y
    parts = [
        (
            f'<g><title>{_escaped(box.id)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{_BOX_WIDTH}"'
            f' height="{place.height}" rx="6" fill="{fill}" stroke="{border}" stroke-width="1.4"/>'
        ),
        (
            f'<text x="{x + _PAD:.1f}" y="{y + _PAD + 10:.1f}" font-size="11" font-weight="700" fill="{border}">'
            f"{_escaped(box.kind or 'more', _LETTERS)}</text>"
        ),
    ]
    last = len(place.lines) - 1
    for index, line in enumerate(place.lines):
        colour = "#c62828" if box.warn and index == last else "#263238"
        at = y + _PAD + 10 + _LINE * (index + 1)
        parts.append(f'<text x="{x + _PAD:.1f}" y="{at:.1f}" font-size="11" fill="{colour}">{_escaped(line)}</text>')
    return "".join(parts) + "</g>"
