"""Tokens of an identity provider, against the server as it is started and a provider that signs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest

from ureplicator_testkit.fleet.rest_server import Rest
from ureplicator_testkit.secured.certificates import Authority
from ureplicator_testkit.secured.identity_provider import IdentityProvider, SigningKey
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

NOWHERE = "127.0.0.1:1"
"""No ZooKeeper is needed."""
OPEN = {"/health", "/ready"}
READS = {"GET", "HEAD"}


@dataclass
class Fleet:
    rest: Rest
    provider: IdentityProvider
    folder: Path
    _addresses: Iterator[int] = field(default_factory=lambda: itertools.count(2))

    def call(
        self, method: str, path: str, token: str = "", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Call from an address of its own, so that failed logins are counted for no other call."""
        number = next(self._addresses)
        connection = http.client.HTTPConnection(
            "127.0.0.1",
            self.rest.port,
            timeout=20,
            source_address=(f"127.1.{number // 250}.{number % 250 + 1}", 0),
        )
        try:
            given = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, headers=given | headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        return response.status, json.loads(body) if body.startswith(b"{") else {}

    def status(self, method: str, path: str, token: str = "") -> int:
        return self.call(method, path, token)[0]

    @property
    def viewer(self) -> str:
        return self.provider.token("victor", "readers")

    @property
    def operator(self) -> str:
        return self.provider.token("olga", "on-call")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder: Path = tmp_path_factory.mktemp("oidc")
    authority = Authority(folder / "authority")
    (folder / "operators").write_text("erik token-of-a-file-0123456789\n")
    with IdentityProvider(authority.issue("provider")) as provider:
        access = (
            f"{{mode: tokens, operator_tokens_file: {folder / 'operators'}, oidc: {{issuer:"
            f" '{provider.issuer}', audience: ureplicator, roles_claim: realm_access.roles,"
            " viewer_roles: [readers], operator_roles: [on-call],"
            f" ca_file: {authority.certificate}}}}}"
        )
        rest = Rest(NOWHERE, folder, more=f"controller: {{access: {access}}}\n")
        try:
            eventually(lambda: rest.status("/health") == 200, 30, "REST responds")
            yield Fleet(rest, provider, folder)
        finally:
            rest.parent.kill_tree()


def part(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def unsigned(claims: dict[str, Any], key: SigningKey, algorithm: str) -> str:
    return f"{part({'alg': algorithm, 'kid': key.id})}.{part(claims)}."


def signed_with_the_public_key(claims: dict[str, Any], key: SigningKey) -> str:
    text = f"{part({'alg': 'HS256', 'kid': key.id})}.{part(claims)}"
    mac = hmac.new(key.public_pem, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def forged(provider: IdentityProvider) -> dict[str, str]:
    """Tokens that must not count, by what is wrong with them."""
    key, claims = provider.key, provider.claims("olga", "on-call")
    good = provider.token("olga", "on-call")
    head, body, signature = good.split(".")
    stranger = SigningKey(key.id)
    without = {name: {k: v for k, v in claims.items() if k != name} for name in claims}
    return {
        "expired": provider.token("olga", "on-call", life_s=-120),
        "not yet valid": provider.signed(claims | {"nbf": time.time() + 600}),
        "of a stranger's key": provider.signed(claims, key=stranger),
        "of a key that is not known": provider.signed(claims, key=SigningKey("unknown")),
        "with a key of its own": provider.signed(
            claims, key=stranger, headers={"jwk": stranger.public, "jku": "https://127.0.0.1:1/k"}
        ),
        "changed": f"{head}.{part(claims | {'sub': 'mallory'})}.{signature}",
        "cut": good[:-6],
        "without signature": f"{head}.{body}.",
        "alg none": unsigned(claims, key, "none"),
        "alg None": unsigned(claims, key, "None"),
        "HS256 with the public key": signed_with_the_public_key(claims, key),
        "for another audience": provider.signed(claims | {"aud": "others"}),
        "of another issuer": provider.signed(claims | {"iss": "https://other.example"}),
        "without key": jwt.encode(claims, key.private, "RS256"),
        "without name": provider.signed(without["sub"]),
        "without end": provider.signed(without["exp"]),
        "without audience": provider.signed(without["aud"]),
        "without issuer": provider.signed(without["iss"]),
        "critical extension": provider.signed(claims, headers={"crit": ["x"], "x": 1}),
        "not a token": "eyJ.eyJ.eyJ",
    }


def calls(fleet: Fleet) -> list[tuple[str, str, str]]:
    status, document = fleet.call("GET", "/openapi.json", fleet.viewer)
    assert status == 200
    return [
        (method.upper(), path.replace("{", "").replace("}", ""), operation["x-role"])
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def test_each_call_of_the_document_asks_for_its_role(fleet: Fleet) -> None:
    viewer, operator = fleet.viewer, fleet.operator
    wrong = forged(fleet.provider)
    refused = ("", wrong["expired"], wrong["of a stranger's key"])
    described = calls(fleet)
    assert len(described) > 50
    for method, path, role in described:
        assert role == ("nobody" if path in OPEN else "viewer" if method in READS else "operator")
        for token in refused:
            assert (fleet.status(method, path, token) == 401) == (role != "nobody"), (method, path)
        assert (fleet.status(method, path, viewer) == 403) == (role == "operator"), (method, path)
        assert fleet.status(method, path, operator) not in (401, 403, 429), (method, path)


def test_tokens_that_are_forged_or_for_others_do_not_count(fleet: Fleet) -> None:
    assert fleet.status("GET", "/topics", fleet.operator) == 503  # no ZooKeeper
    for wrong, token in forged(fleet.provider).items():
        status, problem = fleet.call("GET", "/topics", token)
        assert status == 401, wrong
        assert token not in json.dumps(problem)
    log = (fleet.folder / "rest.log").read_text()
    assert fleet.operator.rpartition(".")[2] not in log


def test_a_caller_without_a_role_may_do_nothing(fleet: Fleet) -> None:
    status, problem = fleet.call("GET", "/topics", fleet.provider.token("nora", "others"))
    assert status == 403
    assert "oidc:nora has no role here" in problem["detail"]


def test_the_log_names_who_wrote(fleet: Fleet) -> None:
    token = fleet.provider.token("olga /\x1b[31m", "on-call")
    assert fleet.status("POST", "/admin/freeze", token) == 503
    log = (fleet.folder / "rest.log").read_text()
    assert "POST /admin/freeze by oidc:olga%20%2F%1B%5B31m from 127.1." in log


def test_a_token_of_a_file_goes_besides(fleet: Fleet) -> None:
    assert fleet.status("GET", "/topics", "token-of-a-file-0123456789") == 503


def test_the_dashboard_logs_in_with_a_token_of_the_provider(fleet: Fleet) -> None:
    operator = fleet.operator
    status, _ = fleet.call("GET", "/dashboard/dashboard.js", Cookie=f"ureplicator_token={operator}")
    assert status == 200


def test_new_keys_count_and_former_ones_do_not(fleet: Fleet) -> None:
    provider, former = fleet.provider, fleet.operator
    assert fleet.status("GET", "/openapi.json", former) == 200
    provider.rotate("second")
    eventually(
        lambda: fleet.status("GET", "/openapi.json", fleet.operator) == 200,
        30,
        "the new key counts",
    )
    assert fleet.status("GET", "/openapi.json", former) == 401


def test_the_last_keys_count_while_the_provider_is_away_and_health_responds(fleet: Fleet) -> None:
    provider, known = fleet.provider, fleet.operator
    assert fleet.status("GET", "/openapi.json", known) == 200
    provider.away = True
    former = provider.key
    try:
        provider.rotate("third")
        eventually(
            lambda: fleet.call("GET", "/openapi.json", fleet.operator)[0] == 503,
            30,
            "a key that cannot be read is no wrong login",
        )
        assert fleet.status("GET", "/openapi.json", known) == 200
        began_s = time.monotonic()
        assert fleet.status("GET", "/health") == 200
        assert time.monotonic() - began_s < 2
        assert "the last ones stay in force" in (fleet.folder / "rest.log").read_text()
    finally:
        provider.key, provider.published, provider.away = former, [former], False
