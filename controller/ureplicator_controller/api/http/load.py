"""Limits on requests that are served at the same time, so that `/health` always finds a thread.

A call that asks Kafka, marked with `asks_kafka`, may wait seconds for a cluster that is away. Calls that
find no place are refused at once with 503: to wait for a place would take the thread all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Any, TypeVar

from flask import Flask, current_app, g, request

from ureplicator_controller.api.http.problems import unavailable

KAFKA_CALLS = 8
CALLS = 32
"""All calls but `/health`; there are more threads (`rest_process.THREADS`)."""
_HEALTH = "/health"
_MARK = "asks_kafka"

F = TypeVar("F", bound=Callable[..., Any])


def asks_kafka(view: F) -> F:
    """Mark a view that sends requests to Kafka while its client waits. Stands below the route."""
    setattr(view, _MARK, True)
    return view


def limit_load(app: Flask) -> None:
    """Refuse what is over the limits. Register it before what may take time."""
    calls, kafka_calls = BoundedSemaphore(CALLS), BoundedSemaphore(KAFKA_CALLS)

    @app.before_request
    def enter() -> None:
        if request.path == _HEALTH:
            return
        _take(calls, "too many requests at the same time")
        view = current_app.view_functions.get(request.endpoint or "")
        if getattr(view, _MARK, False):
            _take(kafka_calls, f"{KAFKA_CALLS} requests wait for a Kafka cluster already")

    @app.teardown_request
    def leave(_: BaseException | None) -> None:
        for taken in g.pop("load", ()):
            taken.release()


def _take(places: BoundedSemaphore, detail: str) -> None:
    if not places.acquire(blocking=False):
        raise unavailable(detail)
    g.load = (*g.get("load", ()), places)
