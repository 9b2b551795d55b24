"""Traces follow the cause, and their names never carry an id."""

from __future__ import annotations

from pathlib import Path

from forebay.runtime import telemetry
from forebay.runtime.engine import Engine
from forebay.runtime.stores.sqlite import SqliteStore
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_tracer_provider

from runtime.tests import toy


async def test_decided_events_carry_the_trace_of_their_cause(tmp_path: Path) -> None:
    """The trace id of an incoming event is that of what was decided on it; span names are templates."""
    exporter = InMemorySpanExporter()
    telemetry.record_to("toy", exporter)
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    log = toy.MemoryLog()
    (message,) = log.store(toy.started("u1", ref="tag-at-once"))
    headers = {**message.headers, "traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    log.messages.clear()
    log.raw(message.subject, headers, message.data)
    store = SqliteStore(tmp_path / "s.sqlite", fold_version=1)
    await store.acquire("test", ttl_s=0)
    engine = Engine(toy.SERVICE, store)
    await engine.fold(log.messages)
    (entry,) = engine.outbox.entries()
    assert entry.headers["traceparent"].split("-")[1] == trace_id
    get_tracer_provider().force_flush()  # type: ignore[attr-defined]
    assert [span.name for span in exporter.get_finished_spans()] == ["process fb.{project}.upload.{key}.started"]


def test_names_have_low_cardinality() -> None:
    """Project, key and anything that is no event subject disappear from names."""
    assert telemetry.template("fb.arm-lab.job.pick-7.admitted") == "fb.{project}.job.{key}.admitted"
    assert telemetry.template("_INBOX_cli.abc.def") == "_INBOX_cli"
