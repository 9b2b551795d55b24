"""What was ordered from a collection, against what is there.

A request is JSON: `expected_episodes`, `expected_frames`, `fps`, `robot_type`, `tasks`
and `cameras`, each optional; other keys are the collector's own. A report may stand in
the same file: durations that were measured (`measured_rate`) are evidence; what the
operator reports (`operator_report`) is shown as a claim and counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed, printable
from forebay.ingest.domain.info_file import is_count, shown, strict_json
from forebay.ingest.domain.measured_rate import durations_in
from forebay.ingest.domain.recording import Info

_TEXTS = ("tasks", "cameras")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRequest:
    """The order, every field checked for its type."""

    name: str = "the collection request"
    episodes: int | None = None
    frames: int | None = None
    fps: float | None = None
    robot: str | None = None
    tasks: tuple[str, ...] = ()
    cameras: tuple[str, ...] = ()
    durations: Mapping[int, float] = field(default_factory=dict)
    """Seconds that each episode took by the collector's clock."""
    claim: str | None = None
    """What the operator reported, in words."""


class RequestError(ValueError):
    """The request cannot be used; the text says why."""


def parse_request(raw: bytes) -> CollectionRequest:
    """A request from its bytes; raises `RequestError`."""
    try:
        document = strict_json(raw)
    except ValueError as error:
        msg = f"the collection request is no JSON: {error}"
        raise RequestError(msg) from error
    if not isinstance(document, dict):
        msg = f"the collection request is {shown(document)}, expected a JSON object"
        raise RequestError(msg)
    problems = [
        f"{key} is {shown(document[key])}, expected a whole number"
        for key in ("expected_episodes", "expected_frames")
        if document.get(key) is not None and not is_count(document[key])
    ]
    problems += [
        f"{key} is {shown(document[key])}, expected a list of texts"
        for key in _TEXTS
        if document.get(key) is not None and not _is_texts(document[key])
    ]
    fps = document.get("fps")
    if fps is not None and (not isinstance(fps, int | float) or isinstance(fps, bool) or not 0 < fps <= 100_000):
        problems.append(f"fps is {shown(fps)}, expected a positive number")
    if problems:
        msg = "the collection request cannot be used: " + "; ".join(problems)
        raise RequestError(msg)
    name, robot = document.get("collection_id"), document.get("robot_type")
    return CollectionRequest(
        name=f"collection {name}" if isinstance(name, str) else "the collection request",
        episodes=document.get("expected_episodes"),
        frames=document.get("expected_frames"),
        fps=None if fps is None else float(fps),
        robot=robot if isinstance(robot, str) else None,
        tasks=tuple(document.get("tasks") or ()),
        cameras=tuple(document.get("cameras") or ()),
        durations=durations_in(document),
        claim=_claim(document.get("operator_report")),
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _claim(report: Any) -> str | None:
    if not isinstance(report, dict) or not report:
        return None
    plain = {key: value for key, value in report.items() if not isinstance(value, list | dict)}
    return printable(", ".join(f"{key} {value}" for key, value in plain.items()), 160) or None


def check_request(
    request: CollectionRequest, info: Info, *, episodes: int, frames: int, tasks: tuple[str, ...]
) -> list[Breach]:
    """Every difference between the order and what is stored."""
    found: list[Breach] = []
    claim = f"; the operator reports {request.claim}, which is a claim and no count" if request.claim else ""

    def tell(what: str, expected: object, actual: object, *, slight: bool = False) -> None:
        found.append(
            Breach(
                rule=rules.REQUEST,
                lowered="warning" if slight else None,
                feature=what,
                expected=str(expected),
                found=str(actual),
                message=f"{request.name} asks for {expected} {what}, found {actual}{claim}",
            )
        )

    if request.episodes is not None and request.episodes != episodes:
        # more than was asked for is no loss
        tell("episodes", request.episodes, episodes, slight=episodes > request.episodes)
    if request.frames is not None and request.frames != frames:
        tell("frames", request.frames, frames, slight=frames > request.frames)
    if request.fps is not None and abs(request.fps - info.fps) > 1e-6 * request.fps:
        tell("frames per second", f"{request.fps:g}", f"{info.fps:g}")
    if request.robot is not None and request.robot != info.robot:
        tell("as robot", request.robot, info.robot or "no robot_type", slight=True)
    cameras = {feature.key for feature in info.features if feature.is_video or feature.is_image}
    names = cameras | {key.rpartition(".")[2] for key in cameras}
    missing = [name for name in request.cameras if name not in names]
    if missing:
        tell("as cameras", listed(list(request.cameras)), listed(sorted(cameras)) or "none")
    lacking = [text for text in request.tasks if text not in tasks]
    if lacking:
        tell("as tasks", listed(list(request.tasks)), listed(list(tasks)) or "none")
    return found
