"""`ureplicator groups`, `offsets` and `failover`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ureplicator_common.model import RouteSettings
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.memory_copied import BASE
from ureplicator_testkit.control.rest_fixture import RestFixture

FIRST = ("orders", 0)


@pytest.fixture
def url(rest: RestFixture) -> Iterator[str]:
    with serving(rest) as url:
        yield url


@pytest.fixture(autouse=True)
def copied(rest: RestFixture) -> RestFixture:
    rest.publish(RouteSettings())
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.groups.add("billing", {FIRST: 30})
    return rest


def test_groups(url: str) -> None:
    assert "pending" in run("groups", url=url).stdout
    shown = run("groups", "show", "billing", url=url).stdout
    assert str(BASE + 30) in shown
    assert json.loads(run("groups", "show", "billing", "--json", url=url).stdout)["partitions"]


def test_a_failover_is_planned_and_then_applied(copied: RestFixture, url: str) -> None:
    planned = run("failover", "plan", "--groups", "billing", url=url)
    assert (planned.exit_code, copied.groups_there.commits) == (0, [])
    assert "0 offsets are read again" in planned.stdout
    applied = run("failover", "apply", "--groups", "billing", url=url)
    assert (applied.exit_code, "synced" in applied.stdout) == (0, True)
    assert copied.groups_there.offset("billing", FIRST) == BASE + 30


@pytest.mark.parametrize(
    "words",
    [
        ("groups", "show", "billing"),
        ("failover", "plan", "--group", "billing"),
        ("offsets", "translate", "--group", "billing"),
    ],
)
def test_what_is_missing_for_a_translation_is_said(
    copied: RestFixture, url: str, words: tuple[str, ...]
) -> None:
    hint = "no map: set offset_map: true for the route; ureplicator audit --offset-map adds what"
    assert hint not in run(*words, url=url).stdout
    copied.copied.first = 50
    assert hint in run(*words, url=url).stdout


def test_a_plan_says_what_open_transactions_hold_back(copied: RestFixture, url: str) -> None:
    copied.groups.add("other", {FIRST: 40})
    copied.copied.held = 7
    planned = run("failover", "plan", "--topics", "orders", url=url)
    assert "not all is copied" in planned.stdout
    assert "hold 7 offsets of 1 partitions back" in planned.stdout
    copied.copied.held = 0
    assert "not all is copied" not in run("failover", "plan", "--topics", "orders", url=url).stdout


def test_a_group_that_is_not_ready_fails(copied: RestFixture, url: str) -> None:
    copied.groups_there.add("billing", {FIRST: 3}, state="Stable")
    applied = run("failover", "apply", "--topics", "orders", url=url)
    assert applied.exit_code == 1
    assert "not ready: billing" in applied.stderr


@pytest.mark.parametrize("options", [(), ("--groups", "a", "--topics", "b")])
def test_either_groups_or_topics(url: str, options: tuple[str, ...]) -> None:
    assert run("failover", "plan", *options, url=url).exit_code == 2


def test_a_name_that_is_not_there(url: str) -> None:
    refused = run("failover", "apply", "--groups", "biling", url=url)
    assert refused.exit_code == 1
    assert "ureplicator groups lists the groups of a route" in refused.stderr


def test_translating(url: str) -> None:
    one = ("--topic", "orders", "--partition", "0", "--offset")
    found = run("offsets", "translate", *one, "30", url=url).stdout
    assert f"at {BASE + 30} of the target" in found
    back = run("offsets", "translate", *one, str(BASE + 30), "--to", "source", url=url).stdout
    assert "at 30 of the source" in back
    assert str(BASE + 30) in run("offsets", "translate", "--group", "billing", url=url).stdout
    assert run("offsets", "translate", "--topic", "orders", url=url).exit_code == 2


def test_a_group_without_offsets_on_the_route_is_not_ready(copied: RestFixture, url: str) -> None:
    copied.groups.add("idle", {("elsewhere", 0): 7})
    applied = run("failover", "apply", "--groups", "idle", url=url)
    assert applied.exit_code == 1
    assert "not ready: idle" in applied.stderr
