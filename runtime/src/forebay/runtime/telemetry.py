"""Traces and metrics with names of low cardinality: services and templates, never ids or subjects.

Spans cost nothing until an OTLP endpoint is configured. Metrics are Prometheus'
own and are served by `health.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_tracer = trace.get_tracer("forebay.runtime")
_PROPAGATOR = TraceContextTextMapPropagator()

FOLDED = Counter("forebay_folded_messages", "Messages of the log that were folded", ["service"])
PARKED = Counter("forebay_parked", "Messages and work set aside with a cause", ["service", "stage"])
PUBLISHED = Counter("forebay_published_events", "Events published from the outbox", ["service", "event"])
ASKED = Histogram("forebay_question_seconds", "Time to answer a question", ["service", "question"])
WORKED = Histogram("forebay_work_seconds", "Time of one run of a piece of work", ["service", "work", "outcome"])
LAG = Gauge("forebay_lag_messages", "Messages of the log that are not folded yet", ["service"])
OUTBOX = Gauge("forebay_outbox_entries", "Decided events that are not seen back yet", ["service"])
POSITION = Gauge("forebay_position", "Last folded sequence", ["service"])


_recording = False


def set_up(service: str, endpoint: str | None) -> None:
    """Send traces to an OTLP/HTTP collector; without an endpoint spans are not recorded."""
    if endpoint is None:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 rarely needed

    record_to(service, OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))


def record_to(service: str, exporter: SpanExporter) -> None:
    """Record spans from now on, for the whole process."""
    global _recording, _tracer  # noqa: PLW0603 OpenTelemetry's own provider is global as well
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=Resource.create({"service.name": f"forebay-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    trace.set_tracer_provider(provider)
    _tracer = provider.get_tracer("forebay.runtime")
    _recording = True


@contextmanager
def span(
    name: str, *, parent: str | None = None, kind: SpanKind = SpanKind.INTERNAL, **attributes: str | int
) -> Iterator[None]:
    """One span; `parent` is a W3C traceparent from another process."""
    if not _recording:
        yield
        return
    context = _PROPAGATOR.extract({"traceparent": parent}) if parent else None
    with _tracer.start_as_current_span(
        name, context=context, kind=kind, attributes={f"forebay.{key}": value for key, value in attributes.items()}
    ):
        yield


def traceparent() -> str | None:
    """The current trace as a header value, or None when nothing is recorded."""
    if not _recording:
        return None
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


def template(subject: str) -> str:
    """`fb.arm-lab.job.pick-7.admitted` -> `fb.{project}.job.{key}.admitted`: a name of low cardinality."""
    parts = subject.split(".")
    if len(parts) == 5 and parts[0] == "fb":
        return f"fb.{{project}}.{parts[2]}.{{key}}.{parts[4]}"
    return parts[0]
