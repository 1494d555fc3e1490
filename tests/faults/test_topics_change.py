"""A topic is grown, deleted and recreated while it is copied: old and new records never mix."""

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


def test_a_recreated_source_topic_is_stopped_and_never_mixed_with_the_old(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    """One is recreated at once, another one when it is missed. Meanwhile a third one flows, and is grown."""
    source, target = site.source.bootstrap, site.target.bootstrap
    later, at_once = topics = [f"{flow.topic}-{when}" for when in ("later", "at-once")]
    old = {topic: made(source, topic, b"old") for topic in topics}
    for topic in topics:
        fleet.whitelist(topic)
    for topic in topics:
        eventually(lambda: values(target, topic) == old[topic], 20, f"{topic} is copied")  # noqa: B023
    for topic in topics:
        delete_topic(source, topic)
    new = {at_once: made(source, at_once, b"new")}
    grow(site, fleet, flow)
    for topic in topics:
        eventually(lambda: fleet.topic(topic)["stopped"], DETECTION_TIMEOUT_S, f"{topic} stops")  # noqa: B023
        eventually(lambda: not fleet.held(topic), DETECTION_TIMEOUT_S, "no worker holds it")  # noqa: B023
    new[later] = made(source, later, b"new")
    for topic in topics:
        assert fleet.topic(topic)["stopped"]
        assert values(target, topic) == old[topic]
    flow.assert_copying(*range(flow.partitions))
    for topic in topics:
        fleet.rest("POST", f"/topics/{topic}/resume?{FORTH_QUERY}", json={"restart": True})
    for topic in topics:
        both = {number: old[topic][number] + new[topic][number] for number in old[topic]}
        copied = f"the new {topic} is copied behind the old"
        eventually(lambda: values(target, topic) == both, 30, copied)  # noqa: B023
        fleet.rest("DELETE", f"/topics/{topic}?{FORTH_QUERY}")
    flow.judge()


def grow(site: BreakableServers, fleet: Fleet, flow: Flow) -> None:
    """Partitions that the source adds are copied from their first record, as the flow's judge finds."""
    total = flow.partitions + 2
    add_partitions(site.source.bootstrap, flow.topic, total)
    early = labelled_records(flow.topic, partitions=total, count=80, first=EARLY)
    produce(site.source.bootstrap, flow.topic, early)
    fleet.wait_online(flow.topic, total)
