"""Each call, static file and document: without, with a viewer's, an operator's, an expired, revoked or
forged token. The calls are those of the OpenAPI document, so a call without a role fails here."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.fleet import decode_switches
from ureplicator_controller.api.access.attempts import FAILURES, WINDOW_S
from ureplicator_controller.api.access.gate import COOKIE
from ureplicator_controller.core.reporting.authorship import by_of, id_of
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture, problem_of

VIEWER, OPERATOR = "viewer-0123456789abcdef", "operator-0123456789abcdef"
EXPIRED, REVOKED = "expired-0123456789abcdef", "revoked-0123456789abcdef"
READS = {"get", "head"}
OPEN = {"/health", "/ready"}
PAGES = (
    "/openapi.json",
    "/dashboard/dashboard.js",
    "/dashboard/dashboard.css",
    "/dashboard/nowhere",
)
DRY_RUNS = (
    ("PUT", "/import/switches"),
    ("PUT", "/import/topics"),
    ("PUT", "/import/topics/orders"),
    ("POST", "/rebalance"),
    ("POST", "/failover"),
    ("POST", "/audits/orders"),
    ("POST", "/positions/orders"),
    ("DELETE", "/positions/orders"),
)


@dataclass(frozen=True)
class Closed:
    """REST with tokens, and their files."""

    rest: RestFixture
    viewers: Path
    operators: Path

    def status(self, method: str, path: str, token: str = "", **headers: str) -> int:
        given = {"Authorization": f"Bearer {token}"} if token else {}
        with self.rest.call(method, path, headers=given | headers) as response:
            return response.status_code


@pytest.fixture
def closed(new_rest: NewRest, tmp_path: Path) -> Closed:
    viewers, operators = tmp_path / "viewers", tmp_path / "operators"
    viewers.write_text(f"# dashboards\nvictor {VIEWER}\nrosa {REVOKED}\n")
    hashed = hashlib.sha256(OPERATOR.encode()).hexdigest()
    operators.write_text(f"olga sha256:{hashed}\nerik {EXPIRED} until=1970-01-01T00:00:01Z\n")
    access = {
        "mode": "tokens",
        "viewer_tokens_file": str(viewers),
        "operator_tokens_file": str(operators),
    }
    return Closed(new_rest(access=access, described=True), viewers, operators)


def calls(closed: Closed) -> list[tuple[str, str, Mapping[str, Any]]]:
    headers = {"Authorization": f"Bearer {VIEWER}"}
    document = closed.rest.call("GET", "/openapi.json", headers=headers).get_json()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "cookie"}
    return [
        (method, path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def concrete(path: str) -> str:
    return path.replace("{", "").replace("}", "")


def test_each_call_asks_for_the_role_that_it_declares(closed: Closed) -> None:
    closed.viewers.write_text(f"victor {VIEWER}\n")  # rosa's is revoked
    for method, template, operation in calls(closed):
        path, role = concrete(template), operation["x-role"]
        assert role == (
            "nobody" if path in OPEN else "viewer" if method in READS else "operator"
        ), (method, path)
        assert ("401" in operation["responses"] or path == "/metrics") == (path not in OPEN)
        assert bool(operation["security"]) == (path not in OPEN)
        before = closed.rest.tree()
        for token in ("", EXPIRED, REVOKED, OPERATOR[:-1], OPERATOR + "x", "forged"):
            closed.rest.clock.advance(WINDOW_S)
            refused = closed.status(method.upper(), path, token)
            assert (refused == 401) == (role != "nobody"), (method, path, token)
        viewer = closed.status(method.upper(), path, VIEWER)
        assert (viewer == 403) == (role == "operator"), (method, path)
        if role == "operator":
            assert closed.rest.tree() == before, (method, path)
        assert closed.status(method.upper(), path, OPERATOR) not in (401, 403, 429)


@pytest.mark.parametrize("path", PAGES)
def test_files_and_the_document_are_closed_too(closed: Closed, path: str) -> None:
    assert closed.status("GET", path) == 401
    assert closed.status("GET", path, "forged") == 401
    assert closed.status("GET", path, VIEWER) == (404 if path.endswith("nowhere") else 200)


def test_paths_that_do_not_exist_look_like_all_others(closed: Closed) -> None:
    assert closed.status("GET", "/nowhere") == closed.status("DELETE", "/health") == 401
    assert closed.status("GET", "/nowhere", VIEWER) == 404


@pytest.mark.parametrize(("method", "path"), DRY_RUNS)
def test_a_dry_run_is_a_read(closed: Closed, method: str, path: str) -> None:
    assert closed.status(method, f"{path}?dry_run=true", VIEWER) != 403
    for query in (
        "",
        "?dry_run=false",
        "?dry_run=true&dry_run=false",
        "?dry_run=false&dry_run=true",
    ):
        assert closed.status(method, path + query, VIEWER) == 403


def test_a_token_in_a_url_or_of_another_scheme_counts_for_nothing(closed: Closed) -> None:
    assert closed.status("GET", f"/topics?token={VIEWER}&access_token={VIEWER}") == 401
    assert closed.status("GET", "/topics", Authorization=f"Basic {VIEWER}") == 401


def test_tokens_are_read_again_when_their_file_changes(closed: Closed) -> None:
    assert closed.status("GET", "/topics", REVOKED) == 200
    closed.viewers.write_text(f"victor {VIEWER}\n")
    assert closed.status("GET", "/topics", REVOKED) == 401
    closed.viewers.write_text("")
    assert closed.status("GET", "/topics", VIEWER) == 401


def test_a_file_that_goes_wrong_locks_nobody_out(
    closed: Closed, caplog: pytest.LogCaptureFixture
) -> None:
    closed.viewers.write_text("victor short\n")
    assert closed.status("GET", "/topics", VIEWER) == 200
    closed.operators.unlink()
    assert closed.status("POST", "/admin/freeze", OPERATOR) == 200
    assert "line 1" in caplog.text
    assert "short" not in caplog.text


def test_an_address_with_failed_logins_waits(closed: Closed) -> None:
    assert closed.status("GET", "/topics", VIEWER) == 200
    for _ in range(FAILURES):
        assert closed.status("GET", "/topics", "forged") == 401
    headers = {"Authorization": "Bearer forged"}
    response = closed.rest.call("GET", "/topics", headers=headers)
    problem_of(response, 429)
    assert 0 < int(response.headers["Retry-After"]) <= WINDOW_S
    assert closed.status("GET", "/topics", OPERATOR) == 429  # a guess that is right
    assert closed.status("GET", "/topics", VIEWER) == 200  # was accepted before
    closed.rest.clock.advance(WINDOW_S)
    assert closed.status("GET", "/topics", OPERATOR) == 200


def test_the_dashboard_logs_in_with_a_cookie(closed: Closed) -> None:
    client = closed.rest.client
    for page in ("/", "/list"):
        assert client.get(page).headers["Location"] == "login"
    pages = ("topic?topic=orders", "worker?worker=w1", "groups", "cutovers", "cutover?name=move")
    for page in (f"/show/{each}" for each in pages):
        assert client.get(page).headers["Location"] == "../login"
    assert client.post("/login", data={"token": "forged"}).status_code == 401
    assert client.get_cookie(COOKIE) is None
    response = client.post("/login", data={"token": OPERATOR})
    assert response.headers["Location"] == "./"
    (cookie,) = response.headers.getlist("Set-Cookie")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/").status_code == 200
    assert client.post("/admin/freeze").status_code == 200
    foreign = client.post("/admin/freeze", headers={"Origin": "http://elsewhere.example"})
    assert foreign.status_code == 403
    client.post("/logout")
    assert client.get("/topics").status_code == 401


def test_a_login_from_another_site_is_refused(closed: Closed) -> None:
    response = closed.rest.client.post(
        "/login", data={"token": OPERATOR}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert response.status_code == 403


def test_the_log_names_who_wrote_and_no_token(
    closed: Closed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        closed.status("POST", "/admin/freeze", OPERATOR)
        closed.status("POST", "/admin/freeze", VIEWER)
        closed.status("POST", "/admin/freeze", "forged-0123456789abcdef")
    assert "POST /admin/freeze by olga from" in caplog.text
    assert "POST /admin/freeze by victor from" in caplog.text
    for token in (OPERATOR, VIEWER, "forged-0123456789abcdef"):
        assert token not in caplog.text


def test_a_path_cannot_forge_a_line_of_the_log(
    closed: Closed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        closed.status("POST", "/topics/a%0Aforged%1B[31m", OPERATOR)
    (line,) = [record.getMessage() for record in caplog.records if "POST" in record.getMessage()]
    assert "\n" not in line
    assert "\x1b" not in line
    assert "by olga" in line


def test_without_a_login_everything_is_open(new_rest: NewRest) -> None:
    assert new_rest().call("POST", "/admin/freeze").status_code == 200


def test_a_change_is_stored_and_logged_with_who_made_it(
    closed: Closed, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has what was there before and after."""
    caplog.set_level(logging.INFO)
    closed.rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    for path in ("/topics/orders/pause", "/admin/freeze", "/rebalance"):
        assert closed.status("POST", path, OPERATOR, **{"X-Request-Id": "night"}) == 200
    intent = closed.rest.intent("orders")
    assert intent is not None
    switches = decode_switches(closed.rest.tree()[closed.rest.paths.settings].data)
    for stored in (intent.request_id, switches.rebalance_requested):
        assert (id_of(stored)[:6], by_of(stored)) == ("night-", "olga")
    logged = "\n".join(caplog.messages)
    assert "changed topics/source.target/orders: state active -> paused (request night-" in logged
    assert re.search("changed settings: created: .*; frozen true; .* by olga\\)", logged)
    assert "POST /topics/orders/pause by olga" in logged
