"""A LeRobot v2.1 folder from the collector's copy to ingest's version: both read the same places in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.contracts.v1.datasets import DatasetVersionCommitted
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeRejected, EpisodeUploaded, UploadStarted
from forebay.sdk.collector import Collector

from services.ingest.tests import lerobot_builder as lerobot
from services.ingest.tests import lerobot_v2_builder as v2
from services.ingest.tests.place import Place
from services.ingest.tests.simulated_log import PROJECT


class Deliver:
    """The outbox's publisher, straight into ingest's log."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def publish_many(self, events: Sequence[Event[EventBody]]) -> list[int]:
        await asyncio.sleep(0)
        for event in events:
            self._place.log.publish(event.body, event.id)
        return list(range(1, len(events) + 1))


@pytest.mark.parametrize("version", ["v2.1", "v2.0"])
async def test_an_upload_of_an_older_format_becomes_a_version(tmp_path: Path, version: str) -> None:
    """Windows and rows are announced where ingest finds them; a short video costs its own episode."""
    folder = v2.build(tmp_path / "recorded", version)
    lerobot.write_video(folder / v2.video_file(1), 2)
    place = Place(tmp_path)
    collector = Collector(home=tmp_path, project=PROJECT)
    collector.upload(folder, "pick-place")
    await collector.outbox.deliver(Deliver(place))
    await place.work()
    (started,) = place.log.of(UploadStarted)
    assert started.source_format == f"lerobot-{version}"
    announced = {body.source_index: body for body in place.log.of(EpisodeUploaded)}
    assert {index: body.rows.file for index, body in announced.items()} == {n: v2.data_file(n) for n in range(3)}
    assert {index: body.videos[0].file for index, body in announced.items()} == {n: v2.video_file(n) for n in range(3)}
    assert [body.source_index for body in place.log.of(EpisodeAccepted)] == [0, 2]
    assert [(b.source_index, b.findings[0].rule) for b in place.log.of(EpisodeRejected)] == [(1, "LR-VIDEO-002")]
    (made,) = place.log.of(DatasetVersionCommitted)
    assert (made.format, made.episode_count, made.frame_count) == ("lerobot-v3.0-lance", 2, 10)
