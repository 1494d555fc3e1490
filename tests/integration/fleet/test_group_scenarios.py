"""Scenarios of MirrorMaker 2's own tests for groups: before the first record, after a restart, far behind."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.consumers import READ_S, alter_offsets, group_offsets
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

RECORDS = 1_000
INTERVAL_S = 0.5
REPORTED = 2
"""Times that passes without a change are reported; between two of them are 20 passes."""


@pytest.fixture(scope="module", params=["at_least_once", "exactly_once"])
def running(make_fleet: Callable[..., Fleet], request: pytest.FixtureRequest) -> Fleet:
    name = f"scenarios-{uuid.uuid4().hex[:8]}"
    route = {
        "delivery": request.param,
        "offset_map": True,
        "sync_group_offsets": {
            "enabled": True,
            "interval_s": INTERVAL_S,
            "groups": {"include": [f"{name}.*"]},
        },
    }
    return make_fleet(name, route=route).start()


@pytest.fixture
def group(running: Fleet) -> str:
    return f"{running.name}.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def filled(source_cluster: KafkaCluster, topic: str) -> str:
    """A topic of one partition with records; nothing of it is copied."""
    create_topic(source_cluster.bootstrap, topic, partitions=1)
    produce_numbered(source_cluster, topic, first=0)
    return topic


def produce_numbered(cluster: KafkaCluster, topic: str, *, first: int) -> None:
    some = [NewRecord(value(topic, first + number)) for number in range(RECORDS)]
    produce(cluster.bootstrap, topic, some)


def value(topic: str, number: int) -> bytes:
    return b"%s-0-%d" % (topic.encode(), number)


def test_a_topic_of_which_nothing_is_copied_has_no_offset_until_something_is(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    filled: str,
    group: str,
) -> None:
    create_topic(target_cluster.bootstrap, filled, partitions=1)
    alter_offsets(source_cluster.bootstrap, group, {(filled, 0): 700})
    wait_passes(running)
    assert group_offsets(target_cluster.bootstrap, group) == {}
    running.whitelist(filled)
    wait_offset(target_cluster, group, filled, 700)


def test_all_processes_are_restarted_and_the_group_goes_on(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    filled: str,
    group: str,
) -> None:
    """Records and offsets that came while nothing ran follow, too."""
    running.whitelist(filled)
    alter_offsets(source_cluster.bootstrap, group, {(filled, 0): RECORDS})
    wait_offset(target_cluster, group, filled, RECORDS)
    for process in running.processes.values():
        assert process.terminate(40) == 0, process.log_tail()
    produce_numbered(source_cluster, filled, first=RECORDS)
    alter_offsets(source_cluster.bootstrap, group, {(filled, 0): 2 * RECORDS - 1})
    assert offset_of(target_cluster, group, filled) == RECORDS
    running.heal()
    eventually(
        lambda: next_value(target_cluster, group, filled) == value(filled, 2 * RECORDS - 1),
        READ_S,
        "the group is before the last record",
    )


def test_a_group_far_behind_moves_exactly_and_is_not_set_back(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    filled: str,
    group: str,
) -> None:
    """MirrorMaker 2 follows a group that is set back at the source. Here it stays, and it is said why."""
    running.whitelist(filled)
    for offset in (0, RECORDS // 10, RECORDS // 10 + 1, RECORDS * 9 // 10):
        alter_offsets(source_cluster.bootstrap, group, {(filled, 0): offset})
        wait_offset(target_cluster, group, filled, offset)
    alter_offsets(source_cluster.bootstrap, group, {(filled, 0): RECORDS // 10})
    wait_passes(running)
    assert offset_of(target_cluster, group, filled) == RECORDS * 9 // 10
    (shown,) = running.rest("GET", f"/groups/{group}")["partitions"]
    assert (shown["sourceOffset"], shown["targetOffset"]) == (RECORDS // 10, RECORDS * 9 // 10)
    assert (shown["state"], shown["skipped"]) == ("ahead on the target", RECORDS * 8 // 10)


def offset_of(cluster: KafkaCluster, group: str, topic: str) -> int | None:
    found = group_offsets(cluster.bootstrap, group).get((topic, 0))
    return None if found is None else found.offset


def next_value(cluster: KafkaCluster, group: str, topic: str) -> bytes | None:
    """The first record that the group has not read. Markers of transactions lie between records."""
    offset = offset_of(cluster, group, topic) or 0
    left = [each for each in read_all(cluster.bootstrap, topic)[0] if each.offset >= offset]
    return left[0].value if left else None


def wait_offset(cluster: KafkaCluster, group: str, topic: str, offset: int) -> None:
    eventually(
        lambda: offset_of(cluster, group, topic) == offset,
        READ_S,
        f"{group} has offset {offset} at the target",
    )


def wait_passes(running: Fleet) -> None:
    """Wait until the sync has ended more passes that began after this call."""
    seen: set[int] = set()

    def passed() -> bool:
        seen.add(last_pass(running))
        return len(seen) > REPORTED

    eventually(passed, READ_S, "the sync has ended some passes")


def last_pass(running: Fleet) -> int:
    (route,) = running.rest("GET", "/routes")["routes"].values()
    syncs: dict[str, Any] = {each["kind"]: each for each in route["syncs"]}
    return int(syncs["groups"]["lastPass"] or 0)
