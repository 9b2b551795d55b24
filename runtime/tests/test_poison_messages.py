"""EV-04: messages that can never be folded are put aside at once, whole and with their reason; the next one is folded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from forebay.contracts.codec import encode
from forebay.runtime.records import ParkedMessage

from runtime.tests import toy
from runtime.tests.test_engine import letters, start

GOOD = encode(toy.started("u-1"))
Raw = tuple[str, Mapping[str, str], bytes]


def raw(*, subject: str = GOOD.subject, body: bytes = GOOD.body, **headers: str | None) -> Raw:
    """The good message with something wrong about it."""
    changed = {**GOOD.headers, **{f"ce-{name}": value for name, value in headers.items()}}
    return subject, {name: value for name, value in changed.items() if value is not None}, body


def without(field: str) -> bytes:
    return json.dumps({name: value for name, value in json.loads(GOOD.body).items() if name != field}).encode()


def with_value(field: str, value: object) -> bytes:
    return json.dumps({**json.loads(GOOD.body), field: value}).encode()


POISON: dict[str, tuple[Raw, str]] = {
    "no JSON": (raw(body=b'{"upload": "u-1", '), "JSON"),
    "not UTF-8": (raw(body=b'{"upload": "\xff\xfe"}'), ""),
    "empty": (raw(body=b""), "JSON"),
    "null": (raw(body=b"null"), ""),
    "nested beyond reason": (raw(body=b"[" * 50_000), ""),
    "too large": (raw(body=b" " * 70_000), "70000 bytes"),
    "field missing": (raw(body=without("dataset")), "dataset"),
    "wrong kind of value": (raw(body=with_value("expected_files", "many")), "expected_files"),
    "no finite number": (raw(body=GOOD.body.replace(b'"expected_bytes":1', b'"expected_bytes":NaN')), ""),
    "unknown type": (raw(type="dev.forebay.UploadPolished.v1"), "not an event"),
    "type of somebody else": (raw(type="com.example.Order.v1"), "not an event"),
    "another event's type": (raw(type="dev.forebay.UploadFinished.v1"), "UploadStarted"),
    "newer version": (raw(type="dev.forebay.UploadStarted.v9"), "version 9"),
    "no type": (raw(type=None), "ce-type"),
    "no id": (raw(id=None), "ce-id"),
    "no headers": ((GOOD.subject, {}, GOOD.body), "ce-specversion"),
    "another envelope": (raw(specversion="0.3"), "specversion"),
    "no such sender": (raw(source="/forebay/nobody"), "names no part"),
    "a sender that does not own it": (raw(source="/forebay/cache"), "may not publish"),
    "another project's sender": (raw(source="/forebay/collector/other"), "project"),
    "time that is none": (raw(time="yesterday"), "RFC 3339"),
    "time without a zone": (raw(time="2026-01-01T00:00:00"), "zone"),
    "endless header": (raw(id="x" * 5000), "5000 characters"),
    "on another key": (raw(subject=GOOD.subject.replace("u-1", "u-2")), "belongs on"),
}


@pytest.mark.parametrize("name", POISON)
async def test_put_aside_whole_and_at_once(tmp_path: Path, name: str) -> None:
    """Dead-lettered at the first delivery with sequence, subject, reason and every byte; what comes after it is folded."""
    (subject, headers, body), says = POISON[name]
    engine, store = await start(tmp_path)
    log = toy.MemoryLog()
    await engine.fold([log.raw(subject, dict(headers), body), *log.store(toy.started("u-9"))])
    assert engine.parked == {1}
    kept = await engine.document(ParkedMessage, f"{1:020d}")
    assert kept is not None
    assert (kept.stage, kept.subject) == ("decode", subject)
    assert says in kept.cause
    (letter,) = await letters(engine)
    assert (letter.seq, letter.subject, letter.stage) == (1, subject, "decode")
    assert says in letter.cause
    assert len(engine.outbox) == 0, "no letter stands before a decided event"
    assert await engine.document(toy.Upload, "u-9") is not None
    assert await engine.document(toy.Upload, "u-1") is None
    await engine.fold(log.messages)
    assert len(await letters(engine)) == 1
    await store.close()


async def test_many_bad_then_a_good_one(tmp_path: Path) -> None:
    """All of them in one batch: as many dead letters, one effect."""
    engine, store = await start(tmp_path)
    log = toy.MemoryLog()
    bad = [log.raw(subject, dict(headers), body) for (subject, headers, body), _ in POISON.values()]
    await engine.fold([*bad, *log.store(toy.started("u-1"))])
    assert len(engine.parked) == len(await letters(engine)) == len(POISON)
    assert await engine.document(toy.Upload, "u-1") is not None
    await store.close()
