"""One self-contained HTML file about one dataset: the verdict, every finding, and what people would rather look at.

Names and texts come from outside and are hostile until escaped; `text` does that, and
nothing else reaches the page. No script, nothing from the network.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay.ingest.adapters.html_plots import Span, curves_svg, text, windows_svg
from forebay.ingest.adapters.html_style import STYLE
from forebay.ingest.adapters.plot_data import Curves
from forebay.ingest.domain.breach import REPORT_TEXT, Breach, listed
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.domain.report import Report
from forebay.ingest.domain.rule import Rule

_MOST_SAID = 20
_MOST_ROWS = 500
_MOST_FILES = 24
_WORDS = {
    "accept": "every episode may enter a dataset version",
    "accept_with_warning": "every episode may enter a dataset version; read the warnings",
    "hold": "a person has to look before it may be used",
    "reject": "it may not be used as it is; the accepted episodes are good",
    "incomplete": "files are missing in our copy; the source may still have them",
    "empty": "0 episodes recorded yet",
    "truncated": "files were cut off and nothing usable is left; upload them again",
    "partial": "the good episodes go on, the bad ones stay where they are",
}
_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One frame of a camera."""

    episode: int
    camera: str
    frame: int
    jpeg: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was taken out of the files for looking at."""

    shots: Sequence[Shot] = ()
    curves: Sequence[Curves] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Length of every decoded video file."""


def render(name: str, report: Report, info: Info | None, episodes: Sequence[Episode], sight: Sight) -> str:
    """The whole page."""
    parts = [
        _head(name, report, info),
        _findings(report, sight),
        _traces(report, sight),
        _windows(report, info, episodes, sight),
        _pictures(report, sight),
        _table(report, info),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_CSP)}">'
        f"<title>{text(report.outcome)}: {text(name)}</title><style>{STYLE}</style></head><body><main>"
        + "".join(parts)
        + "<footer>Written by forebay validate. Everything was judged from what is stored: rows were counted, every"
        " video frame was decoded.</footer></main></body></html>\n"
    )


def _head(name: str, report: Report, info: Info | None) -> str:
    counts = report.to_json()["counts"]
    tiles: list[tuple[str, str]] = [
        (f"{counts['episodes']:,}", "episodes"),
        (f"{counts['accepted']:,}", "accepted"),
        (f"{counts['held']:,}", "held"),
        (f"{counts['rejected']:,}", "rejected"),
        (f"{counts['frames']:,}", "frames"),
    ]
    if info is not None:
        tiles += [(_duration(counts["frames"] / info.fps), "recorded"), (f"{info.fps:g}", "fps")]
        tiles += [(str(len(info.cameras)), "camera" if len(info.cameras) == 1 else "cameras")]
    tiles += [(_size(counts["bytes"]), f"in {counts['files']:,} files")]
    robot = f", robot {text(info.robot)}" if info is not None and info.robot else ""
    boxes = "".join(f'<div class="tile"><b>{text(value)}</b><span>{text(label)}</span></div>' for value, label in tiles)
    return (
        f'<h1>{text(name)}</h1><p class="soft">{text(report.format)}{robot}</p>'
        f'<div class="verdict"><span class="badge {text(report.outcome)}">{text(report.outcome.replace("_", " "))}</span>'
        f"<span>{text(_WORDS[report.outcome] if counts['accepted'] else _WORDS[report.outcome].partition(';')[0])}</span></div>"
        f'<div class="tiles">{boxes}</div>'
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if seconds < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _findings(report: Report, sight: Sight) -> str:
    groups: dict[tuple[Rule, str], list[Breach]] = {}
    for breach in report.breaches:
        groups.setdefault((breach.rule, breach.severity), []).append(breach)
    if not groups:
        return "<h2>Findings</h2><p>None.</p>"
    shown: set[tuple[int, str]] = set()
    cards = "".join(_card(rule, severity, breaches, sight, shown) for (rule, severity), breaches in groups.items())
    return f"<h2>Findings</h2>{cards}"


def _card(rule: Rule, severity: str, breaches: list[Breach], sight: Sight, shown: set[tuple[int, str]]) -> str:
    """One rule. Pictures that an earlier card has shown (`shown`) are not repeated."""
    said = "".join(_said(breach) for breach in breaches[:_MOST_SAID])
    more = (
        f'<p class="soft">and {len(breaches) - _MOST_SAID} more of this rule; --json has all</p>'
        if len(breaches) > _MOST_SAID
        else ""
    )
    hit = {(index, breach.feature) for breach in breaches for index in breach.episodes or ()}
    shots = [shot for shot in sight.shots if (shot.episode, shot.camera) in hit - shown] if "VIDEO" in rule.id else []
    shots = shots[:12]
    shown.update((shot.episode, shot.camera) for shot in shots)
    advice = "<br>".join(text(one, REPORT_TEXT) for one in dict.fromkeys(breach.what_to_do for breach in breaches))
    return (
        f'<section class="card {text(severity)}"><div class="head"><span class="badge">{text(severity)}</span>'
        f'<h3>{text(rule.title)}</h3><span class="id soft">{text(rule.id)}</span></div>'
        f'<ul class="what">{said}</ul>{more}{_strip(shots)}'
        f"<dl><dt>Question</dt><dd>{text(rule.question, REPORT_TEXT)}</dd><dt>Why</dt><dd>{text(rule.why, REPORT_TEXT)}</dd>"
        f"<dt>What to do</dt><dd>{advice}</dd></dl></section>"
    )


def _said(breach: Breach) -> str:
    where = [f"expected {breach.expected}, found {breach.found}"] if breach.expected and breach.found else []
    where += [breach.file] if breach.file else []
    return f"<li>{text(breach.message, REPORT_TEXT)}<small>{text(' · '.join(where), REPORT_TEXT)}</small></li>"


def _strip(shots: Sequence[Shot]) -> str:
    figures = "".join(
        f'<figure><img alt="{text(shot.camera)}, episode {shot.episode}, frame {shot.frame}"'
        f' src="data:image/jpeg;base64,{base64.b64encode(shot.jpeg).decode("ascii")}">'
        f"<figcaption>episode {shot.episode}, frame {shot.frame}<br>{text(shot.camera.removeprefix('observation.images.'))}</figcaption></figure>"
        for shot in shots
    )
    return f'<div class="strip">{figures}</div>' if figures else ""


def _traces(report: Report, sight: Sight) -> str:
    bad: dict[tuple[int, str], set[int]] = {}
    everywhere: dict[int, set[int]] = {}
    for breach in report.breaches:
        if breach.frame is None or breach.severity not in {"error", "hold"} or breach.rule.id.startswith("LR-VIDEO"):
            continue
        for index in breach.episodes or ():
            bad.setdefault((index, breach.feature or ""), set()).add(breach.frame)
            if breach.feature in {"timestamp", "frame_index", "index"}:
                everywhere.setdefault(index, set()).add(breach.frame)
    plots = "".join(
        f'<div class="trace"><h3>Episode {curves.episode}, {text(curves.feature)}</h3>'
        + curves_svg(
            curves, sorted(bad.get((curves.episode, curves.feature), set()) | everywhere.get(curves.episode, set()))
        )
        + "</div>"
        for curves in sight.curves
    )
    return f'<h2>Signals</h2><div class="pair">{plots}</div>' if plots else ""


def _windows(report: Report, info: Info | None, episodes: Sequence[Episode], sight: Sight) -> str:
    if info is None or not info.cameras:
        return ""
    outcomes = {line.index: line.outcome for line in report.episodes}
    blocks: list[str] = []
    for camera in info.cameras:
        files: dict[str, list[Span]] = {}
        for episode in episodes:
            for window in episode.windows:
                if window.camera == camera.key:
                    outcome = outcomes.get(episode.index, "accept")
                    span = Span(episode=episode.index, start=window.start, stop=window.stop, outcome=outcome)
                    files.setdefault(window.file, []).append(span)
        ordered = sorted(files.items(), key=lambda item: (all(s.outcome == "accept" for s in item[1]), item[0]))
        drawn = "".join(
            f"<p><code>{text(name)}</code></p>{windows_svg(spans, sight.seconds[name])}"
            for name, spans in ordered[:_MOST_FILES]
            if name in sight.seconds
        )
        more = f'<p class="soft">and {len(ordered) - _MOST_FILES} more files</p>' if len(ordered) > _MOST_FILES else ""
        blocks.append(
            f'<div class="trace"><h3>{text(camera.key)}</h3>{drawn or "<p>No file could be decoded.</p>"}{more}</div>'
        )
    return f"<h2>Episodes in the video files</h2>{''.join(blocks)}"


def _pictures(report: Report, sight: Sight) -> str:
    if not sight.shots:
        return ""
    outcomes = {line.index: line.outcome for line in report.episodes}
    rows: dict[int, list[Shot]] = {}
    for shot in sight.shots:
        rows.setdefault(shot.episode, []).append(shot)
    strips = "".join(
        f'<div class="trace"><h3>Episode {index} <span class="badge {text(outcomes.get(index, "accept"))}">'
        f"{text(outcomes.get(index, 'accept').replace('_', ' '))}</span></h3>{_strip(shots)}</div>"
        for index, shots in sorted(rows.items())
    )
    return f"<h2>First, middle and last frames</h2>{strips}"


def _table(report: Report, info: Info | None) -> str:
    found = report.breaches_by_episode()
    lines: list[str] = []
    for line in report.episodes[:_MOST_ROWS]:
        told = list(dict.fromkeys(breach.rule.id for breach in found.get(line.index, ())))
        seconds = f"{line.frames / info.fps:.1f} s" if info is not None else ""
        lines.append(
            f'<tr><td class="n">{line.index}</td><td><span class="badge {text(line.outcome)}">{text(line.outcome.replace("_", " "))}</span></td>'
            f'<td class="n">{line.frames:,}</td><td class="n">{seconds}</td><td>{text(listed(list(line.tasks)))}</td><td class="id">{text(listed(told))}</td></tr>'
        )
    if not lines:
        return ""
    more = (
        f'<p class="soft">and {len(report.episodes) - _MOST_ROWS} more; --json has all</p>'
        if len(report.episodes) > _MOST_ROWS
        else ""
    )
    return (
        '<h2>Episodes</h2><table><thead><tr><th class="n">episode</th><th>outcome</th><th class="n">frames</th><th class="n">length</th>'
        f"<th>task</th><th>findings</th></tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"
    )
