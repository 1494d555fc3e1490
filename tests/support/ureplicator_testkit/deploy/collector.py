"""A collector of OpenTelemetry on a free port: it takes OTLP over HTTP and keeps the spans."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ureplicator_testkit.servers.served import Served

PATH = "/v1/traces"


class Collector:
    """`spans`: as they came; `resources`: attributes of their process."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}{PATH}"
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            named = {
                attribute.key: attribute.value.string_value
                for attribute in group.resource.attributes
            }
            self.resources.append(named)
            for scope in group.scope_spans:
                self.spans.extend(scope.spans)


@contextmanager
def running_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            collector.take(gzip.decompress(body) if packed else body)
            self.send_response(200 if self.path == PATH else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(server.server_address[1])
    with Served(server):
        yield collector
