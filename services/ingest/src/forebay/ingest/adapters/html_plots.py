"""Drawings of a report as inline SVG: curves of signals, and windows over video files. Text is escaped here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forebay.ingest.adapters.plot_data import Curves
from forebay.runtime.escaping import shortened, xml_text

_WIDTH, _HEIGHT, _LEFT, _TOP, _FOOT = 640, 150, 46, 8, 18


def text(value: object, limit: int = 200) -> str:
    """Anything from outside, safe inside HTML."""
    return xml_text(shortened(str(value), limit))


def curves_svg(curves: Curves, bad: Sequence[int]) -> str:
    """All dimensions of one feature over the frames, bad frames marked."""
    finite = curves.values[np.isfinite(curves.values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    last = max(curves.total - 1, 1)

    def x(frame: float) -> float:
        return _LEFT + frame / last * (_WIDTH - _LEFT - 8)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _FOOT)

    parts = [_axes(low, high, last, y(low), y(high))]
    dims = curves.values.shape[1]
    for dim in range(dims):
        for line in _lines(curves.frames, curves.values[:, dim]):
            points = " ".join(f"{x(frame):.1f},{y(value):.1f}" for frame, value in line)
            parts.append(f'<polyline class="c" style="--h:{dim * 360 // max(dims, 1)}" points="{points}"/>')
    for frame in bad[:40]:
        at = x(frame)
        parts.append(
            f'<line class="bad" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _FOOT}"><title>frame {frame}</title></line>'
        )
        parts.append(f'<path class="bad" d="M{at - 4:.1f} {_TOP - 6}h8l-4 6z"/>')
    label = text(f"{curves.feature} of episode {curves.episode}, {dims} values over {curves.total} frames")
    return f'<svg class="plot" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(parts)}</svg>'


def _axes(low: float, high: float, last: int, bottom: float, top: float) -> str:
    edge = _WIDTH - 8
    return (
        f'<line class="a" x1="{_LEFT}" x2="{edge}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>'
        f'<line class="a" x1="{_LEFT}" x2="{edge}" y1="{top:.1f}" y2="{top:.1f}"/>'
        f'<text x="{_LEFT - 5}" y="{top + 8:.1f}" text-anchor="end">{high:.3g}</text>'
        f'<text x="{_LEFT - 5}" y="{bottom:.1f}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">frame 0</text>'
        f'<text x="{edge}" y="{_HEIGHT - 4}" text-anchor="end">{last}</text>'
    )


def _lines(frames: Sequence[int] | np.ndarray, values: np.ndarray) -> list[list[tuple[float, float]]]:
    """Stretches of finite values: a curve is not drawn through NaN."""
    found: list[list[tuple[float, float]]] = [[]]
    for frame, value in zip(frames, values, strict=True):
        if math.isfinite(value):
            found[-1].append((float(frame), float(value)))
        elif found[-1]:
            found.append([])
    return [line if len(line) > 1 else [line[0], (line[0][0] + 0.01, line[0][1])] for line in found if line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One episode's window in a video file."""

    episode: int
    start: float
    stop: float
    outcome: str


def windows_svg(spans: Sequence[Span], seconds: float) -> str:
    """The windows of one file over its length; what sticks out beyond the end is seen."""
    whole = max([seconds, *(min(span.stop, seconds * 4 + 10) for span in spans)], default=1.0) or 1.0
    width = _WIDTH - 16

    def x(at: float) -> float:
        return 8 + min(max(at, 0.0), whole) / whole * width

    end = x(seconds)
    parts = [f'<rect class="film" x="8" y="6" width="{max(end - 8, 1):.1f}" height="24" rx="3"/>']
    for span in spans[:400]:
        left, right = x(span.start), x(span.stop)
        title = f"episode {span.episode}: {span.start:.3f} to {span.stop:.3f} s"
        parts.append(
            f'<rect class="w {text(span.outcome)}" x="{left:.1f}" y="9" width="{max(right - left - 0.8, 0.8):.1f}" height="18"><title>{title}</title></rect>'
        )
        if right - left > 18:
            parts.append(
                f'<text class="in" x="{(left + right) / 2:.1f}" y="22" text-anchor="middle">{span.episode}</text>'
            )
    parts.append(f'<text x="8" y="44">0 s</text><text x="{end:.1f}" y="44" text-anchor="end">{seconds:.1f} s</text>')
    if whole > seconds * 1.001:
        parts.append(f'<line class="bad" x1="{end:.1f}" x2="{end:.1f}" y1="2" y2="34"/>')
        parts.append(
            f'<text class="badtext" x="{8 + width:.1f}" y="44" text-anchor="end">asked up to {max(s.stop for s in spans):.1f} s</text>'
        )
    return f'<svg class="plot film" role="img" aria-label="windows of {len(spans)} episodes" viewBox="0 0 {_WIDTH} 48">{"".join(parts)}</svg>'
