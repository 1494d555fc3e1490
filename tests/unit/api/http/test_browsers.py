"""Requests that a page makes an operator's browser send, and names that point to a controller."""

from __future__ import annotations

import pytest

from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of

FOREIGN = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://elsewhere.example"},
    {"Origin": "http://localhost:8000"},
    {"Origin": "null"},
    {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
)
OWN: tuple[dict[str, str], ...] = (
    {},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://localhost"},
)
WRITES = (
    ("POST", "/topics/orders"),
    ("DELETE", "/topics/orders"),
    ("POST", "/blacklist?topic=orders"),
    ("POST", "/admin/freeze"),
)
"""None needs a body."""


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_page_of_another_site_changes_nothing(
    rest: RestFixture, method: str, path: str, headers: dict[str, str]
) -> None:
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    before = rest.tree()
    problem = problem_of(rest.call(method, path, headers=headers), 403)
    assert problem["field"] in headers
    assert rest.tree() == before


@pytest.mark.parametrize("headers", OWN)
def test_the_dashboard_and_programs_write(rest: RestFixture, headers: dict[str, str]) -> None:
    assert rest.call("POST", "/admin/freeze", headers=headers).status_code == 200


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_link_of_another_site_may_be_followed(rest: RestFixture, headers: dict[str, str]) -> None:
    assert rest.call("GET", "/topics", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path", ["/topics", "/export", "/", "/openapi.json", "/dashboard/dashboard.js"]
)
@pytest.mark.parametrize(
    "host", ["elsewhere.example", "elsewhere.example:9000", "127.0.0.1.nip.io"]
)
def test_a_public_name_that_points_here_reads_nothing(
    rest: RestFixture, path: str, host: str
) -> None:
    problem = problem_of(rest.call("GET", path, headers={"Host": host}), 403)
    assert "controller.allowed_hosts" in problem["hint"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost:9000",
        "127.0.0.1",
        "10.0.0.7:9000",
        "[::1]:9000",
        "controller-0",
        "controller-0.ureplicator.kafka.svc.cluster.local:9000",
        "CONTROLLER.LOCAL.",
    ],
)
def test_addresses_and_names_that_nobody_can_register(rest: RestFixture, host: str) -> None:
    assert rest.call("GET", "/topics", headers={"Host": host}).status_code == 200


def test_a_name_that_is_configured() -> None:
    rest = RestFixture(allowed_hosts=["ureplicator.example.com"])
    own = {"Host": "ureplicator.example.com", "Origin": "https://ureplicator.example.com"}
    behind_proxy = {"Host": "10.0.0.7:9000", "Origin": "https://ureplicator.example.com"}
    for headers in (own, behind_proxy):
        assert rest.call("POST", "/admin/freeze", headers=headers).status_code == 200
    rest.close()


@pytest.mark.parametrize("path", ["/", "/topics", "/nowhere", "/metrics"])
def test_headers_for_browsers(rest: RestFixture, path: str) -> None:
    headers = rest.call("GET", path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
