"""`/overview`: one call for the whole dashboard, with an ETag, so that asking again costs nothing.

A response of 10,000 partitions is encoded once for each change of the fleet or of the lag, and shared by
all pages. A page asks with `If-None-Match` when an event of `/events` has another change.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from flask import Response, request
from flask_openapi3 import APIBlueprint

from ureplicator_common.audits.standing import Standing
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.models.overview import IfNoneMatchHeader, Overview
from ureplicator_controller.api.http.models.requests import Query
from ureplicator_controller.api.http.models.responses import responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.api.lag_collection.collector import LagReport
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.overview import document

LAG_AGE = "Lag-Age-Seconds"
"""Header with the age of the lag: it is collected again though no figure changes, and a 304 has no body."""

FindStandings = Callable[[FleetState, Iterable[TopicKey]], Mapping[TopicKey, Standing]]

_RESPONSES = responses(Overview) | {HTTPStatus.NOT_MODIFIED: None}


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A document as bytes, with what it was drawn from."""

    fleet_state: FleetState
    report: LagReport | None
    document: Mapping[str, Any]
    body: bytes
    tag: str


class EncodedOverview:
    """The newest document, shared by the threads that serve requests."""

    def __init__(
        self, *, settings: Settings, fleet: FleetCache, lag_cache: LagCache, find: FindStandings
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._lag_cache = lag_cache
        self._find = find
        self._lock = threading.Lock()
        self._last: _Encoded | None = None

    def response(self) -> Response:
        """The document, or 304. Raises Unavailable."""
        encoded = self._current()
        report = encoded.report
        age_s = round(self._lag_cache.age_s(report), 1) if report else None
        body = b'{"lagAgeSeconds":' + json.dumps(age_s).encode() + b"," + encoded.body[1:]
        response = Response(body, content_type="application/json")
        response.set_etag(encoded.tag)
        if age_s is not None:
            response.headers[LAG_AGE] = str(age_s)
        response.make_conditional(request)  # changes the response itself
        return response

    def document(self) -> Mapping[str, Any]:
        """The document without the age of the lag. Raises Unavailable."""
        return self._current().document

    def _current(self) -> _Encoded:
        fleet_state, report = self._fleet.current(), self._lag_cache.report()
        with self._lock:
            last = self._last
            if last is None or last.fleet_state is not fleet_state or last.report is not report:
                last = self._last = self._encode(fleet_state, report)
            return last

    def _encode(self, fleet_state: FleetState, report: LagReport | None) -> _Encoded:
        standings = self._find(fleet_state, fleet_state.snapshot.topics)
        drawn = document(
            self._settings, fleet_state, self._fleet.tallies(fleet_state), report, standings
        )
        body = json.dumps(drawn, separators=(",", ":")).encode()
        return _Encoded(fleet_state, report, drawn, body, hashlib.sha256(body).hexdigest()[:32])


def blueprint(overview: EncodedOverview) -> APIBlueprint:
    api = group("overview", __name__)

    @api.get("/overview", responses=_RESPONSES, validate_response=False)
    @viewer
    def show_overview(query: Query, header: IfNoneMatchHeader) -> Response:
        """The whole fleet in one response: each route in a sentence, and a tile for each partition.

        `Lag-Age-Seconds`, a header, has the age of the lag with 304 too.
        """
        return overview.response()

    return api
