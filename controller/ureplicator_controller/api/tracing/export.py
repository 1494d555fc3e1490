"""Export of spans by OpenTelemetry's own SDK, over OTLP and HTTP, from a thread of the SDK.

A full queue drops spans, and a collector that does not respond holds up nobody. What else the SDK can be
told, such as headers with a login, is in its own environment (`OTEL_EXPORTER_OTLP_HEADERS`, ...).
"""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from ureplicator_common._version import __version__
from ureplicator_controller.core.spans import Span

SERVICE = "ureplicator-controller"
TIMEOUT_S = 10.0
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NS = 1_000_000
"""Nanoseconds of a millisecond."""


class ExportedSpans:
    """`endpoint`: URL of a collector, with its path (`http://collector:4318/v1/traces`)."""

    def __init__(self, endpoint: str, *, fleet: str, id: str) -> None:
        self._resource = Resource.create(
            {
                "service.name": SERVICE,
                "service.namespace": fleet,
                "service.instance.id": id,
                "service.version": __version__,
            }
        )
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=TIMEOUT_S))

    def send(self, span: Span) -> None:
        self._processor.on_end(self._readable(span))

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace, span.id),
            parent=None if span.parent is None else _context(span.trace, span.parent),
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=SpanKind.SERVER if span.is_request else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR if span.has_failed else StatusCode.UNSET),
            start_time=span.begin_ms * _NS,
            end_time=span.end_ms * _NS,
        )


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED)
