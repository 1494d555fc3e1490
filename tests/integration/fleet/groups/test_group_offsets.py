"""A consumer stops at the source and goes on at the target: a fleet writes the offsets of its group there."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import AbstractContextManager, closing

import pytest

from ureplicator_common.model import Delivery
from ureplicator_testkit.control.command import run
from ureplicator_testkit.fleet.prefix_proxy import below_prefix
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.consumers import (
    READ_S,
    alter_offsets,
    group_offsets,
    open_member,
    read_next,
)
from ureplicator_testkit.records.load import repeating
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    offsets,
    produce,
    produce_in_transaction,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS, RECORDS = 2, 20
SWITCHES = int(os.environ.get("UREPLICATOR_SWITCHES", "6"))
"""Even: the last one is back to the source."""
READ_AT_EACH = 30
NONE_AGAIN = "0 offsets are read again"
LOAD_PAUSE_S = 0.2
POLL_S = 0.3
"""Between two commands."""
ODD_NAMES = ("/NAME", "//NAME/a, b/", "NAME/../%2F größe/日本", "NAME" + "l" * 300)


def records(first: int) -> list[NewRecord]:
    return [
        NewRecord(b"%d" % number, partition=partition)
        for partition in range(PARTITIONS)
        for number in range(first, first + RECORDS)
    ]


def pairs(sent: list[NewRecord]) -> list[tuple[int, bytes | None]]:
    return sorted((record.partition, record.value) for record in sent)


@pytest.mark.parametrize("delivery", Delivery)
def test_a_consumer_goes_on_at_the_target_with_exactly_the_rest(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    group: str,
) -> None:
    """The source has an aborted transaction between the records: the offsets differ."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    create_topic(source, topic, partitions=PARTITIONS)
    produce_in_transaction(source, topic, records(-RECORDS), transactional_id=topic, commit=False)
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    produce(source, topic, records(0))
    alter_offsets(source, group, {(topic, number): 0 for number in range(PARTITIONS)})
    with closing(open_member(source, group, topic)) as first:
        assert sorted(read_next(first, RECORDS * PARTITIONS)) == pairs(records(0))
        first.commit(asynchronous=False)
    ends = {(topic, number): end for number, (_, end) in offsets(source, topic).items()}
    assert {key: row.offset for key, row in group_offsets(source, group).items()} == ends

    def synced() -> bool:
        copied = {
            (topic, number): log[-1].offset + 1
            for number, log in read_all(target, topic).items()
            if len(log) == RECORDS
        }
        found = {key: row.offset for key, row in group_offsets(target, group).items()}
        return len(copied) == PARTITIONS and found == copied

    eventually(synced, READ_S, "the group is behind the last record at the target")
    produce(source, topic, records(RECORDS))
    with closing(open_member(target, group, topic)) as second:
        assert sorted(read_next(second, RECORDS * PARTITIONS)) == pairs(records(RECORDS))


@pytest.mark.parametrize("delivery", Delivery)
def test_a_group_in_the_middle_of_the_log_fails_over_and_reads_exactly_the_rest(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    """Nothing syncs it but the command; aborted transactions lie before and behind its offsets."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    group = f"by-hand.{topic}"
    create_topic(source, topic, partitions=PARTITIONS)
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    alter_offsets(source, group, {(topic, number): 0 for number in range(PARTITIONS)})
    for number in range(3):
        produce_in_transaction(
            source, topic, records(-RECORDS), transactional_id=topic, commit=False
        )
        produce_in_transaction(
            source, topic, records(number * RECORDS), transactional_id=topic, commit=True
        )
    with closing(open_member(source, group, topic)) as first:
        read = read_next(first, RECORDS * PARTITIONS + RECORDS // 2)
        first.commit(asynchronous=False)
    sent = [pair for number in range(3) for pair in pairs(records(number * RECORDS))]
    eventually(
        lambda: sum(map(len, read_all(target, topic).values())) == len(sent),
        READ_S,
        "all is copied",
    )
    url = running.url()
    eventually(
        lambda: last_line("plan", group, url) == NONE_AGAIN,
        READ_S,
        "the position has passed the offsets of the group",
        poll_s=POLL_S,
    )
    assert group_offsets(target, group) == {}
    assert last_line("apply", group, url) == NONE_AGAIN
    with closing(open_member(target, group, topic)) as second:
        rest = read_next(second, len(sent) - len(read))
    assert sorted([*read, *rest]) == sorted(sent)


def test_a_partition_without_records_has_an_offset_too(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    """Consumers at the target would begin there by their own rule without one, and may miss what comes
    first."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    group = f"empty.{topic}"
    create_topic(source, topic, partitions=PARTITIONS)
    sent = [record for record in records(0) if record.partition == 0]
    produce(source, topic, sent)
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    alter_offsets(source, group, {(topic, 0): RECORDS, (topic, 1): 0})
    switch(running.url(), group, back=False)
    found = {key: row.offset for key, row in group_offsets(target, group).items()}
    assert found.keys() == {(topic, 0), (topic, 1)}
    assert found[topic, 1] == 0


def test_groups_with_any_name_fail_over_through_a_proxy_below_a_path(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    create_topic(source, topic, partitions=1)
    produce(source, topic, [record for record in records(0) if record.partition == 0])
    running.whitelist(topic)
    running.wait_online(topic, 1)
    groups = [name.replace("NAME", topic) for name in ODD_NAMES]
    for group in groups:
        alter_offsets(source, group, {(topic, 0): RECORDS})
    with below_prefix(running.url()) as url:
        for group in groups:
            switch(url, group, back=False)
            shown = json.loads(run("groups", "show", group, "--json", url=url).stdout)
            assert (shown["group"], shown["state"]) == (group, "synced")
            assert group_offsets(target, group)[topic, 0].offset > 0


@pytest.mark.parametrize("delivery", Delivery)
def test_a_group_switches_there_and_back_under_load(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    """Each record is read once, by whichever consumer was its turn. It stops when it has caught up: at least
    once the position of what it has read is not committed yet."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    group = f"switching.{topic}"
    create_topic(source, topic, partitions=PARTITIONS)
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    alter_offsets(source, group, {(topic, number): 0 for number in range(PARTITIONS)})
    read: list[tuple[int, bytes | None]] = []
    sent: list[NewRecord] = []
    with load(source, topic, sent):
        for number in range(SWITCHES):
            at, back = (target, True) if number % 2 else (source, False)
            with closing(open_member(at, group, topic)) as member:
                read += read_next(member, READ_AT_EACH)
                read += read_next(member, len(sent) - len(read))
                member.commit(asynchronous=False)
            switch(running.url(), group, back=back)
    wanted = pairs(sent)
    with closing(open_member(source, group, topic)) as member:
        read += read_next(member, len(wanted) - len(read))
    assert sorted(read) == wanted


def last_line(step: str, group: str, url: str) -> str:
    done = run("failover", step, "--group", group, url=url)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()[-1]


def switch(url: str, group: str, *, back: bool) -> None:
    """Write the group's offsets to the other cluster, once its records are there and its member has left."""
    way = ["--back"] if back else []
    eventually(
        lambda: run("failover", "apply", "--group", group, *way, url=url).exit_code == 0,
        READ_S,
        "the group may go on",
        poll_s=POLL_S,
    )


def load(bootstrap: str, topic: str, sent: list[NewRecord]) -> AbstractContextManager[None]:
    """Records arrive, a few at a time; then they are in `sent`."""
    numbers = itertools.count(step=RECORDS)

    def send() -> None:
        some = records(next(numbers))
        produce(bootstrap, topic, some)
        sent.extend(some)

    return repeating(send, pause_s=LOAD_PAUSE_S)
