"""Findings in facts about this machine, ZooKeeper and the clusters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ureplicator_cli.doctor.facts import HostFacts, RestFacts, ZooKeeperFacts
from ureplicator_cli.doctor.findings import (
    SAME_OFFSETS_REQUESTS,
    SOURCE_REQUESTS,
    TARGET_REQUESTS,
    ClusterRole,
    Finding,
    Level,
    cluster_findings,
    host_findings,
    rest_findings,
    size_findings,
    zookeeper_findings,
)
from ureplicator_common.kafka.preflight import ClusterFacts, Right, Server, VisibleTopics
from ureplicator_common.kafka.transactions.producer_memory import (
    IDLE,
    PRODUCER,
    TRANSACTIONAL_ID,
    memory_of,
)

ALL = {
    key: (0, version + 1)
    for key, (_, version) in {
        **SOURCE_REQUESTS,
        **TARGET_REQUESTS,
        **SAME_OFFSETS_REQUESTS,
    }.items()
}
SOURCE = ClusterRole("west", is_source=True, is_target=False)
TARGET = ClusterRole("east", is_source=False, is_target=True)
COUNTED = replace(TARGET, is_counted=True)
FILLED = replace(COUNTED, is_filled=True)
MEMORY = memory_of([{PRODUCER: "86400000", TRANSACTIONAL_ID: "604800000", IDLE: "600000"}])
HEALTHY = ClusterFacts(
    (Server("k1:9092", "", ALL),),
    cluster_id="c",
    topics=VisibleTopics(3),
    rights=dict.fromkeys(Right, ""),
    max_message_bytes=1_000,
    memory=MEMORY,
)
HOST = HostFacts(
    "3.11.7", "1", "/bin/java", "", "4.3.0", 65_536, 1 << 34, True, "h1", "10.0.0.1", 1_000, "u"
)


def problems(findings: Iterable[Finding]) -> list[tuple[Level, str]]:
    """Levels and reasons; each of these says what to do, and the others have nothing to do."""
    found = list(findings)
    assert found
    assert all(bool(finding.do) == (finding.level is not Level.OK) for finding in found)
    return [(finding.level, finding.reason) for finding in found if finding.level is not Level.OK]


@pytest.mark.parametrize("role", [SOURCE, TARGET, COUNTED, FILLED])
def test_healthy_cluster(role: ClusterRole) -> None:
    assert problems(cluster_findings(role, HEALTHY)) == []


def test_silent_server_is_named() -> None:
    silent = Server("k2:9092", "no response in 5 s")
    facts = replace(HEALTHY, servers=(*HEALTHY.servers, silent))
    [(level, reason)] = problems(cluster_findings(SOURCE, facts))
    assert (level, "k2:9092 does not respond: no response" in reason) == (Level.WARNING, True)
    [(level, _)] = problems(cluster_findings(SOURCE, ClusterFacts((silent,))))
    assert level is Level.FAILURE


def test_advertised_broker_that_is_out_of_reach() -> None:
    facts = replace(HEALTHY, advertised=(Server("inner:9092", "unreachable"),))
    [(level, reason)] = problems(cluster_findings(TARGET, facts))
    assert (level, "is advertised" in reason) == (Level.FAILURE, True)


@pytest.mark.parametrize(("key", "accepted"), [(24, None), (0, (0, 8)), (26, (3, 5))])
def test_versions_that_are_not_accepted(key: int, accepted: tuple[int, int] | None) -> None:
    versions = {**ALL, key: accepted} if accepted else {k: v for k, v in ALL.items() if k != key}
    facts = replace(HEALTHY, servers=(Server("k1:9092", "", versions),))
    [(level, reason)] = problems(cluster_findings(TARGET, facts))
    assert (level, TARGET_REQUESTS[key][0] in reason) == (Level.FAILURE, True)
    assert problems(cluster_findings(SOURCE, facts)) == []


def test_a_target_that_forgets_producers_too_early_for_exactly_once() -> None:
    facts = replace(HEALTHY, memory=memory_of([{PRODUCER: "60000"}]))
    [(level, reason)] = problems(cluster_findings(COUNTED, facts))
    assert (level, "producer.id.expiration.ms = 60000" in reason) == (Level.FAILURE, True)
    assert problems(cluster_findings(TARGET, facts)) == []


def test_how_long_producers_are_known_is_no_secret() -> None:
    facts = replace(HEALTHY, memory=memory_of([], "broker 2 does not respond"))
    [(level, reason)] = problems(cluster_findings(COUNTED, facts))
    assert (level, "broker 2 does not respond" in reason) == (Level.WARNING, True)


def test_what_a_target_holds_is_fetched_for_exactly_once() -> None:
    unfetched = replace(
        HEALTHY, servers=(Server("k1:9092", "", {k: v for k, v in ALL.items() if k != 1}),)
    )
    [(level, reason)] = problems(cluster_findings(COUNTED, unfetched))
    assert (level, "Fetch 12" in reason) == (Level.FAILURE, True)
    assert problems(cluster_findings(TARGET, unfetched)) == []


def test_a_service_that_lets_nobody_write_control_records() -> None:
    without = {key: versions for key, versions in ALL.items() if key != 27}
    facts = replace(HEALTHY, servers=(Server("k1:9092", "", without),))
    [(level, reason)] = problems(cluster_findings(FILLED, facts))
    assert (level, "WriteTxnMarkers 1" in reason) == (Level.FAILURE, True)
    assert problems(cluster_findings(COUNTED, facts)) == []


@pytest.mark.parametrize(("replicas", "is_met"), [(-1, True), (3, True), (4, False)])
def test_replicas_that_the_brokers_can_hold(replicas: int, is_met: bool) -> None:
    facts = replace(HEALTHY, brokers=3)
    found = problems(cluster_findings(replace(TARGET, replicas=replicas), facts))
    assert found == (
        []
        if is_met
        else [(Level.FAILURE, "has 3 brokers, and target topics are to have 4 replicas")]
    )


@pytest.mark.parametrize("right", list(Right))
def test_right_that_is_missing(right: Right) -> None:
    facts = replace(HEALTHY, rights={**HEALTHY.rights, right: "X_AUTHORIZATION_FAILED"})
    [(level, reason)] = problems(cluster_findings(TARGET, facts))
    optional = (Right.CREATE_TOPICS, Right.DELETE_RECORDS, Right.CONTROL_RECORDS)
    assert level is (Level.WARNING if right in optional else Level.FAILURE)
    assert reason == f"may not {right}: X_AUTHORIZATION_FAILED"


def test_topics_without_a_right() -> None:
    """A coordinator takes a position for a topic only from who may read it."""
    facts = replace(HEALTHY, topics=VisibleTopics(9, ("a", "b"), ("c",)))
    unread = (Level.WARNING, "2 of 9 topics may not be read: a, b")
    unwritten = (Level.WARNING, "1 of 9 topics may not be written: c")
    assert problems(cluster_findings(SOURCE, facts)) == [unread]
    assert problems(cluster_findings(TARGET, facts)) == [unread, unwritten]


def test_source_that_shows_no_topic() -> None:
    facts = replace(HEALTHY, topics=VisibleTopics(0))
    [(_, reason)] = problems(cluster_findings(SOURCE, facts))
    assert reason.startswith("shows no topic")


def test_what_is_not_known_is_no_pass() -> None:
    facts = replace(HEALTHY, topics=None, rights={}, unread={"topics": "time limit exceeded"})
    assert problems(cluster_findings(TARGET, facts)) == [
        (Level.WARNING, "not known: topics: time limit exceeded")
    ]


@pytest.mark.parametrize(("limit", "fits"), [(1_000, True), (999, False)])
def test_sizes_of_batches(limit: int, fits: bool) -> None:
    found = size_findings("west", "east", (HEALTHY, replace(HEALTHY, max_message_bytes=limit)))
    assert (problems(found) == []) is fits


def test_zookeeper() -> None:
    facts = ZooKeeperFacts({"z1:2181": "", "z2:2181": ""}, "/ureplicator/f", True)
    assert problems(zookeeper_findings(facts)) == []
    one = replace(facts, servers={"z1:2181": "", "z2:2181": "refused"})
    assert problems(zookeeper_findings(one)) == [
        (Level.WARNING, "z2:2181 does not respond: refused")
    ]
    none = replace(facts, servers={"z1:2181": "refused"})
    assert problems(zookeeper_findings(none))[0][0] is Level.FAILURE
    refused = replace(facts, refusal="belongs to another user")
    assert problems(zookeeper_findings(refused))[0][0] is Level.FAILURE
    assert problems(zookeeper_findings(replace(facts, has_login=False)))[0][0] is Level.WARNING


def test_host() -> None:
    assert problems(host_findings(HOST, slots=2)) == []
    without = replace(HOST, java="", java_failure="Java is missing", pyspark="")
    assert [level for level, _ in problems(host_findings(without, slots=2))] == [
        Level.FAILURE,
        Level.FAILURE,
    ]
    assert problems(host_findings(without, slots=0)) == []
    small = replace(HOST, open_files=1_024, memory_bytes=1 << 29, is_clock_synchronised=False)
    assert len(problems(host_findings(small, slots=2))) == 3
    assert len(problems(host_findings(replace(HOST, is_clock_synchronised=None), slots=0))) == 1


@pytest.mark.parametrize("master", ["local[*]", "spark://m:7077", "k8s://https://h"])
def test_a_host_and_a_user_that_spark_would_look_up_in_vain(master: str) -> None:
    """The worker starts without either; executors of a cluster are started by others."""
    bare = replace(HOST, name_address="", user_id=54_321, user_name="")
    found = list(host_findings(bare, slots=2, master=master))
    level = Level.OK if master.startswith("local") else Level.WARNING
    names = [finding for finding in found if "h1" in finding.reason or "54321" in finding.reason]
    assert [finding.level for finding in names] == [level, level]
    assert all(bool(finding.do) is (level is Level.WARNING) for finding in names)
    assert problems(host_findings(HOST, slots=2, master=master)) == []
    assert problems(host_findings(bare, slots=0, master=master)) == []


def test_rest() -> None:
    facts = RestFacts("127.0.0.1:9000", "", "loopback", False)
    assert problems(rest_findings(facts)) == []
    assert len(problems(rest_findings(replace(facts, port_failure="Address already in use")))) == 1
    assert len(problems(rest_findings(replace(facts, mode="open")))) == 1
    assert len(problems(rest_findings(replace(facts, mode="tokens")))) == 1
    assert problems(rest_findings(replace(facts, mode="tokens", has_tls=True))) == []
