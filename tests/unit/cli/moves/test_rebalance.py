"""`ureplicator balance`, `freeze`, `unfreeze` and `rebalance`."""

from __future__ import annotations

import json

from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import RestFixture


def test_balancing_and_freezing(url: str) -> None:
    assert run("balance", "off", url=url).stdout == "balancing is off\n"
    assert run("freeze", url=url).stdout == "the fleet is frozen\n"
    shown = run("balance", "status", url=url).stdout
    assert "balancing is off" in shown
    assert "frozen" in shown
    shown_json = json.loads(run("balance", "status", "--json", url=url).stdout)
    assert shown_json == {"auto_balancing": False, "frozen": True}
    assert run("unfreeze", url=url).exit_code == 0
    assert run("balance", "on", url=url).stdout == "balancing is on\n"


def test_rebalancing(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    refused = run("rebalance", "--dry-run", url=url)
    assert (refused.exit_code, refused.stderr) == (
        1,
        "no controller leads: nothing would be moved (start a controller)\n",
    )
    rest.put_leader()
    rest.add_worker("w1")
    assert "orders/0" in run("rebalance", "--dry-run", url=url).stdout
    assert "request" in run("rebalance", url=url).stdout
    assert json.loads(run("rebalance", "--json", url=url).stdout)["rebalance"] == "requested"
