"""A topic is grown, deleted and made anew while it is copied: old and new are never mixed (P, C, O)."""

import pytest

from ureplicator_testkit.fleet import Fleet
from ureplicator_testkit.flow import Flow
from ureplicator_testkit.network import Site
from ureplicator_testkit.processes import eventually
from ureplicator_testkit.topics import (
    NewRecord,
    add_partitions,
    create_topic,
    delete_topic,
    produce,
    read_all,
)

DELAYS = {"rebalance_delay_s": 120}
NOTICED_S = 15
"""10 s are promised; a busy machine gets half as much again."""
COPIES = 500


def records(word: bytes, partitions: int) -> list[NewRecord]:
    return [
        NewRecord(b"%s-%d" % (word, number), partition=number % partitions)
        for number in range(COPIES)
    ]


def values(bootstrap: str, topic: str) -> dict[int, list[bytes | None]]:
    log = read_all(bootstrap, topic)
    return {number: [record.value for record in part] for number, part in log.items()}


def test_partitions_that_the_source_adds_are_copied_from_their_first_record(
    site: Site, fleet: Fleet, flow: Flow
) -> None:
    total = flow.partitions + 2
    add_partitions(site.source.bootstrap, flow.topic, total)
    produce(site.source.bootstrap, flow.topic, records(b"early", total))
    fleet.wait_online(flow.topic, total)
    flow.judge()


@pytest.mark.parametrize("pause_s", [0, NOTICED_S], ids=["at-once", "later"])
def test_a_source_topic_made_anew_is_stopped_and_never_mixed_with_the_old(
    site: Site, fleet: Fleet, flow: Flow, pause_s: float
) -> None:
    """Meanwhile another topic flows on."""
    topic, source, target = f"{flow.topic}-anew", site.source.bootstrap, site.target.bootstrap
    create_topic(source, topic, partitions=2)
    produce(source, topic, records(b"old", 2))
    fleet.whitelist(topic)
    eventually(lambda: copied(target, topic) == COPIES, 20, "the old topic is copied")
    old = values(source, topic)
    delete_topic(source, topic)
    fleet.wait_seconds(pause_s)
    create_topic(source, topic, partitions=2)
    produce(source, topic, records(b"new", 2))
    new = values(source, topic)
    eventually(lambda: fleet.topic(topic)["stopped"], NOTICED_S, "the topic is stopped")
    eventually(lambda: not fleet.held(topic), NOTICED_S, "nobody holds it any more")
    assert values(target, topic) == old
    flow.assert_flows()
    fleet.rest("POST", f"/topics/{topic}/resume", json={"anew": True})
    eventually(lambda: copied(target, topic) == 2 * COPIES, 30, "the new topic is copied")
    assert values(target, topic) == {number: old[number] + new[number] for number in old}
    fleet.rest("DELETE", f"/topics/{topic}")
    flow.judge()


def copied(target: str, topic: str) -> int:
    """0 while the target has no such topic yet."""
    try:
        return sum(len(part) for part in values(target, topic).values())
    except KeyError:
        return 0
