"""`ureplicator blacklist`."""

from __future__ import annotations

import json

from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import RestFixture


def test_the_blacklist(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    assert "no longer copied" in run("blacklist", "add", "orders/3", url=url).stdout
    assert "orders/3" in run("blacklist", url=url).stdout
    listed = json.loads(run("blacklist", "list", "--json", url=url).stdout)["blacklist"]
    assert [(row["topic"], row["partition"]) for row in listed] == [("orders", 3)]
    for what in ("orders/3", "orders/9", "orders/x", "nowhere/0", "a b"):
        refused = run("blacklist", "add", what, url=url)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.count("\n") == 1
    assert run("blacklist", "remove", "orders/3", url=url).exit_code == 0
    assert run("blacklist", "add", "quiet", url=url).exit_code == 0
    assert "quiet" in run("blacklist", url=url).stdout
    assert json.loads(run("blacklist", "--json", url=url).stdout)["blacklist"] == []
