"""A whole route paused and resumed, and its settings changed, under load: nothing is lost or repeated.

A poison record meanwhile, and a worker that is drained and restored.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from typing import Any

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import read_positions
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.load import repeating
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    offsets,
    produce,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS = 2
PAUSED_S = 15.0
COPIED_S = 40.0
STILL_S = 3.0
EVEN_S = 20.0


def load(cluster: KafkaCluster, topic: str) -> AbstractContextManager[None]:
    """Records whose values count up arrive in every partition."""
    numbers = itertools.count()

    def send() -> None:
        values = [b"%d" % number for number in itertools.islice(numbers, 20)]
        records = [NewRecord(v, None, p) for v in values for p in range(PARTITIONS)]
        produce(cluster.bootstrap, topic, records)

    return repeating(send)


def ends(cluster: KafkaCluster, topic: str) -> list[int]:
    return [end for _, end in offsets(cluster.bootstrap, topic).values()]


def values(cluster: KafkaCluster, topic: str) -> list[list[bytes | None]]:
    return [
        [record.value for record in log]
        for _, log in sorted(read_all(cluster.bootstrap, topic).items())
    ]


def test_a_route_is_paused_and_resumed_under_load(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    added = f"{topic}-added"
    for name in (topic, added):
        create_topic(source_cluster.bootstrap, name, partitions=PARTITIONS)
    produce(source_cluster.bootstrap, added, [NewRecord(b"x", None, p) for p in range(PARTITIONS)])
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    with load(source_cluster, topic):
        eventually(lambda: min(ends(target_cluster, topic)) > 100, COPIED_S, "it is copied")
        running.rest("POST", "/routes/source.target/pause")
        eventually(lambda: not running.held(topic), PAUSED_S, "all partitions are released")
        copied = ends(target_cluster, topic)
        shown = running.rest("GET", f"/positions/{topic}")["partitions"]
        stored = [row["position"] for row in shown]
        running.whitelist(added)
        leader = running.leader()
        running.controllers[leader].kill_tree()
        running.wait_leader(other_than=leader)
        before = ends(source_cluster, topic)
        Fleet.wait_seconds(STILL_S)
        assert min(ends(source_cluster, topic)) > min(before), "the load goes on"
        assert [len(log) for log in values(target_cluster, topic)] == stored
        assert ends(target_cluster, topic) == copied
        assert ends(target_cluster, added) == [0] * PARTITIONS
        assert not running.held(added)
        running.rest("POST", "/routes/source.target/resume")
        running.wait_online(topic, PARTITIONS)
    for name in (topic, added):
        wait_copied(source_cluster, target_cluster, name)
    switched = running.rest("GET", "/history?kind=switch")["history"]
    assert switched[0]["reason"] == "route source.target resumed"


def test_a_poison_record_is_an_error_since_its_first_try_and_a_restored_worker_gets_its_share(
    running: Fleet, source_cluster: KafkaCluster, topic: str
) -> None:
    poisoned = f"{topic}-masked"
    create_topic(source_cluster.bootstrap, poisoned, partitions=PARTITIONS)
    running.whitelist(poisoned)
    running.wait_online(poisoned, PARTITIONS)
    owners = running.owners(poisoned)
    assert set(owners.values()) == {"w1", "w2"}
    begun_ms = round(time.time() * 1_000)
    produce(source_cluster.bootstrap, poisoned, [NewRecord(b"no JSON", None, 0)])
    first = eventually(
        lambda: poison(running, poisoned, since_ms=begun_ms), COPIED_S, "it is in ERROR"
    )
    assert first["actual"] == {owners[0]: "ERROR"}
    assert re.search(r"in mask\.py:\d+ \(at offset 0\)$", first["reason"])
    assert re.search(r'mask\.py", line \d+', running.log_of(owners[0])), "the stack is logged"
    running.rest("DELETE", f"/instances/{owners[0]}")
    moved = eventually(
        lambda: poison(running, poisoned, on=owners[1]), COPIED_S, "in ERROR on the other one"
    )
    assert moved["since"] == first["since"]
    running.rest("POST", f"/instances/{owners[0]}")
    eventually(lambda: is_even(running), EVEN_S, "the restored worker has its share")


def poison(fleet: Fleet, topic: str, on: str = "", *, since_ms: int = 0) -> Any:
    """The mismatch of partition 0, once a worker, or this one, has it in ERROR, and the leader has recorded
    that: before, it shows since when the worker has it."""
    shown = fleet.rest("GET", "/validation")["mismatches"]
    found = (
        mismatch
        for mismatch in shown
        if (mismatch["topic"], mismatch["partition"]) == (topic, 0)
        and mismatch["since"] >= since_ms
    )
    return next((mismatch for mismatch in found if is_error(mismatch["actual"], on)), None)


def is_error(actual: Mapping[str, str], on: str) -> bool:
    return set(actual.values()) == {"ERROR"} and (not on or set(actual) == {on})


def is_even(fleet: Fleet) -> bool:
    counts: dict[str, int] = fleet.rest("GET", "/validation")["IdealState"]
    return max(counts.values()) - min(counts.values()) <= 1


def test_settings_are_changed_under_load_and_outlive_the_leader(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    added = f"{topic}-added"
    create_topic(source_cluster.bootstrap, topic, partitions=PARTITIONS)
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    changes = {
        "delivery": "exactly_once",
        "naming": {"prefix": "live."},
        "auto_whitelist": {"enabled": True, "include": [added]},
    }
    with load(source_cluster, topic):
        eventually(lambda: min(ends(target_cluster, topic)) > 100, COPIED_S, "it is copied")
        running.change(changes)
        eventually(lambda: is_fenced(running, target_cluster, topic), COPIED_S, "exactly once now")
        leader = running.leader()
        running.controllers[leader].kill_tree()
        running.wait_leader(other_than=leader)
        create_topic(source_cluster.bootstrap, added, partitions=PARTITIONS)
        records = [NewRecord(b"x", None, number) for number in range(PARTITIONS)]
        produce(source_cluster.bootstrap, added, records)
        eventually(lambda: running.call("GET", f"/topics/{added}").ok, COPIED_S, "by its pattern")
        running.wait_online(added, PARTITIONS)
        shown = running.rest("GET", "/routes")["routes"]["source.target"]
        assert shown["changes"] == changes
        running.change({"delivery": "at_least_once"})
        eventually(
            lambda: not is_fenced(running, target_cluster, topic), COPIED_S, "at least once again"
        )
    wait_copied(source_cluster, target_cluster, topic)
    wait_copied(source_cluster, target_cluster, added, prefix="live.")
    done = running.change(dict.fromkeys(changes))
    assert (done["changes"], done["settings"]["delivery"]) == ({}, "at_least_once")


def is_fenced(fleet: Fleet, cluster: KafkaCluster, topic: str) -> bool:
    """True if each position names the producer of what follows it."""
    with closing(ClusterClient(cluster.bootstrap)) as client:
        found = all_readable(read_positions(client, fleet.group(), {topic: range(PARTITIONS)}))
    written = [Provenance.decode(position.metadata) for position in found.values()]
    return all(provenance is not None and provenance.appends for provenance in written)


def wait_copied(
    source: KafkaCluster, target: KafkaCluster, topic: str, *, prefix: str = ""
) -> None:
    """Wait until both logs hold the same records, in order, none lost and none repeated."""
    wanted = values(source, topic)
    count = sum(map(len, wanted))
    eventually(
        lambda: sum(map(len, values(target, f"{prefix}{topic}"))) >= count,
        COPIED_S,
        f"{topic} is copied",
    )
    assert values(target, f"{prefix}{topic}") == wanted
