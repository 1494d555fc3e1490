"""A topic is grown, deleted and recreated while it is copied: old and new records never mix."""

import pytest
from confluent_kafka import KafkaException

from ureplicator_testkit.fleet.real_fleet import FORTH_QUERY, Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.labels import labelled_records
from ureplicator_testkit.records.topics import (
    NewRecord,
    add_partitions,
    create_topic,
    delete_topic,
    produce,
    read_all,
)
from ureplicator_testkit.servers.network import BreakableServers
from ureplicator_testkit.servers.processes import eventually

DELAYS = {"rebalance_delay_s": 120}
DETECTION_TIMEOUT_S = 15
"""10 s are guaranteed; half as much again on a busy machine."""
RECORDS = 500
EARLY = 1_000_000
"""First number of the records that are produced before the new partitions are noticed."""

Values = dict[int, list[bytes | None]]


def records(word: bytes, partitions: int) -> list[NewRecord]:
    return [
        NewRecord(b"%s-%d" % (word, number), partition=number % partitions)
        for number in range(RECORDS)
    ]


def values(bootstrap: str, topic: str) -> Values:
    """Values of a topic, in order; empty while the topic does not exist."""
    try:
        log = read_all(bootstrap, topic)
    except KafkaException:
        return {}
    return {number: [record.value for record in part] for number, part in log.items()}


def made(bootstrap: str, topic: str, word: bytes) -> Values:
    """Acknowledged records of the recreated topic."""
    create_topic(bootstrap, topic, partitions=2)
    produce(bootstrap, topic, records(word, 2))
    return values(bootstrap, topic)


def test_partitions_that_the_source_adds_are_copied_from_their_first_record(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    total = flow.partitions + 2
    add_partitions(site.source.bootstrap, flow.topic, total)
    early = labelled_records(flow.topic, partitions=total, count=80, first=EARLY)
    produce(site.source.bootstrap, flow.topic, early)
    fleet.wait_online(flow.topic, total)
    flow.judge()


@pytest.mark.parametrize("pause_s", [0, DETECTION_TIMEOUT_S], ids=["at-once", "later"])
def test_a_recreated_source_topic_is_stopped_and_never_mixed_with_the_old(
    site: BreakableServers, fleet: Fleet, flow: Flow, pause_s: float
) -> None:
    """Meanwhile another topic flows on."""
    topic, source, target = f"{flow.topic}-recreated", site.source.bootstrap, site.target.bootstrap
    old = made(source, topic, b"old")
    fleet.whitelist(topic)
    eventually(lambda: values(target, topic) == old, 20, "the old topic is copied")
    delete_topic(source, topic)
    fleet.wait_seconds(pause_s)
    new = made(source, topic, b"new")
    eventually(lambda: fleet.topic(topic)["stopped"], DETECTION_TIMEOUT_S, "the topic is stopped")
    eventually(lambda: not fleet.held(topic), DETECTION_TIMEOUT_S, "no worker holds it")
    assert values(target, topic) == old
    flow.assert_copying()
    fleet.rest("POST", f"/topics/{topic}/resume?{FORTH_QUERY}", json={"restart": True})
    both = {number: old[number] + new[number] for number in old}
    eventually(lambda: values(target, topic) == both, 30, "the new topic is copied behind the old")
    fleet.rest("DELETE", f"/topics/{topic}?{FORTH_QUERY}")
    flow.judge()
