"""`ureplicator topics`."""

from __future__ import annotations

import json

import pytest

from ureplicator_cli.output import duration
from ureplicator_common.kafka import BatchTime, Lifetime
from ureplicator_common.model import OffsetShift, Partition, PartitionState, position_group
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

SAME = OffsetShift(0, 100)


def test_a_topics_life(url: str) -> None:
    added = run("topics", "add", "orders", "--partitions", "2", url=url)
    assert (added.exit_code, added.stderr) == (0, "")
    assert "2 partitions" in added.stdout
    assert "4 partitions" in run("topics", "expand", "orders", "4", url=url).stdout
    assert run("topics", url=url).stdout == "orders\n"
    assert run("topics", "list", url=url).stdout == "orders\n"
    assert "no longer" in run("topics", "delete", "orders", url=url).stdout


def test_warnings_about_the_target_topic(rest: RestFixture, url: str) -> None:
    """One line on stderr each; the topic is copied."""
    for topic in ("orders", "quiet"):
        rest.target.put(topic, 4)
    rest.target.defaults = {"message.timestamp.after.max.ms": "3600000"}
    result = run("topics", "add", "orders", url=url)
    assert (result.exit_code, "4 partitions" in result.stdout) == (0, True)
    assert result.stderr.startswith(
        "warning: target topic orders: message.timestamp.after.max.ms is 3600000, "
    )
    assert result.stderr.count("\n") == 1
    result = run("topics", "add", "quiet", "--json", url=url)
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(json.loads(result.stdout)["warnings"]) == 1


def test_a_refusal_is_one_line_and_names_the_hint(url: str) -> None:
    run("topics", "add", "orders", url=url)
    for words in (["add", "orders"], ["add", "nowhere"], ["expand", "orders", "9"]):
        result = run("topics", *words, url=url)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert "(" in result.stderr


def test_showing_a_topic(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    rest.add_worker("w1")
    rest.place("orders", {0: "w1", 1: "w1"})
    rest.put_states(
        "w1", "orders", {0: PartitionState.ONLINE, 1: PartitionState.ERROR}, reason="[big]"
    )
    table = run("topics", "show", "orders", url=url).stdout
    assert "w1 ONLINE" in table
    assert "[big]" in table
    assert "not placed yet" in table


def test_showing_how_far_behind_a_topic_is(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    group = position_group(fleet="test", route=ROUTE)
    logs = rest.logs["source"]
    for number in range(3):
        logs.hold("orders", number, 0, 100)
    for number, offset in ((0, 40), (1, 100)):
        rest.positions.put(group, "orders", number, offset)
    logs.logs["orders", 0].times = [BatchTime(0, 99, rest.clock.wall_ms() - 600_000)]
    logs.lives["orders"] = Lifetime(retention_ms=1_800_000)
    rows = [
        [cell.strip() for cell in line.strip("│┃").split("│")]
        for line in run("topics", "show", "orders", url=url).stdout.splitlines()
        if line.startswith("│")
    ]
    assert [row[3:6] for row in rows] == [
        ["40", "60", "10 min"],
        ["100", "0", "0 s"],
        ["", "", ""],
        ["", "", ""],
    ]
    whys = ("may delete it in 20 min", "", "never committed", "no leader")
    assert all(why in row[6] for row, why in zip(rows, whys, strict=True))


@pytest.mark.parametrize(
    ("shift", "whole", "words"),
    [
        (SAME, "same", "same since 100"),
        (
            OffsetShift(1, 2_000, "fence"),
            "same in 3 of 4 partitions",
            "shifted by 1 since 2,000 (fence)",
        ),
    ],
)
def test_showing_whether_offsets_are_the_same(
    rest: RestFixture, url: str, shift: OffsetShift, whole: str, words: str
) -> None:
    run("topics", "add", "orders", url=url)
    rest.add_worker("w1")
    rest.put_states("w1", "orders", dict.fromkeys(range(4), PartitionState.ONLINE))
    loads = [PartitionLoad(offsets=found) for found in (shift, SAME, SAME, SAME)]
    rest.put_loads("w1", {Partition(ROUTE, "orders", n): load for n, load in enumerate(loads)})
    title, _, _, _, row, *rows = run("topics", "show", "orders", url=url).stdout.splitlines()
    assert title.rstrip().endswith(f"active, offsets {whole}")
    assert words in row
    assert sum("same since 100" in each for each in rows) == 3


def test_mapped_offsets_are_not_shown(url: str) -> None:
    run("topics", "add", "orders", url=url)
    assert "offsets" not in run("topics", "show", "orders", url=url).stdout


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.2, "0 s"), (119.4, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_json_output(url: str) -> None:
    assert json.loads(run("topics", "add", "orders", "--json", url=url).stdout)["partitions"] == 4
    assert json.loads(run("topics", "list", "--json", url=url).stdout) == {"topics": ["orders"]}
    for words in (["topics", "show", "orders"], ["instances"], ["status"]):
        assert json.loads(run(*words, "--json", url=url).stdout)


def test_pausing_and_resuming(url: str) -> None:
    run("topics", "add", "orders", url=url)
    assert (
        run("topics", "pause", "orders", url=url).stdout == "orders: is paused on source.target\n"
    )
    assert "is active" in run("topics", "resume", "orders", url=url).stdout
    assert run("topics", "pause", "quiet", url=url).exit_code == 1


def test_positions_are_deleted_only_on_request(rest: RestFixture, url: str) -> None:
    for flags, forgotten in (([], False), (["--forget-positions"], True)):
        run("topics", "add", "orders", url=url)
        assert run("topics", "delete", "orders", *flags, url=url).exit_code == 0
        intent = rest.intent("orders")
        assert intent is not None
        assert intent.forget_positions == forgotten
        rest.remove("orders")


def test_no_topics_print_nothing_on_standard_output(url: str) -> None:
    result = run("topics", url=url)
    assert (result.stdout, result.stderr) == ("", "no topics\n")
