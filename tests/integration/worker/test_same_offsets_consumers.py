"""Consumers that keep their offsets by themselves, and groups, go over to a target with the same offsets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import COUNT, SAME, Takeover
from ureplicator_testkit.records import summing_reader
from ureplicator_testkit.records.consumers import Values, open_member, read_next
from ureplicator_testkit.records.topics import QUIET, read_all
from ureplicator_testkit.servers.java import (
    KAFKA_VERSIONS,
    QUICK_START,
    Java,
    java_executable,
    kafka_jars,
)
from ureplicator_testkit.servers.processes import Process

TURNS = 6
ENDS_S = 60


@pytest.fixture(params=["plain", "transactions"])
def lane(lane: RealLane, request: pytest.FixtureRequest) -> RealLane:
    """A topic that is copied with the same offsets; the source's has transactions, or none."""
    owners = Takeover(lane)
    if request.param == "plain":
        owners.make(2)
        owners.fill(COUNT)
    else:
        owners.make(1)
        for turn in range(TURNS):
            lane.fill_in_turn(turn)
    owners.finish(settings=SAME)
    return lane


def records(lane: RealLane) -> dict[int, list[bytes]]:
    """Values of each partition at the source."""
    found = read_all(lane.source.bootstrap, lane.topic)
    return {number: [row.value or b"" for row in rows] for number, rows in found.items()}


def by_partition(*parts: Values) -> dict[int, list[bytes]]:
    """Values that were read one part after the other."""
    found: dict[int, list[bytes]] = {}
    for part in parts:
        for number, value in part:
            found.setdefault(number, []).append(value)
    return found


def read_on(bootstrap: str, topic: str, file: Path, count: int) -> Values:
    """Read on from the offsets in a file, which are then those of the next records."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "auto.offset.reset": "error"}
    settings |= {"enable.auto.commit": "false", "isolation.level": "read_committed"}
    begin = [TopicPartition(topic, int(n), at) for n, at in json.loads(file.read_text()).items()]
    with closing(Consumer({**settings, **QUIET})) as consumer:
        consumer.assign(begin)
        found = read_next(consumer, count)
        after = {place.partition: place.offset for place in consumer.position(begin)}
    known = {place.partition: place.offset for place in begin}
    file.write_text(json.dumps({n: at if at >= 0 else known[n] for n, at in after.items()}))
    return found


def test_a_consumer_with_its_offsets_in_a_file(lane: RealLane, tmp_path: Path) -> None:
    wanted, file = records(lane), tmp_path / "offsets.json"
    total = sum(map(len, wanted.values()))
    file.write_text(json.dumps(dict.fromkeys(wanted, 0)))
    before = read_on(lane.source.bootstrap, lane.topic, file, total // 2)
    behind = read_on(lane.target.bootstrap, lane.topic, file, total - total // 2)
    assert by_partition(before, behind) == wanted


def groups_tool(folder: Path, bootstrap: str, *words: str | Path) -> str:
    """Output of `kafka-consumer-groups`, of the oldest Kafka that is supported."""
    options = ("-Xmx128m", *QUICK_START)
    java = Java(java_executable(), f"{kafka_jars(KAFKA_VERSIONS[0])}/*", options)
    command = java.command(
        "kafka.admin.ConsumerGroupCommand", "--bootstrap-server", bootstrap, *words
    )
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=3 * ENDS_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout
    return done.stdout


def test_a_group_by_the_file_of_kafkas_own_tool(lane: RealLane, tmp_path: Path) -> None:
    """The commands are those of docs/same-offsets.md."""
    wanted, group, file = records(lane), f"{lane.topic}-group", tmp_path / "offsets.csv"
    total = sum(map(len, wanted.values()))
    of_group = ("--group", group, "--topic", lane.topic, "--reset-offsets")
    with closing(open_member(lane.source.bootstrap, group, lane.topic)) as member:
        begin = [TopicPartition(lane.topic, number, 0) for number in wanted]
        member.commit(offsets=begin, asynchronous=False)
        before = read_next(member, total // 2)
        member.commit(asynchronous=False)
    exported = groups_tool(
        tmp_path, lane.source.bootstrap, *of_group, "--to-current", "--dry-run", "--export"
    )
    file.write_text(exported)
    reset = ("--group", group, "--reset-offsets", "--from-file", file, "--execute")
    groups_tool(tmp_path, lane.target.bootstrap, *reset)
    with closing(open_member(lane.target.bootstrap, group, lane.topic)) as member:
        behind = read_next(member, total - total // 2)
    assert by_partition(before, behind) == wanted


def summing(folder: Path, store: Path, *words: str) -> Process:
    bootstrap, topic, *hold = words
    module = [sys.executable, "-m", summing_reader.__name__]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command: Sequence[str | Path] = [*module, bootstrap, topic, store, *hold]
    return Process("summing", command, log=folder / "summing.log", env=environment)


def test_a_reader_that_commits_sums_and_offsets_together(lane: RealLane, tmp_path: Path) -> None:
    """It is killed within a transaction of its store, and goes on at the target."""
    source, target, topic = lane.source.bootstrap, lane.target.bootstrap, lane.topic
    total = sum(map(len, records(lane).values()))
    alone, moved = tmp_path / "alone.sqlite", tmp_path / "moved.sqlite"
    assert summing(tmp_path, alone, source, topic).wait(ENDS_S) == 0
    killed = summing(tmp_path, moved, source, topic, str(total // 2))
    try:
        killed.wait_for_line(summing_reader.HOLDS, ENDS_S)
    finally:
        killed.kill_tree()
    read = sum(records for _, records, _ in summing_reader.stored(moved).values())
    assert 0 < read < total // 2
    assert summing(tmp_path, moved, target, topic).wait(ENDS_S) == 0
    assert summing_reader.stored(moved) == summing_reader.stored(alone)
