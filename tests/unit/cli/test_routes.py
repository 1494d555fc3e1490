"""`ureplicator routes`."""

from __future__ import annotations

import json

from ureplicator_controller.api.app import TIMELINE
from ureplicator_controller.core.usage import CopyCost
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture


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


def test_limits_are_set_listed_and_cleared(url: str) -> None:
    assert "none" in run("limits", url=url).stdout
    assert "limits" not in run("status", url=url).stdout
    done = run("limits", "set", "route", "source.target", "2.5MB/s", url=url)
    assert done.stdout == "route source.target: at most 2.5 MB/s\n"
    run("limits", "set", "topic", "orders", "500k", url=url)
    run("limits", "set", "worker", "w1", "1G", "--json", url=url)
    shown = json.loads(run("limits", "--json", url=url).stdout)["limits"]
    assert [(limit["kind"], limit["bytesPerSecond"]) for limit in shown] == [
        ("route", 2_500_000),
        ("topic", 500_000),
        ("worker", 1_000_000_000),
    ]
    table = run("limits", "list", url=url).stdout
    assert "500 kB/s" in table
    assert "1 GB/s" in table
    assert "limits      3: ureplicator limits\n" in run("status", url=url).stdout
    cleared = run("limits", "clear", "topic", "orders", url=url)
    assert cleared.stdout == "topic source.target/orders: is not limited\n"


def test_rates_and_kinds_that_are_no_such(url: str) -> None:
    for rate in ("fast", "-1", "2 MB/s", "1T"):
        wrong = run("limits", "set", "route", "source.target", rate, url=url)
        assert wrong.exit_code == 2
    assert run("limits", "set", "cluster", "source", "1M", url=url).exit_code == 2
    refused = run("limits", "set", "route", "source.target", "1k", url=url)
    assert refused.exit_code == 1
    assert "1000 is not a byte limit" in refused.stderr


def test_what_was_copied_in_a_day(url: str, rest: RestFixture) -> None:
    assert "none" in run("routes", "usage", url=url).stdout
    store = rest.app.extensions[TIMELINE].store
    cost = CopyCost(records=5_000, bytes=2_500_000_000, cpu_s=1_800.0)
    store.add_usage({ROUTE: cost}, at_ms=rest.clock.wall_ms())
    shown = run("routes", "usage", url=url).stdout
    for text in ("source.target", "2.500", "5000", "0.500", "200.00", "1970-01-01T00:16:40Z"):
        assert text in shown
    (usage,) = json.loads(run("routes", "usage", "--json", url=url).stdout)["usage"]
    assert usage["bytes"] == 2_500_000_000
    refused = run("routes", "usage", "--src", "north", "--dst", "south", url=url)
    assert refused.exit_code == 1


def test_settings_of_a_route_are_changed_and_listed(url: str) -> None:
    assert "changed" not in run("routes", "settings", url=url).stdout
    given = (
        "delivery=exactly_once",
        "naming.prefix=west.",
        "auto_whitelist.include=[orders, x-.*]",
    )
    done = run("routes", "set", "source.target", *given, url=url)
    changes = {
        "delivery": "exactly_once",
        "naming": {"prefix": "west."},
        "auto_whitelist": {"include": ["orders", "x-.*"]},
    }
    assert done.stdout == f"source.target: {json.dumps(changes, sort_keys=True)}\n"
    shown = json.loads(run("routes", "settings", "--json", url=url).stdout)["source.target"]
    assert shown["changes"] == changes
    assert shown["settings"]["naming"] == {"prefix": "west.", "rename": {}}
    assert run("routes", "settings", url=url).stdout.count("changed") == 3
    planned = run("routes", "set", "source.target", "on_gap=latest", "--dry-run", url=url)
    assert planned.stdout.endswith("(dry run)\n")
    start = run("routes", "set", "source.target", "start=2026-01-31T12:00:00Z", "--json", url=url)
    assert json.loads(start.stdout)["settings"]["start"] == "1769860800000"
    run("routes", "unset", "source.target", "delivery", "naming.prefix", "start", url=url)
    left = run("routes", "unset", "source.target", "auto_whitelist", url=url)
    assert left.stdout == "source.target: all settings are those of the file\n"


def test_settings_that_are_wrong_are_refused(url: str) -> None:
    refused = run("routes", "set", "source.target", "handlers=[]", url=url)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("settings: handlers: is in the file only (settings that can")
    for wrong in ("delivery", "=x", "naming=[", "naming=x naming.prefix=y"):
        assert run("routes", "set", "source.target", *wrong.split(), url=url).exit_code == 2
