"""Transactions of topics: who is found, as what, and by which request each is aborted or why not."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.transactions.writer_requests import TOO_OLD, KafkaWriters
from ureplicator_common.kafka.transactions.writers import (
    AbortRefused,
    HeldPartition,
    TopicTransaction,
    TransactionKind,
)
from ureplicator_testkit.kafka.coordinated import Coordinated, CoordinatedCluster

IN, SECOND, OUT = ("in", 0), ("in", 1), ("out", 0)
BEGAN_MS = 1_000
WRITTEN_MS = 1_001
"""Time of the last record of a batch."""
LATER_MS = 10_000_000


@pytest.fixture
def cluster() -> CoordinatedCluster:
    return CoordinatedCluster({"in": 2, "out": 1})


def on(cluster: CoordinatedCluster, *topics: str) -> tuple[TopicTransaction, ...]:
    """Transactions of the topics, where all that there are is known."""
    found = KafkaWriters(cluster).transactions_on(topics or ("in",))
    assert found.unknown == ()
    return found.found


def held(topic: str = "in", partition: int = 0, first: int = 0) -> HeldPartition:
    return HeldPartition(topic, partition, first, producer_epoch=0, last_ms=WRITTEN_MS)


def test_an_open_transaction_names_the_topics_that_move_together(
    cluster: CoordinatedCluster,
) -> None:
    cluster.begin("app", 7, IN, SECOND, OUT, node=2)
    assert on(cluster) == (
        TopicTransaction(
            TransactionKind.OPEN,
            7,
            "app",
            producer_epoch=0,
            state="Ongoing",
            began_ms=BEGAN_MS,
            timeout_ms=60_000,
            partitions=frozenset({IN, SECOND, OUT}),
            held=(held(), held(partition=1)),
        ),
    )
    (one,) = on(cluster)
    assert one.topics == {"in", "out"}


def test_transactions_of_other_topics_and_finished_ones_are_left_out(
    cluster: CoordinatedCluster,
) -> None:
    cluster.begin("other", 7, OUT)
    cluster.begin("finished", 8, IN)
    cluster.end("finished")
    assert on(cluster) == ()
    assert [one.transactional_id for one in on(cluster, "out")] == ["other"]


def test_a_transaction_without_records_yet_is_found(cluster: CoordinatedCluster) -> None:
    cluster.ids["app"] = Coordinated(7, state="Ongoing", partitions={IN}, began_ms=BEGAN_MS)
    (one,) = on(cluster)
    assert (one.kind, one.held) == (TransactionKind.OPEN, ())


def test_one_whose_outcome_is_decided_is_not_aborted(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN, SECOND).state = "PrepareCommit"
    cluster.ids["app"].partitions.remove(SECOND)
    cluster.mark(cluster.ids["app"], SECOND)
    (one,) = on(cluster)
    assert one.kind is TransactionKind.ENDING
    assert one.partitions == {IN}
    assert_refused(cluster, one, "its outcome is decided (PrepareCommit)", right="")


def test_one_that_ended_while_it_was_looked_for_is_left_out(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN, node=2)
    cluster.ids["app"].state = "CompleteCommit"
    cluster.passing = lambda: cluster.end("app")
    assert on(cluster) == ()


def test_one_that_its_coordinator_has_left_behind_hangs(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN)
    cluster.end("app")
    cluster.write(7, [IN])
    (one,) = on(cluster)
    expected = HeldPartition("in", 0, 3, producer_epoch=0, coordinator_epoch=3, last_ms=WRITTEN_MS)
    assert one == TopicTransaction(TransactionKind.HANGING, 7, "app", held=(expected,))


def test_the_next_transaction_of_its_id_does_not_hide_one_that_hangs(
    cluster: CoordinatedCluster,
) -> None:
    cluster.begin("app", 7, OUT)
    cluster.write(7, [IN])
    one, hanging = on(cluster, "in", "out")
    assert (one.kind, hanging.kind) == (TransactionKind.OPEN, TransactionKind.HANGING)
    assert one.topics == {"out"}
    assert hanging.topics == {"in"}


def test_one_without_an_id_hangs_if_we_see_all_ids(cluster: CoordinatedCluster) -> None:
    cluster.write(7, [IN, SECOND])
    (one,) = on(cluster)
    assert one == TopicTransaction(TransactionKind.HANGING, 7, held=(held(), held(partition=1)))


@pytest.mark.parametrize("reason", ["right", "loading", "state topic"])
def test_one_that_a_coordinator_may_have_is_hidden(
    cluster: CoordinatedCluster, reason: str
) -> None:
    cluster.begin("app", 7, IN, node=2)
    match reason:
        case "right":
            cluster.hidden_ids.add("app")
            cluster.shows_others = False
        case "loading":
            cluster.loading.add(2)
        case "state topic":
            del cluster.ids["app"]
            cluster.leaderless.add(("__transaction_state", 1))
    (one,) = KafkaWriters(cluster).transactions_on(["in"]).found
    assert one == TopicTransaction(TransactionKind.HIDDEN, 7, held=(held(),))
    right = "DESCRIBE on all transactional ids, and on the topic __transaction_state"
    assert_refused(cluster, one, "a coordinator may have it", right=right)


def test_a_hidden_one_that_goes_on_writing_is_still_there(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN)
    cluster.hidden_ids.add("app")
    cluster.shows_others = False
    cluster.passing = lambda: cluster.write(7, [IN])
    (one,) = on(cluster)
    assert one.kind is TransactionKind.HIDDEN


def test_what_is_not_known_is_said(cluster: CoordinatedCluster) -> None:
    cluster.loading.add(2)
    cluster.kafka.hidden.add("out")
    cluster.leaderless.add(SECOND)
    found = KafkaWriters(cluster).transactions_on(["in", "out", "none"])
    assert found.unknown == (
        "topic none: no leader",
        f"topic out: {cluster.kafka.denial('out')}",
        "in/1 has no leader, or does not exist",
        "transactions at c2:9092: COORDINATOR_LOAD_IN_PROGRESS",
    )


def test_brokers_that_list_no_transactions_show_producers_only(
    cluster: CoordinatedCluster,
) -> None:
    cluster.begin("app", 7, IN)
    cluster.versions.popitem()
    found = KafkaWriters(cluster).transactions_on(["in"])
    assert found.unknown == (TOO_OLD,)
    assert [(one.kind, one.producer_id) for one in found.found] == [(TransactionKind.HIDDEN, 7)]


def test_recent_producers_and_their_ids(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN)
    cluster.write(8, [IN])
    cluster.kafka.hidden.add("out")
    writers = KafkaWriters(cluster)
    recent = writers.recent_producers([IN, SECOND, OUT], since_ms=WRITTEN_MS, without=[8])
    assert (recent[IN], recent[SECOND]) == ({7: WRITTEN_MS}, {})
    assert isinstance(recent[OUT], PartitionUnavailable)
    assert writers.recent_producers([IN], since_ms=WRITTEN_MS + 1) == {IN: {}}
    assert writers.transactional_ids([7, 8]) == {7: "app"}
    assert writers.transactional_ids([]) == {}


def test_an_open_one_is_aborted_by_its_id(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN, OUT, node=2)
    found = on(cluster)
    assert KafkaWriters(cluster).abort(found, now_ms=LATER_MS) == {}
    assert cluster.initialised == ["app"]
    assert on(cluster, "in", "out") == ()


@pytest.mark.parametrize("following", ["ended", "another"])
def test_one_that_has_ended_by_itself_is_left_alone(
    cluster: CoordinatedCluster, following: str
) -> None:
    cluster.begin("app", 7, IN)
    found = on(cluster)
    cluster.end("app")
    if following == "another":
        cluster.ids["app"].state = "Ongoing"
        cluster.ids["app"].began_ms = BEGAN_MS + 1
    assert KafkaWriters(cluster).abort(found, now_ms=LATER_MS) == {}
    assert cluster.initialised == []


def test_hanging_ones_end_by_control_records_at_their_leaders(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN)
    cluster.end("app")
    cluster.write(7, [IN, SECOND])
    (one,) = on(cluster)
    assert KafkaWriters(cluster).abort([one], now_ms=WRITTEN_MS) == {}
    assert (on(cluster), cluster.initialised) == ((), [])
    assert [aborted[0] for aborted in cluster.kafka.logs[IN].aborted] == [7]
    ends = {key: cluster.kafka.logs[key].end for key in (IN, SECOND)}
    assert KafkaWriters(cluster).abort([one], now_ms=WRITTEN_MS) == {}, "it has ended"
    assert ends == {key: cluster.kafka.logs[key].end for key in (IN, SECOND)}


def test_one_without_an_id_is_aborted_when_no_coordinator_would_have_waited(
    cluster: CoordinatedCluster,
) -> None:
    cluster.write(7, [IN])
    (one,) = on(cluster)
    young_ms = WRITTEN_MS + cluster.longest_ms
    text = "its last record is 900 s old, and a transaction may take 900 s"
    assert_refused(cluster, one, text, right="", now_ms=young_ms)
    assert KafkaWriters(cluster).abort([one], now_ms=young_ms + 1) == {}
    assert on(cluster) == ()


def test_missing_rights_are_named(cluster: CoordinatedCluster) -> None:
    cluster.denied = {"InitProducerId", "WriteTxnMarkers"}
    cluster.begin("app", 7, IN)
    cluster.write(8, [IN])
    one, hanging = on(cluster)
    right = "WRITE on transactional id app"
    assert_refused(cluster, one, f"the principal lacks {right} at cluster c", right=right)
    right = "ALTER on the cluster (CLUSTER_ACTION before Kafka 3.8)"
    assert_refused(cluster, hanging, f"the principal lacks {right} at cluster c", right=right)
    cluster.denied = {"DescribeConfigs"}
    error = KafkaWriters(cluster).abort([hanging], now_ms=LATER_MS)[hanging]
    assert isinstance(error, ClusterUnavailable)
    assert "lacks DESCRIBE_CONFIGS on the cluster" in str(error)


def test_one_that_fails_does_not_keep_others_open(cluster: CoordinatedCluster) -> None:
    cluster.begin("app", 7, IN)
    cluster.write(8, [IN])
    cluster.denied = {"WriteTxnMarkers"}
    one, hanging = on(cluster)
    assert [*KafkaWriters(cluster).abort([hanging, one], now_ms=LATER_MS)] == [hanging]
    assert on(cluster) == (hanging,)


def assert_refused(
    cluster: CoordinatedCluster,
    transaction: TopicTransaction,
    text: str,
    *,
    right: str,
    now_ms: int = LATER_MS,
) -> None:
    error = KafkaWriters(cluster).abort([transaction], now_ms=now_ms)[transaction]
    assert isinstance(error, AbortRefused)
    assert text in str(error)
    assert error.right == right
