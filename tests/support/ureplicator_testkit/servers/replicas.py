"""Roles of the brokers of a cluster, and places of the replicas of a partition.

Faults are injected into a broker because of its role: the leader of a partition, the coordinator of a
group or of a transactional id, the first bootstrap server (always broker 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewTopic
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

GROUPS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
PREFERRED = 0
SETTLED_S = 60.0
RESPONSE_S = 20

Placement = Sequence[Sequence[int]]
"""The brokers of each partition; the first one is the preferred leader."""

ROTATED: Placement = ((1, 2, 3), (2, 3, 1), (3, 1, 2))


def create_placed(
    cluster: KafkaCluster,
    topic: str,
    placement: Placement = ROTATED,
    *,
    config: Mapping[str, str] | None = None,
) -> None:
    """A topic whose replicas lie there; returns when each partition is led by its first broker."""
    admin = cluster.admin()
    new = NewTopic(
        topic,
        num_partitions=len(placement),
        replica_assignment=[list(brokers) for brokers in placement],
        config=dict(config or {}),
    )
    admin.create_topics([new])[topic].result(timeout=RESPONSE_S)
    wanted = [brokers[0] for brokers in placement]
    eventually(lambda: leaders(cluster, topic) == wanted, SETTLED_S, f"{topic} is led by {wanted}")


def leaders(cluster: KafkaCluster, topic: str) -> list[int]:
    """The leader of each partition, -1 for none; [] if no broker responds."""
    found = _described(cluster).get(topic, {})
    return [found[number].leader for number in sorted(found)]


def leader(cluster: KafkaCluster, topic: str, partition: int) -> int:
    """Wait until there is one."""

    def led() -> int:
        found = leaders(cluster, topic)
        return found[partition] if len(found) > partition and found[partition] > 0 else 0

    return eventually(led, SETTLED_S, f"{topic}/{partition} has a leader")


def in_sync(cluster: KafkaCluster, topic: str, partition: int) -> set[int]:
    return set(_described(cluster)[topic][partition].isrs)


def group_coordinator(cluster: KafkaCluster, group: str) -> int:
    return leader(cluster, GROUPS_TOPIC, partition_of(group, len(leaders(cluster, GROUPS_TOPIC))))


def transaction_coordinator(cluster: KafkaCluster, transactional_id: str) -> int:
    count = len(leaders(cluster, TRANSACTIONS_TOPIC))
    return leader(cluster, TRANSACTIONS_TOPIC, partition_of(transactional_id, count))


def name_coordinated_by(
    cluster: KafkaCluster,
    prefix: str,
    *,
    group: Callable[[str], str],
    group_broker: int,
    id: Callable[[str], str],
    id_broker: int,
) -> str:
    """A name whose group and transactional id, as they are derived from it, have these coordinators."""
    groups, transactions = leaders(cluster, GROUPS_TOPIC), leaders(cluster, TRANSACTIONS_TOPIC)
    for number in range(1_000):
        name = f"{prefix}-{number}"
        found = (
            groups[partition_of(group(name), len(groups))],
            transactions[partition_of(id(name), len(transactions))],
        )
        if found == (group_broker, id_broker):
            return name
    raise AssertionError(f"brokers {group_broker} and {id_broker}: {groups}, {transactions}")


def partition_of(name: str, count: int) -> int:
    """Partition by the hash that Java computes of a string."""
    code = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return abs(code - (1 << 32) if code >> 31 else code) % count


def settle(cluster: KafkaCluster) -> None:
    """Wait until every replica is in sync, and give each partition back to its preferred leader."""
    eventually(
        lambda: not _behind(cluster), SETTLED_S, f"all replicas of {cluster.name} are in sync"
    )
    client = _client(cluster)
    try:
        client.elect_leaders(PREFERRED, raise_errors=False)
    finally:
        client.close()
    eventually(lambda: not _moved(cluster), SETTLED_S, f"{cluster.name} has its preferred leaders")


def reassign(cluster: KafkaCluster, topic: str, placement: Placement) -> None:
    """Move the replicas there, and wait until they are in sync and the former ones are gone."""
    client = _client(cluster)
    try:
        client.alter_partition_reassignments(
            {TopicPartition(topic, n): list(brokers) for n, brokers in enumerate(placement)}
        )
    finally:
        client.close()

    def moved() -> bool:
        found = _described(cluster).get(topic, {})
        return all(
            sorted(found[n].replicas) == sorted(found[n].isrs) == sorted(brokers)
            for n, brokers in enumerate(placement)
        )

    eventually(moved, SETTLED_S, f"{topic} lies on {placement}")


def _client(cluster: KafkaCluster) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=[f"127.0.0.1:{port}" for port in cluster.ports])


def _described(cluster: KafkaCluster) -> Mapping[str, Mapping[int, PartitionMetadata]]:
    """Every topic; nothing if no broker responds."""
    try:
        found = cluster.admin().list_topics(timeout=RESPONSE_S).topics
    except KafkaException:
        return {}
    return {name: topic.partitions for name, topic in found.items()}


def _behind(cluster: KafkaCluster) -> list[str]:
    """Partitions with replicas that are not in sync."""
    return _partitions_where(
        cluster, lambda partition: set(partition.isrs) != set(partition.replicas)
    )


def _moved(cluster: KafkaCluster) -> list[str]:
    """Partitions that another than their preferred leader leads."""
    return _partitions_where(cluster, lambda partition: partition.leader != partition.replicas[0])


def _partitions_where(
    cluster: KafkaCluster, wrong: Callable[[PartitionMetadata], bool]
) -> list[str]:
    """Their names; `unknown` if no broker responds."""
    found = _described(cluster)
    return [
        f"{topic}/{number}"
        for topic, partitions in found.items()
        for number, partition in partitions.items()
        if wrong(partition)
    ] or ([] if found else ["unknown"])
