"""`ureplicator claims`."""

from __future__ import annotations

import json

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.claim_records import Claim
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import RestFixture

CLAIM = Claim("gone", "orders", "old.target", "old-id", "sales", since_ms=1_769_860_800_000)


def test_claims_are_listed_and_withdrawn(rest: RestFixture, url: str) -> None:
    log = rest.claims["target"].log()
    log.write(CLAIM)
    log.write(Claim("other", "orders", "far.target", "far-id", "orders"))
    rows = [line for line in run("claims", url=url).stdout.splitlines() if "/orders" in line]
    first, second = ([cell.strip() for cell in row.split("│")[1:-1]] for row in rows)
    assert first == ["target/orders", "gone", "old.target/sales", "2026-01-31T12:00:00Z", ""]
    assert second[1:] == ["other", "far.target/orders", "not known", "behind another"]
    assert len(json.loads(run("claims", "list", "--json", url=url).stdout)["claims"]) == 2
    done = run("claims", "withdraw", "orders", "--fleet", "gone", url=url)
    assert done.stdout == "orders: the claim of fleet gone is withdrawn\n"
    assert [claim.fleet for claim, _ in rest.claims["target"].log().read().each()] == ["other"]
    refused = run("claims", "withdraw", "orders", "--fleet", "gone", url=url)
    assert refused.exit_code == 1
    assert "fleet gone has no claim on orders of target" in refused.stderr


def test_a_cluster_that_is_away_is_named(rest: RestFixture, url: str) -> None:
    rest.claims["target"].failure = ClusterUnavailable("no response")
    assert "claims on target are not known: no response" in run("claims", url=url).stderr
