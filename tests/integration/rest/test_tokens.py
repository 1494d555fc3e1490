"""The login as it is served: over sockets, and for what never reaches a view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.fleet.rest_server import NOWHERE, Rest
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

OPERATOR, VIEWER = "operator-" + "0123456789abcdef", "viewer-" + "0123456789abcdef"
CLOSED = ("/topics", "/metrics", "/openapi.json", "/dashboard/dashboard.js", "/export", "/nowhere")


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    folder: Path = tmp_path_factory.mktemp("tokens")
    (folder / "operators").write_text(f"olga {OPERATOR}\n")
    (folder / "viewers").write_text(f"victor {VIEWER}\n")
    access = (
        f"{{mode: tokens, operator_tokens_file: {folder / 'operators'},"
        f" viewer_tokens_file: {folder / 'viewers'}}}"
    )
    rest = Rest(NOWHERE, folder, more=f"controller: {{access: {access}}}\n")
    eventually(lambda: rest.status("/health") == 200, 20, "REST responds")
    yield rest
    rest.parent.kill_tree()


def status(rest: Rest, method: str, path: str, **headers: str) -> int:
    return rest.request(method, path, headers=headers).status_code


@pytest.mark.parametrize("path", CLOSED)
def test_nothing_is_served_without_a_token(rest: Rest, path: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE", "PATCH", "TRACE"):
        assert status(rest, method, path) == 401, method
    assert status(rest, "GET", path, Authorization=f"Bearer {VIEWER}") != 401


def test_a_cross_site_write_is_refused_with_a_token_too(rest: Rest) -> None:
    for foreign in ({"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        login = {"Authorization": f"Bearer {OPERATOR}"}
        assert status(rest, "POST", "/admin/freeze", **login, **foreign) == 403
    rebound = {"Host": "elsewhere.example", "Authorization": f"Bearer {OPERATOR}"}
    assert status(rest, "GET", "/export", **rebound) == 403


def test_roles_over_a_socket(rest: Rest) -> None:
    assert status(rest, "POST", "/admin/freeze", Authorization=f"Bearer {VIEWER}") == 403
    assert status(rest, "POST", "/admin/freeze", Authorization=f"Bearer {OPERATOR}") == 503
    assert status(rest, "POST", "/admin/freeze", Cookie=f"ureplicator_token={OPERATOR}") == 503
