"""`ureplicator routes`."""

from __future__ import annotations

import json

from ureplicator_testkit.control.command import run


def test_pausing_and_resuming_a_route(url: str) -> None:
    run("topics", "add", "orders", url=url)
    assert "active" in run("routes", url=url).stdout
    assert "paused" not in run("status", url=url).stdout
    paused = run("routes", "pause", "source.target", url=url)
    assert paused.stdout == "source.target: is paused\n"
    assert "paused" in run("routes", "list", url=url).stdout
    shown = run("status", url=url).stdout
    assert "paused      source.target\n" in shown
    assert "(4 paused)" in shown
    resumed = run("routes", "resume", "source.target", "--json", url=url)
    assert json.loads(resumed.stdout) == {"route": "source.target", "paused": False}
    shown_json = json.loads(run("routes", "--json", url=url).stdout)["routes"]
    assert shown_json["source.target"]["paused"] is False


def test_a_route_that_is_not_configured(url: str) -> None:
    refused = run("routes", "pause", "north.south", url=url)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "route: no route north.south is configured (the routes are source.target)\n"
    )
