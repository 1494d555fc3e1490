"""`ureplicator fleets`: several fleets on one page, and what they should not share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from click.testing import Result

from ureplicator_cli.fleets.overlaps import Copy, loops, shared_targets
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import RestFixture

NOWHERE = "http://127.0.0.1:1"
INTENT = TopicIntent(2, 2, target_topic="orders", source_topic_id="s1", target_topic_id="t1")


@pytest.fixture
def two() -> Iterator[tuple[RestFixture, RestFixture]]:
    with ExitStack() as stack:
        west, east = (
            stack.enter_context(closing(RestFixture(fleet=name))) for name in ("west", "east")
        )
        west.put_leader("c2")
        west.add_worker("w1")
        west.put_intent("orders", INTENT)
        yield west, east


def shown(two: tuple[RestFixture, RestFixture], *words: str) -> Result:
    with serving(two[0]) as one, serving(two[1]) as other:
        return run("fleets", one, other, *words)


def test_each_fleet_is_a_row(two: tuple[RestFixture, RestFixture]) -> None:
    found = shown(two)
    assert found.exit_code == 0, found.output
    west = next(line for line in found.stdout.splitlines() if "west" in line)
    assert [cell.strip() for cell in west.strip("│┃ ").split("│")] == [
        *("west", "c2", "1", "1", "0", "2", "0", "2")
    ]
    east = next(line for line in found.stdout.splitlines() if "east" in line)
    assert "none" in east


def test_a_fleet_that_does_not_respond_is_named_and_the_others_are_shown(
    two: tuple[RestFixture, RestFixture],
) -> None:
    with serving(two[0]) as one:
        found = run("fleets", one, NOWHERE)
        as_json = json.loads(run("fleets", one, NOWHERE, "--json").stdout)
    assert found.exit_code == 1
    assert "west" in found.stdout
    assert found.stderr.startswith(NOWHERE)
    assert [fleet["fleet"] for fleet in as_json["fleets"]] == ["west", ""]
    assert as_json["fleets"][1]["failure"]


def test_a_target_topic_of_two_fleets_is_named(two: tuple[RestFixture, RestFixture]) -> None:
    two[1].put_intent("payments", replace(INTENT, source_topic_id="s2"))
    found = shown(two)
    assert found.exit_code == 1
    assert found.stderr == (
        "one target topic, orders, is written by"
        " east source.target/payments and west source.target/orders\n"
    )
    listed = json.loads(shown(two, "--json").stdout)["sharedTargets"]
    assert [[copy["fleet"] for copy in copies] for copies in listed] == [["east", "west"]]


def test_a_circle_over_two_fleets_is_named(two: tuple[RestFixture, RestFixture]) -> None:
    two[1].put_intent("orders", replace(INTENT, source_topic_id="t1", target_topic_id="s1"))
    found = shown(two)
    assert found.exit_code == 1
    assert found.stderr == (
        "records go in a circle: east source.target/orders -> west source.target/orders\n"
    )


def test_two_addresses_of_one_fleet_are_refused(two: tuple[RestFixture, RestFixture]) -> None:
    found = shown((two[0], two[0]))
    assert found.exit_code == 1
    assert "are of the same fleet, west: give one address of each fleet" in found.stderr


def test_no_address_is_wrong_usage() -> None:
    assert run("fleets").exit_code == 2


# --- Overlaps


def copy_of(fleet: str, source_id: str, target_id: str) -> Copy:
    return Copy(fleet, "a.b", source_id, target_id, source_id, target_id)


def test_what_is_not_known_is_not_shared() -> None:
    assert shared_targets([copy_of("f", "s", ""), copy_of("g", "s", "")]) == []
    assert loops([copy_of("f", "", "s"), copy_of("g", "s", "")]) == []


def test_copies_of_one_topic_and_chains_are_allowed() -> None:
    fan_out = [copy_of("f", "s", "t"), copy_of("g", "s", "u"), copy_of("g", "t", "v")]
    assert (shared_targets(fan_out), loops(fan_out)) == ([], [])


def test_each_circle_is_found_once_whatever_the_order() -> None:
    long = [copy_of("f", "1", "2"), copy_of("g", "2", "3"), copy_of("h", "3", "1")]
    short = [copy_of("f", "8", "9"), copy_of("g", "9", "8")]
    found = loops([*long, copy_of("g", "3", "4"), *short])
    assert sorted(found) == sorted([tuple(long), tuple(short)])
    assert sorted(loops([*reversed(short), *reversed(long)])) == sorted(found)
