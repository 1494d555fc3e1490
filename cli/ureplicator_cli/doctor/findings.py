"""Findings from what was read: each with its level, the reason, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ureplicator_cli.doctor.facts import HostFacts, RestFacts, ZooKeeperFacts
from ureplicator_common.kafka.preflight import ClusterFacts, Right, Server
from ureplicator_common.kafka.transactions.producer_memory import ProducerMemory
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION
from ureplicator_common.printable import listed

MIN_OPEN_FILES = 4_096
MEMORY_OF_JVM = 300_000_000
MEMORY_OF_PYTHON = 180_000_000
"""Bytes, as measured: see the sizing in docs/operations.md."""
MAX_NAMES = 5

SOURCE_REQUESTS = {
    1: ("Fetch", 12),
    2: ("ListOffsets", 5),
    3: ("Metadata", 10),
    10: ("FindCoordinator", 3),
    32: ("DescribeConfigs", 1),
}
TARGET_REQUESTS = {
    0: ("Produce", 9),
    2: ("ListOffsets", 5),
    3: ("Metadata", 10),
    9: ("OffsetFetch", 7),
    10: ("FindCoordinator", 3),
    19: ("CreateTopics", 5),
    22: ("InitProducerId", 2),
    24: ("AddPartitionsToTxn", 1),
    25: ("AddOffsetsToTxn", 1),
    26: ("EndTxn", 1),
    28: ("TxnOffsetCommit", 3),
    37: ("CreatePartitions", 1),
}
"""API key -> name and a version that must be accepted: all of them are, by brokers from 2.8 to 4.x."""
COUNT_REQUESTS = {1: SOURCE_REQUESTS[1]}
"""Beside them, of a target of exactly once without transactions: what is there is read."""
SAME_OFFSETS_REQUESTS = {21: ("DeleteRecords", 1), 27: ("WriteTxnMarkers", 1)}
"""Beside them, of a target of topics whose offsets are to be the same."""

_DO = {
    Right.CREATE_TOPICS: "allow CREATE on the cluster or the topics, or create target topics yourself",
    Right.PRODUCER_IDS: "allow WRITE on the topics, or IDEMPOTENT_WRITE on the cluster",
    Right.TRANSACTIONS: "allow WRITE and DESCRIBE on transactional ids that begin with the fleet's name",
    Right.GROUP: "allow READ on groups that begin with ureplicator.",
    Right.CONTROL_RECORDS: (
        "allow ALTER on the cluster, before Kafka 3.8 CLUSTER_ACTION: without it each source offset"
        " without a record takes a transaction"
    ),
    Right.DELETE_RECORDS: "allow DELETE on the target topics whose offsets are to be the same",
}
_OPTIONAL = (Right.CREATE_TOPICS, Right.DELETE_RECORDS, Right.CONTROL_RECORDS)
"""Rights whose lack is a warning only: of the first two, since single topics may have them; of the last,
since transactions replace it."""


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `do`: what an operator should do; "" where nothing is to be done."""

    level: Level
    subject: str
    reason: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class ClusterRole:
    """Use of a cluster by the routes. `replicas`: the most that a route's target topics are created with.
    `is_counted`: a target of exactly once without transactions. `is_filled`: a target of topics whose offsets
    are to be the same."""

    name: str
    is_source: bool
    is_target: bool
    replicas: int = BROKER_DEFAULT_REPLICATION
    is_counted: bool = False
    is_filled: bool = False


def cluster_findings(role: ClusterRole, facts: ClusterFacts) -> Iterator[Finding]:
    """All findings about one cluster."""
    subject = f"cluster {role.name}"
    yield from _servers(subject, facts)
    responding = [server for server in (*facts.servers, *facts.advertised) if not server.failure]
    if not responding:
        return
    yield from _versions(subject, role, responding)
    yield from _topics(subject, role, facts)
    yield from _replicas(subject, role, facts)
    if role.is_counted and facts.memory is not None:
        yield _memory(subject, facts.memory)
    for right, refusal in facts.rights.items():
        if not refusal:
            yield Finding(Level.OK, subject, f"may {right}")
        else:
            level = Level.WARNING if right in _OPTIONAL else Level.FAILURE
            yield Finding(level, subject, f"may not {right}: {refusal}", _DO[right])
    for what, reason in facts.unread.items():
        yield Finding(
            Level.WARNING, subject, f"not known: {what}: {reason}", "allow it, or check it by hand"
        )


def _servers(subject: str, facts: ClusterFacts) -> Iterator[Finding]:
    silent = [server for server in facts.servers if server.failure]
    for server in silent:
        level = Level.FAILURE if len(silent) == len(facts.servers) else Level.WARNING
        yield Finding(
            level,
            subject,
            f"{server.address} does not respond: {server.failure}",
            "start it, open the way to it, or correct bootstrap.servers",
        )
    for server in facts.advertised:
        if server.failure:
            yield Finding(
                Level.FAILURE,
                subject,
                f"broker {server.address} is advertised and does not respond: {server.failure}",
                "correct its advertised.listeners, or open the way to it",
            )
    count = len(facts.servers) - len(silent)
    if count:
        others = sum(not server.failure for server in facts.advertised)
        more = f" and {others} other brokers" if others else ""
        text = f"{count} of {len(facts.servers)} bootstrap servers{more} respond"
        yield Finding(Level.OK, subject, f"{text} (id {facts.cluster_id or 'not known'})")


def _replicas(subject: str, role: ClusterRole, facts: ClusterFacts) -> Iterator[Finding]:
    if facts.brokers is not None and facts.brokers < role.replicas:
        yield Finding(
            Level.FAILURE,
            subject,
            f"has {facts.brokers} brokers, and target topics are to have {role.replicas} replicas",
            "start more brokers, or lower replication_factor of the route",
        )


def _memory(subject: str, memory: ProducerMemory) -> Finding:
    """Judge how long brokers know a producer, for routes that deliver exactly once without transactions."""
    if fault := memory.fault():
        do = "raise it (or lower connections.max.idle.ms, if that is named); exactly_once waits for it"
        return Finding(Level.FAILURE, subject, f"exactly once: {fault}", do)
    if memory.unread:
        text = f"not known how long brokers know a producer: {memory.unread}"
        do = "allow DESCRIBE_CONFIGS on the cluster, or check docs/exactly-once.md by hand"
        return Finding(Level.WARNING, subject, text, do)
    return Finding(Level.OK, subject, "brokers know producers for long enough for exactly once")


def _versions(subject: str, role: ClusterRole, servers: Sequence[Server]) -> Iterator[Finding]:
    needed = {
        **(SOURCE_REQUESTS if role.is_source else {}),
        **(TARGET_REQUESTS if role.is_target else {}),
        **(COUNT_REQUESTS if role.is_counted else {}),
        **(SAME_OFFSETS_REQUESTS if role.is_filled else {}),
    }
    lacking = False
    for server in servers:
        missing = [
            f"{name} {version}"
            for key, (name, version) in needed.items()
            if not _accepts(server, key, version)
        ]
        if missing:
            lacking = True
            yield Finding(
                Level.FAILURE,
                subject,
                f"{server.address} does not accept {', '.join(missing)}",
                "use brokers from 2.8 to 4.x",
            )
    if not lacking:
        yield Finding(Level.OK, subject, f"accepts the {len(needed)} kinds of requests it is asked")


def _accepts(server: Server, key: int, version: int) -> bool:
    first, last = server.versions.get(key, (1, 0))
    return first <= version <= last


def _topics(subject: str, role: ClusterRole, facts: ClusterFacts) -> Iterator[Finding]:
    topics = facts.topics
    if topics is None:
        return
    if role.is_source and not topics.count:
        yield Finding(
            Level.WARNING,
            subject,
            "shows no topic: there is none, or the login may describe none",
            "allow DESCRIBE and READ on the topics to be copied",
        )
    if not topics.count:
        return
    used = [("read", "READ", topics.not_readable)]  # a position of a topic needs it, too
    if role.is_target:
        used.append(("written", "WRITE", topics.not_writable))
    for verb, right, refused in used:
        if refused:
            text = f"{len(refused)} of {topics.count} topics may not be {verb}: {listed(refused, MAX_NAMES)}"
            yield Finding(
                Level.WARNING, subject, text, f"allow {right} on those that are to be copied"
            )
        else:
            yield Finding(Level.OK, subject, f"all {topics.count} visible topics may be {verb}")


def size_findings(source: str, target: str, facts: Sequence[ClusterFacts]) -> Iterator[Finding]:
    """Limits of a route: what its source takes must fit into its target."""
    largest, limit = (cluster.max_message_bytes for cluster in facts)
    if largest is None or limit is None:
        return
    subject = f"route {source}.{target}"
    if limit < largest:
        yield Finding(
            Level.WARNING,
            subject,
            f"message.max.bytes is {largest} at the source and {limit} at the target:"
            " larger batches will be refused",
            f"raise message.max.bytes at the target to {largest}, or max.message.bytes of topics",
        )
    else:
        yield Finding(Level.OK, subject, "what the source takes by default fits into the target")


def zookeeper_findings(facts: ZooKeeperFacts) -> Iterator[Finding]:
    subject = "ZooKeeper"
    responding = [server for server, failure in facts.servers.items() if not failure]
    for server, failure in facts.servers.items():
        if failure:
            level = Level.WARNING if responding else Level.FAILURE
            do = "start it, open the way to it, or correct zookeeper.hosts"
            yield Finding(level, subject, f"{server} does not respond: {failure}", do)
    if not responding:
        return
    yield Finding(Level.OK, subject, f"{len(responding)} of {len(facts.servers)} servers respond")
    if facts.refusal:
        do = "give the login all rights below /ureplicator (zookeeper.digest_file)"
        yield Finding(Level.FAILURE, subject, f"the tree may not be written: {facts.refusal}", do)
    else:
        yield Finding(Level.OK, subject, f"{facts.tree} may be read and written")
    if not facts.has_login:
        do = "set zookeeper.digest_file, or keep ZooKeeper's port to the fleet"
        yield Finding(Level.WARNING, subject, "no login: who reaches it may change the fleet", do)


def host_findings(facts: HostFacts, *, slots: int, master: str = "local") -> Iterator[Finding]:
    """`slots`: of the worker that is to run here; 0: none is. `master`: its Spark master."""
    subject = "host"
    yield Finding(Level.OK, subject, f"Python {facts.python}, ureplicator {facts.version}")
    if slots:
        if facts.java_failure:
            yield Finding(Level.FAILURE, subject, facts.java_failure, "workers need Java 17")
        else:
            yield Finding(Level.OK, subject, f"Java: {facts.java}")
        if facts.pyspark:
            yield Finding(Level.OK, subject, f"pyspark {facts.pyspark}")
        else:
            do = 'install "ureplicator[worker]"'
            yield Finding(Level.FAILURE, subject, "pyspark is not installed", do)
        yield from _names(facts, is_local=master.startswith("local"))
    yield _at_least(subject, "open files", facts.open_files, MIN_OPEN_FILES, "raise `ulimit -n`")
    if facts.memory_bytes is not None:
        do = "give the machine more memory, or worker.slots fewer"
        needed = MEMORY_OF_PYTHON * (slots + 1) + (MEMORY_OF_JVM if slots else 0)
        yield _at_least(subject, "bytes of free memory", facts.memory_bytes, needed, do)
    yield _clock(subject, facts.is_clock_synchronised)


def _names(facts: HostFacts, *, is_local: bool) -> Iterator[Finding]:
    """Names that each JVM of Spark looks up at its start: the worker's own does without, executors do not."""
    subject = "host"
    if facts.name_address:
        yield Finding(Level.OK, subject, f"name {facts.name}: {facts.name_address}")
    else:
        yield _lacking(
            f"name {facts.name} has no address",
            "executors on hosts without one do not start",
            "give those hosts one in DNS or /etc/hosts, or start Spark there with SPARK_LOCAL_HOSTNAME",
            is_local=is_local,
        )
    if facts.user_name:
        yield Finding(Level.OK, subject, f"user {facts.user_name}")
    else:
        yield _lacking(
            f"user id {facts.user_id} has no name",
            "executors under such an id do not start",
            "have executors run as a user with an entry in /etc/passwd of their host or image",
            is_local=is_local,
        )


def _lacking(text: str, effect: str, do: str, *, is_local: bool) -> Finding:
    if is_local:
        return Finding(Level.OK, "host", f"{text}; workers need none")
    return Finding(Level.WARNING, "host", f"{text}: {effect}", do)


def _at_least(subject: str, what: str, found: int, needed: int, do: str) -> Finding:
    if found >= needed:
        return Finding(Level.OK, subject, f"{found:,} {what}")
    return Finding(Level.WARNING, subject, f"{found:,} {what}: fewer than {needed:,}", do)


def _clock(subject: str, is_synchronised: bool | None) -> Finding:
    if is_synchronised:
        return Finding(Level.OK, subject, "the clock is synchronised")
    text = "not known whether the clock is synchronised" if is_synchronised is None else ""
    return Finding(
        Level.WARNING,
        subject,
        text or "the clock is not synchronised: ages and lag in seconds will be wrong",
        "run an NTP client on all machines, also of brokers and ZooKeeper, which do not tell their time",
    )


def rest_findings(facts: RestFacts) -> Iterator[Finding]:
    subject = "REST"
    if facts.port_failure:
        yield Finding(
            Level.WARNING,
            subject,
            f"{facts.address} cannot be listened on: {facts.port_failure}",
            "stop what has the port, unless it is this fleet's controller, or set controller.port",
        )
    else:
        yield Finding(Level.OK, subject, f"{facts.address} is free")
    if facts.mode == "open":
        do = "set controller.access.mode to tokens"
        yield Finding(Level.WARNING, subject, "no login: who reaches the port may do all", do)
    elif facts.mode == "tokens" and not facts.has_tls:
        do = "set controller.tls, or put a proxy with TLS before it"
        yield Finding(Level.WARNING, subject, "tokens are sent without TLS", do)
    else:
        yield Finding(Level.OK, subject, f"access: {facts.mode}")
