"""Text from outside: whatever it says, the answer is a value or an error of ours."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.clock import check_clock
from forebay.ingest.domain.info_file import check_version, parse_info, read_document
from forebay.ingest.domain.path_template import (
    DATA_FIELDS,
    DEFAULT_DATA_PATH,
    VIDEO_FIELDS,
    TemplateError,
    parse_template,
    safe_relative,
)
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.domain.rules import RULES
from forebay.ingest.domain.signals import EpisodeScan, RowBlock, VectorBlock, check_signals
from forebay.ingest.errors import UnsafePathError
from hypothesis import given, settings
from hypothesis import strategies as st

from . import lerobot_builder as lerobot

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def _parse(raw: bytes) -> tuple[Info | None, list[Breach]]:
    document, broken = read_document(raw)
    if document is None:
        return None, broken
    told = check_version(document, "v3.0")
    return parse_info(document) if not told else (None, told)


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_answered(raw: bytes) -> None:
    """Never an exception; no `Info` without being asked for."""
    info, broken = _parse(raw)
    assert info is None
    assert broken
    assert all(breach.finding().message for breach in broken)


@given(data=st.data())
def test_a_valid_file_with_anything_put_in_one_place(data: st.DataObject) -> None:
    """Either it is still usable and every field has its type, or a breach says what is wrong."""
    document: Any = lerobot.info()
    node, key = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(node[key], dict) and node[key] and data.draw(st.booleans()):
        node, key = node[key], data.draw(st.sampled_from(sorted(node[key])))
    node[key] = data.draw(json_values)
    raw = json.dumps(document).encode("utf-8", "surrogatepass")
    info, broken = _parse(raw)
    if info is None:
        assert broken
        json.dumps([breach.finding().model_dump() for breach in broken], allow_nan=False)
    else:
        assert 0 < info.fps < math.inf
        assert info.total_frames >= 0
        assert all(size > 0 for feature in info.features for size in feature.shape)


@given(
    text=st.text(max_size=60) | st.from_regex(r"[a-z./{}:_0-9]*\{(chunk|file)_index(:03d)?\}[a-z./{}]*", fullmatch=True)
)
def test_a_template_is_refused_or_stays_inside(text: str) -> None:
    """No template leads out of the folder."""
    try:
        template = parse_template(text, DATA_FIELDS)
        path = PurePosixPath(template.fill(chunk=3, file=7))
    except (TemplateError, UnsafePathError):
        return
    assert not path.is_absolute()
    assert ".." not in path.parts


@pytest.mark.parametrize("camera", ["../../etc", "/etc", "a/../../b", "", "a\x00b", "a//b"])
def test_a_camera_name_cannot_climb_out(camera: str) -> None:
    """Camera names come from info.json too."""
    template = parse_template("videos/{video_key}/c-{chunk_index:03d}/f-{file_index:03d}.mp4", VIDEO_FIELDS)
    with pytest.raises(UnsafePathError):
        template.fill(chunk=0, file=0, camera=camera)


def test_the_usual_template() -> None:
    """Numbers are padded, not cut."""
    template = parse_template(DEFAULT_DATA_PATH, DATA_FIELDS)
    assert template.fill(chunk=1, file=12345) == "data/chunk-001/file-12345.parquet"


@given(path=st.text(max_size=40))
def test_a_safe_path_has_no_way_up(path: str) -> None:
    """What is let through is relative and plain."""
    try:
        safe_relative(path)
    except UnsafePathError:
        return
    assert not PurePosixPath(path).is_absolute()
    assert not {"..", "."} & set(PurePosixPath(path).parts)


def test_every_rule_is_complete() -> None:
    """Ids are unique and well formed; every rule has a question, a why and a fix."""
    assert len(RULES) >= 14
    for id_, rule in RULES.items():
        assert id_ == rule.id
        assert rule.question.endswith("?")
        assert rule.why
        assert rule.fix


def _block(rows: slice, times: Any, values: Any) -> RowBlock:
    count = np.arange(len(times))[rows]
    vector = VectorBlock(lengths=np.full(len(count), 2), values=values[rows].reshape(-1))
    return RowBlock(
        file="f",
        times=times[rows],
        frame_index=count,
        index=count + 9,
        task_index=count * 0,
        vectors={"action": vector},
    )


@settings(max_examples=40, deadline=None)
@given(data=st.data(), length=st.integers(1, 30))
def test_a_scan_does_not_depend_on_how_rows_are_cut(data: st.DataObject, length: int) -> None:
    """Blocks of any size give the same findings as one block."""
    numbers = st.floats(-5, 5) | st.just(math.nan) | st.just(math.inf)
    values = np.array(data.draw(st.lists(st.tuples(numbers, numbers), min_size=length, max_size=length)))
    steps = data.draw(st.lists(st.sampled_from([0.1, 0.1, 0.1, 0.2, -0.1]), min_size=length, max_size=length))
    times = np.cumsum(steps) - steps[0]
    cuts = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=4))})
    info, _ = _parse(json.dumps(lerobot.info()).encode())
    assert info is not None
    answers = []
    for edges in ([0, length], cuts):
        scan = EpisodeScan()
        for start, stop in pairwise(edges):
            scan.add(_block(slice(start, stop), times, values), 10)
        episode = Episode(index=0, length=length, from_index=9, to_index=9 + length, data_file="f")
        told = [*check_clock(episode, scan.clock, 10, "f"), *check_signals(episode, scan, info.row_features)]
        answers.append([breach.message for breach in told])
    assert answers[0] == answers[1]
