"""Requests at the same time: what is over the limits is refused, and `/health` never is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore
from typing import Any

import pytest
from werkzeug.test import TestResponse

from ureplicator_controller.api.http import load
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of

WAIT_S = 20


@pytest.fixture
def held(rest: RestFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls that wait inside their view until the test ends: `held(path, count)`."""
    inside, leave = Semaphore(0), Event()

    def slow(view: Callable[..., Any]) -> Callable[..., Any]:
        def wait(**_: Any) -> Any:
            inside.release()
            assert leave.wait(WAIT_S)
            return "{}"

        wait.__dict__.update(view.__dict__)
        return wait

    pool = ThreadPoolExecutor(load.CALLS)
    calls: list[Future[TestResponse]] = []

    def hold(path: str, count: int) -> None:
        endpoint, _ = rest.app.url_map.bind("localhost").match(path)
        rest.app.view_functions[endpoint] = slow(rest.app.view_functions[endpoint])
        for _ in range(count):
            calls.append(pool.submit(lambda: rest.app.test_client().get(path)))
            assert inside.acquire(timeout=WAIT_S)

    yield hold
    leave.set()
    assert {call.result(WAIT_S).status_code for call in calls} <= {200}
    pool.shutdown()


def test_calls_that_wait_for_kafka_leave_room_for_others(rest: RestFixture, held: Any) -> None:
    held("/validation/topics", load.KAFKA_CALLS)
    response = rest.call("GET", "/positions/orders")
    assert "Kafka" in problem_of(response, 503)["detail"]
    assert int(response.headers["Retry-After"]) > 0
    assert rest.call("GET", "/topics").status_code == 200
    assert rest.call("GET", "/health").status_code == 200


def test_health_answers_when_all_else_is_taken(rest: RestFixture, held: Any) -> None:
    held("/topics", load.CALLS)
    response = rest.call("GET", "/limits")
    problem_of(response, 503)
    assert int(response.headers["Retry-After"]) > 0
    assert rest.call("GET", "/health").status_code == 200


def test_refused_and_failed_calls_give_their_place_back(rest: RestFixture) -> None:
    for _ in range(2 * load.CALLS):
        assert rest.call("GET", "/nowhere").status_code == 404
        assert rest.call("GET", "/positions/nowhere").status_code == 404
    assert rest.call("GET", "/positions/orders").status_code == 404
