"""`GET /events`: the present event as a response of its own, or the begin of a stream.

The application gives one event. `serving.streams` keeps the connection of a client that accepts
`text/event-stream` open, and sends the events that follow; so a stream takes no thread.
"""

from __future__ import annotations

from http import HTTPStatus

from flask import Response
from flask_openapi3 import APIBlueprint

from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.models.requests import Query
from ureplicator_controller.api.http.models.responses import problems
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.services.event_feed import EventFeed
from ureplicator_controller.api.serving.streams import EVENT_STREAM, EVENTS

RETRY_MS = 1_000
"""Wait of a browser before it connects again."""
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["state", "problem"]},
        "data": {
            "type": "string",
            "description": "JSON: `change` and `lagAgeSeconds` of a state, `detail` of a problem",
        },
    },
    "required": ["event", "data"],
}
"""One event, as OpenAPI describes streams of them."""
_RESPONSES = problems(400, 401, 403, 429, 500, 503) | {
    HTTPStatus.OK: {
        "description": "One event, or a stream of them",
        "content": {EVENT_STREAM: {"schema": _EVENT}},
    }
}


def blueprint(feed: EventFeed) -> APIBlueprint:
    api = group("events", __name__)

    @api.get(EVENTS, responses=_RESPONSES, validate_response=False)
    @viewer
    def show_events(query: Query) -> Response:
        """Server-sent events: whether the fleet or its lag has changed, at least once a second.

        A `state` has the number of the last change, and the age of the lag. A `problem` says why the fleet
        cannot be read. The stream goes on for clients that accept `text/event-stream`; others get the
        present event.
        """
        body = f"retry: {RETRY_MS}\n\n".encode() + feed.present().encoded()
        response = Response(body, mimetype=EVENT_STREAM)
        response.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
        return response

    return api
