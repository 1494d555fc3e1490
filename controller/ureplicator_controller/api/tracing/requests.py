"""Spans of the requests that change something: those that events of the fleet may name."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Response, g, request

from ureplicator_common.clock import Clock
from ureplicator_controller.api.http.request_ids import TRACEPARENT, RequestIds, is_write
from ureplicator_controller.api.tracing.sink import Spans
from ureplicator_controller.core.spans import parsed_traceparent, request_span


def register(
    app: Flask, *, spans: Spans, ids: RequestIds, caller: Callable[[], str], clock: Clock
) -> None:
    """Send a span for each response to a write. `caller`: name in the login of the present request."""

    def begin() -> None:
        g.begin_ms = clock.wall_ms()

    def end(response: Response) -> Response:
        if is_write():
            client = parsed_traceparent(request.headers.get(TRACEPARENT, ""))
            spans.send(
                request_span(
                    ids.current(),
                    method=request.method,
                    path=request.path,
                    pattern=request.url_rule.rule if request.url_rule else "",
                    status=response.status_code,
                    caller=caller(),
                    begin_ms=g.get("begin_ms", clock.wall_ms()),
                    end_ms=clock.wall_ms(),
                    parent=client[1] if client and ids.current().startswith(client[0]) else None,
                )
            )
        return response

    app.before_request_funcs.setdefault(None, []).insert(0, begin)
    app.after_request(end)
