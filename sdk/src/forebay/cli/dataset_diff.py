"""`forebay dataset diff`: what changed from one version to another, as a table, as JSON and as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, plain_table, print_json, size
from forebay.cli.place import find_place
from forebay.runtime.escaping import xml_text

DIFF_EXAMPLE = "Example: forebay dataset diff reach@v3 reach@v4 --html diff.html"
_SHOWN = 12
_COUNTERS = frozenset({"index", "episode_index", "frame_index", "task_index"})
"""Numbers of rows, not of the robot: they differ because versions count anew."""
_MOVED = 0.1
"""Standard deviations that a mean may move before it is worth a line."""


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="For example reach@v3.")],
    after: Annotated[str, typer.Argument(metavar="B", help="For example reach@train-ready.")],
    *,
    page: Annotated[Path | None, typer.Option("--html", help="Write a page that stands alone.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show which episodes came and went between two versions, and how tasks, frame rate and statistics moved."""
    place = find_place(project)
    found = place.ask("ingest", "diff", {"a": before, "b": after})
    result = {**found, **compare_content(found["a"]["root"], found["b"]["root"])}
    if page is not None:
        page.write_text(as_page(result), encoding="utf-8")
    if as_json:
        print_json(result)
        return
    _show(result)
    if page is not None:
        console().print(f"written: {escape(str(page))}")


def compare_content(before: str, after: str) -> dict[str, Any]:
    """Frame rate, features and statistics of two roots, as far as they can be read from here."""
    infos = [_document(root, "info.json") for root in (before, after)]
    stats = [_document(root, "stats.json") for root in (before, after)]
    unread = [root for root, info in zip((before, after), infos, strict=True) if info is None]
    features = [sorted(info.get("features", {})) if info else [] for info in infos]
    return {
        "fps": [info.get("fps") if info else None for info in infos],
        "features_in": sorted(set(features[1]) - set(features[0])) if not unread else [],
        "features_out": sorted(set(features[0]) - set(features[1])) if not unread else [],
        "statistics": [] if stats[0] is None or stats[1] is None else _moved(stats[0], stats[1]),
        "not_readable_here": unread,
    }


def _document(root: str, name: str) -> dict[str, Any] | None:
    parts = urlsplit(root)
    if parts.scheme not in {"", "file"}:
        return None
    folder = Path(unquote(parts.path)) if parts.scheme else Path(root)
    try:
        found = json.loads((folder / "meta" / name).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _moved(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """One line per feature: the largest move of a mean, in standard deviations of before, and the ranges."""
    lines = []
    for feature in sorted((before.keys() & after.keys()) - _COUNTERS):
        left, right = before[feature], after[feature]
        try:
            rows = list(
                zip(
                    *(_flat(side[name]) for side in (left, right) for name in ("mean", "std", "min", "max")),
                    strict=True,
                )
            )
        except (KeyError, TypeError, ValueError):
            continue
        if not rows:
            continue
        shifts = [abs(b[0] - a[0]) / a[1] if a[1] > 0 else float(b[0] != a[0]) for a, b in _halves(rows)]
        worst = max(range(len(shifts)), key=shifts.__getitem__)
        lines.append(
            {
                "feature": feature,
                "moved_std": round(shifts[worst], 4),
                "dimension": worst,
                "mean": [rows[worst][0], rows[worst][4]],
                "std": [rows[worst][1], rows[worst][5]],
                "min": [min(row[2] for row in rows), min(row[6] for row in rows)],
                "max": [max(row[3] for row in rows), max(row[7] for row in rows)],
            }
        )
    return sorted(lines, key=lambda line: -float(line["moved_std"]))


def _halves(rows: list[tuple[float, ...]]) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    return [(row[:4], row[4:]) for row in rows]


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [number for part in value for number in _flat(part)]
    return [float(value)]


def _label(version: dict[str, Any]) -> str:
    return f"{version['dataset']}@v{version['number']}"


def _totals(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    before, after = result["a"], result["b"]
    return [
        ("episodes", str(before["episodes"]), str(after["episodes"])),
        ("frames", f"{before['frames']:,}", f"{after['frames']:,}"),
        ("size", size(before["bytes"]), size(after["bytes"])),
        ("fps", str(result["fps"][0]), str(result["fps"][1])),
        ("tasks", str(len(result["tasks"][0])), str(len(result["tasks"][1]))),
    ]


def _changes(result: dict[str, Any]) -> list[str]:
    """What is worth a sentence."""
    lines = [f"{result['kept']} episodes are in both"]
    for sign, key in (("in", "episodes_in"), ("out", "episodes_out")):
        there = result[key]
        shown = ", ".join(
            f"{one['episode']} ({one['length']} frames{', withdrawn' if one['withdrawn'] else ''})"
            for one in there[:_SHOWN]
        )
        more = result[f"{key}_total"] - len(there[:_SHOWN])
        lines.append(
            f"{result[f'{key}_total']} {sign}"
            + (f": {shown}" if shown else "")
            + (f" … and {more} more" if more else "")
        )
    for sign, key in (
        ("new task", "tasks_in"),
        ("no more", "tasks_out"),
        ("new feature", "features_in"),
        ("feature gone", "features_out"),
    ):
        lines += [f"{sign}: {name}" for name in result[key]]
    lines += [f"statistics cannot be read from here: {root}" for root in result["not_readable_here"]]
    return lines


def _statistics(result: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            line["feature"],
            f"{line['moved_std']:.2f} sd",
            str(line["dimension"]),
            f"{line['mean'][0]:.4g} → {line['mean'][1]:.4g}",
            f"{line['std'][0]:.4g} → {line['std'][1]:.4g}",
            f"[{line['min'][0]:.4g}, {line['max'][0]:.4g}] → [{line['min'][1]:.4g}, {line['max'][1]:.4g}]",
        )
        for line in result["statistics"]
    ]


_STATISTICS = ("feature", "mean moved by", "dimension", "mean", "deviation", "range")


def _show(result: dict[str, Any]) -> None:
    out = console()
    table = plain_table("", escape(_label(result["a"])), escape(_label(result["b"])))
    for name, left, right in _totals(result):
        table.add_row(name, left, f"[yellow]{right}[/]" if left != right else right)
    out.print(table)
    for line in _changes(result):
        out.print(f"  {escape(line)}")
    lines = _statistics(result)
    if lines:
        moved = plain_table(*_STATISTICS)
        for cells_of, raw in zip(lines[:_SHOWN], result["statistics"], strict=False):
            cells = [escape(cell) for cell in cells_of]
            cells[1] = f"[yellow]{cells[1]}[/]" if raw["moved_std"] > _MOVED else cells[1]
            moved.add_row(*cells)
        out.print(moved)


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .8rem;text-align:left;border-bottom:1px solid #d8dee4}"
    ".moved{background:#fff4d6}.bar{display:inline-block;height:.7em;background:#4878a8;vertical-align:middle;margin-right:.5em}"
)


def as_page(result: dict[str, Any]) -> str:
    """A page that needs nothing but itself."""
    title = f"{_label(result['a'])} → {_label(result['b'])}"
    rows = "".join(
        f"<tr{' class=moved' if left != right else ''}><th>{name}</th><td>{_text(left)}</td><td>{_text(right)}</td></tr>"
        for name, left, right in _totals(result)
    )
    changes = "".join(f"<li>{_text(line)}</li>" for line in _changes(result))
    names = sorted({*result["tasks"][0], *result["tasks"][1]})
    tasks = "".join(
        f"<tr><td>{_text(name)}</td><td>{result['tasks'][0].get(name, 0)}</td><td>{result['tasks'][1].get(name, 0)}</td></tr>"
        for name in names
    )
    moved = "".join(
        f"<tr{' class=moved' if raw['moved_std'] > _MOVED else ''}><td>{_text(line[0])}</td>"
        f'<td><span class=bar style="width:{min(raw["moved_std"], 3.0) * 40:.0f}px"></span>{_text(line[1])}</td>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in line[2:])
        + "</tr>"
        for line, raw in zip(_statistics(result), result["statistics"], strict=True)
    )
    heads = "".join(f"<th>{name}</th>" for name in _STATISTICS)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_text(title)}</title><style>{_STYLE}</style>"
        f"<h1>{_text(title)}</h1><table><tr><th></th><th>A</th><th>B</th></tr>{rows}</table><ul>{changes}</ul>"
        f"<h2>Episodes per task</h2><table><tr><th>task</th><th>A</th><th>B</th></tr>{tasks}</table>"
        f"<h2>Statistics</h2><table><tr>{heads}</tr>{moved}</table></html>\n"
    )


def _text(value: Any) -> str:
    return xml_text(str(value))
