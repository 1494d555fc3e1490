"""Topics that come, grow and go at real brokers, under one fleet with routes both ways.

The fleet lives for the whole module; each test has topics of its own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Set
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ureplicator_common.heartbeats import heartbeat_topic
from ureplicator_common.model import Route
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import (
    QUIET,
    NewRecord,
    add_partitions,
    compare_logs,
    create_topic,
    delete_topic,
    produce,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

NOTICED_S = 10.0
"""The promised time; the copy itself may take longer on a busy machine."""
COPIED_S = 20.0
ARRIVED_S = 40.0
THERE, BACK = Route("source", "target"), Route("target", "source")
GRACE_S = 10.0
MINE = f"life-{uuid.uuid4().hex[:8]}"


class World:
    """Two clusters and what becomes of their topics. `there` and `back` are the routes' queries."""

    there, back = "?src=source&dst=target", "?src=target&dst=source"

    def __init__(self, fleet: Fleet, source: KafkaCluster, target: KafkaCluster) -> None:
        self.fleet, self.source, self.target = fleet, source, target

    def shown(self, topic: str, way: str = there) -> Any:
        return self.fleet.rest("GET", f"/topics/{topic}{way}")

    def wait_whitelisted(self, topic: str, way: str = there, *, since_s: float) -> None:
        """Within what is promised, whatever the machine does besides."""

        def there() -> bool:
            return self.fleet.call("GET", f"/topics/{topic}{way}").status_code == 200

        eventually(there, NOTICED_S, f"{topic} is whitelisted")
        assert time.monotonic() - since_s < NOTICED_S

    def wait_stopped(self, topic: str, reason: str, *, since_s: float) -> None:
        eventually(lambda: reason in self.shown(topic)["stopped"], NOTICED_S, f"{topic} is stopped")
        assert time.monotonic() - since_s < NOTICED_S
        eventually(lambda: not self.shown(topic)["externalView"], COPIED_S, f"{topic} is released")
        assert all(reason in mismatch["reason"] for mismatch in self.shown(topic)["mismatches"])

    def wait_values(self, topic: str, values: list[bytes], cluster: KafkaCluster) -> None:
        """All records of partition 0, in order."""
        eventually(
            lambda: values_of(cluster, topic) == values, COPIED_S, f"{topic} has {len(values)}"
        )

    def wait_position(self, topic: str, offset: int, way: str) -> None:
        def committed() -> bool:
            return bool((self.shown(topic, way)["positions"] or {}).get("0") == offset)

        eventually(committed, COPIED_S, f"{topic} is committed up to {offset}")

    def stop(self) -> None:
        for process in self.fleet.processes.values():
            assert process.terminate(40) == 0, process.log_tail()

    def start(self) -> None:
        for id in self.fleet.workers:
            self.fleet.start_worker(id)
        for id in self.fleet.controllers:
            self.fleet.start_controller(id)
        self.fleet.wait_workers(*self.fleet.workers)


def values_of(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    """Values of partition 0; none while the topic is not there."""
    try:
        return [record.value for record in read_all(cluster.bootstrap, topic)[0]]
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return []


def fill(cluster: KafkaCluster, topic: str, *values: bytes, partition: int = 0) -> None:
    produce(cluster.bootstrap, topic, [NewRecord(value, None, partition) for value in values])


def many(name: bytes, count: int) -> list[bytes]:
    return [b"%s-%d" % (name, number) for number in range(count)]


@pytest.fixture(scope="module")
def world(
    make_fleet: Callable[..., Fleet],
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
) -> Iterator[World]:
    create_topic(source_cluster.bootstrap, f"{MINE}-auto-old", partitions=1)
    fill(source_cluster, f"{MINE}-auto-old", b"history")
    named = [f"(s[.])?{MINE}-auto-.*", f".*{MINE}.*-heartbeats"]
    auto = {"enabled": True, "include": named, "exclude": [".*-not"]}
    heartbeats = {"enabled": True, "interval_s": 0.5}
    fleet = make_fleet(
        MINE,
        routes=[
            {
                "source": "source",
                "target": "target",
                "start": "latest",
                "naming": {"prefix": "s.", "rename": {f"{MINE}-named": f"{MINE}-other"}},
                "auto_whitelist": auto,
                "heartbeats": heartbeats,
                "delivery": "exactly_once",
            },
            {
                "source": "target",
                "target": "source",
                "naming": {"prefix": "t."},
                "auto_whitelist": auto,
                "heartbeats": heartbeats,
                "on_source_deletion": "delete",
                "source_deletion_grace_s": GRACE_S,
            },
        ],
    )
    fleet.start()
    yield World(fleet, source_cluster, target_cluster)
    fleet.stop()


def test_a_new_topic_is_copied_from_its_first_record_and_an_old_one_from_the_routes_start(
    world: World,
) -> None:
    old, new = f"{MINE}-auto-old", f"{MINE}-auto-new"
    since_s = time.monotonic()
    create_topic(world.source.bootstrap, new, partitions=2)
    fill(world.source, new, b"first", b"second")
    create_topic(world.source.bootstrap, f"{MINE}-auto-not")
    world.wait_whitelisted(new, since_s=since_s)
    world.wait_values(f"s.{new}", [b"first", b"second"], world.target)
    world.fleet.wait_online(old, 1)
    fill(world.source, old, b"later")
    world.wait_values(f"s.{old}", [b"later"], world.target)
    assert world.fleet.call("GET", f"/topics/{MINE}-auto-not").status_code == 404
    compare_logs(
        world.source.bootstrap, world.target.bootstrap, new, target_topic=f"s.{new}"
    ).assert_clean()


def test_a_target_topic_is_deleted_after_its_source_topic(world: World) -> None:
    """The same topic is copied from its first record, once it is there again."""
    topic, copy = f"{MINE}-auto-gone", f"t.{MINE}-auto-gone"
    stays = f"{MINE}-auto-stays"
    for name in (topic, stays):
        create_topic(world.target.bootstrap, name, partitions=1)
        fill(world.target, name, b"first")
        world.wait_values(f"t.{name}", [b"first"], world.source)
    world.wait_position(topic, 1, world.back)
    assert world.shown(topic, world.back)["targetCreated"]
    eventually(
        lambda: world.shown(topic, world.back)["targetTopicId"], NOTICED_S, "its id is noted"
    )
    delete_topic(world.target.bootstrap, topic)
    eventually(
        lambda: world.shown(topic, world.back)["targetGoesMs"],
        NOTICED_S,
        "the deletion is announced",
    )
    assert values_of(world.source, copy) == [b"first"]
    eventually(
        lambda: world.fleet.call("GET", f"/topics/{topic}{world.back}").status_code == 404,
        GRACE_S + COPIED_S,
        "the topic is retired",
    )
    assert copy not in names(world.source)
    assert values_of(world.source, f"t.{stays}") == [b"first"]
    create_topic(world.target.bootstrap, topic, partitions=1)
    fill(world.target, topic, b"anew")
    world.wait_values(copy, [b"anew"], world.source)


def test_heartbeats_arrive_both_ways_and_are_not_copied_back(world: World) -> None:
    """Their names are among those that are whitelisted."""
    for route in (THERE, BACK):
        eventually(partial(is_on_time, world.fleet, route), ARRIVED_S, f"{route} is on time")
    assert heartbeats(world.fleet, THERE)["error"] == ""
    for route in (THERE, BACK):
        topics = world.fleet.rest("GET", f"/topics?src={route.source}&dst={route.target}")["topics"]
        found = [topic for topic in topics if topic.endswith("-heartbeats")]
        assert found == [heartbeat_topic(fleet=MINE, route=route)]


def heartbeats(fleet: Fleet, route: Route) -> Any:
    """Their sync, as REST shows it."""
    syncs = fleet.rest("GET", "/routes")["routes"][str(route)]["syncs"]
    return next(sync for sync in syncs if sync["kind"] == "heartbeats")


def is_on_time(fleet: Fleet, route: Route) -> bool:
    sync = heartbeats(fleet, route)
    return sync["states"] == {"on time": 1} and sync["age"] is not None and sync["age"] < 10


def names(cluster: KafkaCluster) -> Set[str]:
    return (
        AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        .list_topics(timeout=10)
        .topics.keys()
    )


def test_new_partitions_are_copied_from_their_first_record(world: World) -> None:
    topic = f"{MINE}-auto-grown"
    create_topic(world.source.bootstrap, topic, partitions=1)
    world.wait_whitelisted(topic, since_s=time.monotonic())
    since_s = time.monotonic()
    add_partitions(world.source.bootstrap, topic, 3)
    for partition in range(3):
        fill(world.source, topic, b"first", partition=partition)
    eventually(lambda: world.shown(topic)["partitions"] == 3, NOTICED_S, f"{topic} has grown")
    assert time.monotonic() - since_s < NOTICED_S

    def copied() -> bool:
        copy = read_all(world.target.bootstrap, f"s.{topic}")
        return [len(copy[number]) for number in sorted(copy)] == [1, 1, 1]

    eventually(copied, COPIED_S, "each partition has its record")


def test_routes_both_ways_work_side_by_side_and_copies_do_not_come_back(world: World) -> None:
    theirs, ours = f"{MINE}-auto-theirs", f"{MINE}-auto-ours"
    create_topic(world.target.bootstrap, theirs, partitions=2)
    create_topic(world.source.bootstrap, ours, partitions=2)
    fill(world.target, theirs, b"from target")
    fill(world.source, ours, b"from source")
    world.wait_values(f"t.{theirs}", [b"from target"], world.source)
    world.wait_values(f"s.{ours}", [b"from source"], world.target)
    for topic, way in ((theirs, world.back), (ours, world.there)):
        world.wait_position(topic, 1, way)
    copy = f"target.source/s.{ours}"

    def reason() -> str:
        refused = world.fleet.rest("GET", "/validation/srcKafka")["refusedTopics"]
        return str(refused.get(copy, ""))

    assert "it is a copy of" in eventually(reason, NOTICED_S, "the copy is refused")
    names = world.fleet.rest("GET", "/topics?src=target")["topics"]
    assert not [name for name in names if name.startswith("s.")]


def test_a_topic_is_copied_under_the_name_that_the_route_gives_it(world: World) -> None:
    topic = f"{MINE}-named"
    create_topic(world.source.bootstrap, topic, config={"retention.ms": "86400000"})
    world.fleet.rest("POST", f"/topics/{topic}{world.there}")
    world.fleet.wait_online(topic, 1)
    fill(world.source, topic, b"x")
    world.wait_values(f"{MINE}-other", [b"x"], world.target)


def test_what_is_deleted_by_hand_stays_away_until_it_is_added_by_hand(world: World) -> None:
    topic = f"{MINE}-auto-unwanted"
    create_topic(world.source.bootstrap, topic)
    world.wait_whitelisted(topic, since_s=time.monotonic())
    world.fleet.rest("DELETE", f"/topics/{topic}{world.there}")
    gone = f"/topics/{topic}{world.there}"
    eventually(lambda: world.fleet.call("GET", gone).status_code == 404, COPIED_S, "it is gone")
    later = f"{MINE}-auto-later"
    create_topic(world.source.bootstrap, later)
    world.wait_whitelisted(later, since_s=time.monotonic())
    assert world.fleet.call("GET", gone).status_code == 404
    listed = world.fleet.rest("GET", "/blacklist")["topics"]
    assert {"topic": topic, "route": "source.target"} in listed
    assert world.fleet.call("POST", gone).status_code == 201


def test_a_target_topic_of_others_gets_partitions_on_request_only(world: World) -> None:
    """The topic belongs to the copy after the request, and grows with its source."""
    topic = f"{MINE}-narrow"
    create_topic(world.source.bootstrap, topic, partitions=4)
    create_topic(world.target.bootstrap, f"s.{topic}", partitions=1)
    path = f"/topics/{topic}{world.there}"
    refused = world.fleet.call("POST", path)
    assert refused.status_code == 409, refused.text
    assert "exists with 1 partitions, not 4" in refused.json()["detail"]
    assert len(read_all(world.target.bootstrap, f"s.{topic}")) == 1
    added = world.fleet.call("POST", path, json={"raisePartitions": True})
    assert (added.status_code, added.json()["target"]) == (201, "raised")
    add_partitions(world.source.bootstrap, topic, 6)
    world.fleet.wait_online(topic, 6)
    assert len(read_all(world.target.bootstrap, f"s.{topic}")) == 6


Recreate = Callable[[World, str], None]


def running(world: World, topic: str) -> None:
    delete_topic(world.source.bootstrap, topic)
    create_topic(world.source.bootstrap, topic, partitions=2)


def while_down(world: World, topic: str) -> None:
    world.stop()
    running(world, topic)
    world.start()


@pytest.mark.parametrize("recreate", [running, while_down])
def test_a_recreated_topic_is_stopped_and_never_mixed_with_the_old_one(
    world: World, recreate: Recreate
) -> None:
    topic = f"{MINE}-auto-{recreate.__name__.replace('_', '-')}"
    copy, old, new = f"s.{topic}", many(b"old", 5), many(b"new", 50)
    create_topic(world.source.bootstrap, topic, partitions=2)
    fill(world.source, topic, *old)
    world.wait_values(copy, old, world.target)
    recreate(world, topic)
    since_s = time.monotonic()
    fill(world.source, topic, *new)
    world.wait_stopped(topic, "source topic was recreated", since_s=since_s)
    assert values_of(world.target, copy) == old
    refused = world.fleet.call("POST", f"/topics/{topic}/resume{world.there}")
    assert refused.status_code == 409
    assert values_of(world.target, copy) == old
    resume = f"/topics/{topic}/resume{world.there}"
    world.fleet.rest("POST", resume, json={"restart": True})
    world.wait_values(copy, old + new, world.target)
    fill(world.source, topic, b"more", partition=1)
    eventually(
        lambda: [r.value for r in read_all(world.target.bootstrap, copy)[1]] == [b"more"],
        COPIED_S,
        "copying goes on",
    )


def test_a_deleted_target_is_reported_and_recreated_on_request(world: World) -> None:
    topic = f"{MINE}-auto-target"
    create_topic(world.source.bootstrap, topic)
    fill(world.source, topic, b"1", b"2")
    world.wait_values(f"s.{topic}", [b"1", b"2"], world.target)
    eventually(lambda: world.shown(topic)["targetTopicId"], NOTICED_S, "the id is noted")
    delete_topic(world.target.bootstrap, f"s.{topic}")
    world.wait_stopped(topic, "was deleted", since_s=time.monotonic())
    resume = f"/topics/{topic}/resume{world.there}"
    world.fleet.rest("POST", resume, json={"restart": True})
    fill(world.source, topic, b"3")
    world.wait_values(f"s.{topic}", [b"1", b"2", b"3"], world.target)
