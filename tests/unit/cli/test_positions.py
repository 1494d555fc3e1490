"""`ureplicator positions`."""

from __future__ import annotations

import json

import pytest

from ureplicator_common.model import position_group
from ureplicator_common.znode_contents import PositionChange, TopicIntent
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

GROUP = position_group(fleet="test", route=ROUTE)


@pytest.fixture
def copied(rest: RestFixture) -> RestFixture:
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    for number in range(2):
        rest.logs["source"].hold("orders", number, 10, 50)
        rest.positions.put(GROUP, "orders", number, 20)
    return rest


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]


def offsets(rest: RestFixture) -> dict[int, int]:
    intent = rest.intent("orders")
    assert intent is not None
    return {number: change.offset for number, change in intent.positions.items()}


def test_showing_positions(copied: RestFixture, url: str) -> None:
    copied.put_intent(
        "orders",
        TopicIntent(2, 2, positions={1: PositionChange(-1, "r", "done")}, target_topic="orders"),
    )
    copied.positions.put(GROUP, "orders", 1, -1)
    assert rows(run("positions", "show", "orders", url=url).stdout) == [
        ["0", "20", "10 to 50", "30", "", "", "", ""],
        ["1", "none", "10 to 50", "", "", "", "forget: done", ""],
    ]
    assert len(rows(run("positions", "show", "orders/1", url=url).stdout)) == 1
    assert json.loads(run("positions", "show", "orders", "--json", url=url).stdout)["partitions"]


@pytest.mark.parametrize(
    ("to", "offset"), [("earliest", 10), ("latest", 50), ("33", 33), ("2026-01-01T00:00Z", 50)]
)
def test_setting_positions(copied: RestFixture, url: str, to: str, offset: int) -> None:
    copied.clock.advance(1_800_000_000)
    shown = run("positions", "set", "orders/1", to, "--dry-run", url=url)
    assert (shown.exit_code, offsets(copied)) == (0, {})
    assert "requested" not in shown.stdout
    (row,) = rows(shown.stdout)
    assert row[:3] == ["1", "20", str(offset)]
    done = run("positions", "set", "orders/1", to, url=url)
    assert offsets(copied) == {1: offset}
    assert "ureplicator positions show orders/1" in done.stdout


def test_seeding_and_forgetting(copied: RestFixture, url: str) -> None:
    for number in range(2):
        copied.source_groups.put("theirs", "orders", number, 40)
    assert run("positions", "seed", "orders", "theirs", "--dry-run", url=url).exit_code == 0
    assert run("positions", "forget", "orders", "--dry-run", url=url).exit_code == 0
    assert offsets(copied) == {}
    run("positions", "seed", "orders", "theirs", url=url)
    assert offsets(copied) == {0: 40, 1: 40}
    shown = run("positions", "forget", "orders/0", url=url).stdout
    assert rows(shown)[0][2] == "none, begins at 10"
    assert offsets(copied) == {0: -1, 1: 40}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["set", "orders/1", "51"], "offset: orders/1: offset 51 is out of range"),
        (["set", "orders/1", "tomorrow"], 'time: "tomorrow" is not a time'),
        (["set", "orders/x", "latest"], 'partition: "x" is not a partition number'),
        (["set", "quiet", "latest"], "ureplicator topics lists whitelisted topics"),
        (["seed", "orders", "strangers"], "group: group strangers has no offsets of orders"),
    ],
)
def test_a_refusal_is_one_line(copied: RestFixture, url: str, words: list[str], error: str) -> None:
    result = run("positions", *words, url=url)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert error in result.stderr
    assert offsets(copied) == {}


def test_wrong_usage(url: str) -> None:
    assert run("positions", "show", "orders/", url=url).exit_code == 2
    assert run("positions", "set", "orders", url=url).exit_code == 2
