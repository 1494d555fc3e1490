"""The two replicators: each is started for some topics, and stopped after them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import yaml
from confluent_kafka.admin import AdminClient
from rich.console import Console

from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers
from ureplicator_common.model import Delivery
from ureplicator_demo.fleet import Fleet, Mark, WorkerPages
from ureplicator_testkit.records.topics import QUIET, delete_topic
from ureplicator_testkit.servers.java import (
    KAFKA_VERSION,
    LOG4J,
    Java,
    NotSetUpError,
    jars_folder,
    java_executable,
    kafka_jars,
)
from ureplicator_testkit.servers.ports import PortClaim, claim_port
from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.servers.stack import config_text

MARK_NAME = "UREPLICATOR_BENCH"
HEAP_MB = 2_048
NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})

_MM2_DEFAULT = """\
clusters = A, B
A.bootstrap.servers = {source}
B.bootstrap.servers = {target}
A->B.enabled = true
A->B.topics = {topics}
B->A.enabled = false
B->A.emit.heartbeats.enabled = false
A->B.emit.heartbeats.enabled = false
A->B.emit.checkpoints.enabled = false
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
tasks.max = {partitions}
"""
_MM2_TUNED = """\
tasks.max = 4
A.consumer.max.poll.records = 5000
A.consumer.max.partition.fetch.bytes = 4194304
A.consumer.fetch.min.bytes = 1
B.producer.batch.size = 524288
B.producer.linger.ms = 20
B.producer.enable.idempotence = true
B.producer.max.in.flight.requests.per.connection = 5
B.producer.buffer.memory = 134217728
B.producer.compression.type = {codec}
B.offset.flush.timeout.ms = 30000
"""
"""Overrides the defaults; more tasks or larger batches made nothing faster."""
_MM2_EXACTLY_ONCE = """\
exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}
A.consumer.isolation.level = read_committed
"""
"""KIP-618 for MirrorMaker 2: its workers speak to each other through an internal REST server."""


_MM2_GROUPS = """\
A->B.emit.checkpoints.enabled = true
A->B.sync.group.offsets.enabled = true
A->B.groups = {groups}
A->B.refresh.groups.interval.seconds = 1
A->B.emit.checkpoints.interval.seconds = 1
A->B.sync.group.offsets.interval.seconds = 1
A->B.offset.lag.max = 100
"""
"""Settings of consumers that go on at the target. `offset.lag.max` is its default."""


class Contender(Protocol):
    """A replicator that copies a topic."""

    name: str

    def start(self, topics: Sequence[str], profile: Profile) -> None:
        """Start copying; the target topics exist and are empty."""

    def processes(self) -> Sequence[Process]:
        """Root processes of all its process trees."""

    def wrong(self) -> str:
        """Reasons for not copying, as far as it reports them."""

    def stop(self) -> None:
        """Stop it, and remove what could disturb the next run."""


class Ours:
    """A controller and a worker with default settings; each start is a fleet of its own.

    `route`, `worker`: other settings of these sections; `kind`: their name.
    """

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        *,
        delivery: Delivery,
        kind: str = "",
        route: Mapping[str, Any] = NO_SETTINGS,
        worker: Mapping[str, Any] = NO_SETTINGS,
    ) -> None:
        once = "exactly once" if delivery is Delivery.EXACTLY_ONCE else ""
        self.name = ", ".join(filter(None, ("ureplicator", kind, once)))
        self._servers, self._folder = servers, folder
        self._route = {"delivery": delivery.value, **route}
        self._worker = worker
        self._runs = 0
        self._fleet: Fleet | None = None

    def start(self, topics: Sequence[str], profile: Profile) -> None:
        self._runs += 1
        name = re.sub(r"[^a-z0-9]+", "-", f"bench {self.name} {self._runs}")
        folder = self._folder / name
        folder.mkdir()
        config = folder / "config.yaml"
        settings = yaml.safe_load(
            config_text(
                zookeeper=self._servers.zookeeper.hosts,
                source=self._servers.source.bootstrap,
                target=self._servers.target_address,
            )
        )
        settings["routes"][0] |= self._route
        if (tls := self._servers.tls) is not None:
            for cluster_name, cluster in self._servers.by_name().items():
                settings["clusters"][cluster_name] |= tls.of_librdkafka(cluster)
        settings["worker"] |= self._worker
        config.write_text(yaml.safe_dump(settings))
        mark = Mark(MARK_NAME, str(folder))
        self._fleet = Fleet(config, folder, name=name, workers=1, mark=mark)
        self._fleet.start()
        self._fleet.wait_ready(Console(stderr=True, highlight=False))
        for topic in topics:
            self._fleet.rest("POST", "/topics", {"topic": topic})

    def processes(self) -> Sequence[Process]:
        return self._fleet.processes if self._fleet else ()

    def worker(self) -> Process:
        return self.processes()[1]

    def pages(self) -> WorkerPages:
        return self.fleet.pages()[0]

    @property
    def fleet(self) -> Fleet:
        """The fleet that was started last, and runs."""
        assert self._fleet is not None
        return self._fleet

    def wrong(self) -> str:
        return self._fleet.wrong() if self._fleet else "not started"

    def stop(self) -> None:
        if self._fleet is not None:
            self._fleet.stop()
            self._fleet = None


class OneProcess:
    """A contender that is one process, with what that starts."""

    _process: Process | None = None

    def processes(self) -> Sequence[Process]:
        return [self._process] if self._process else ()

    def wrong(self) -> str:
        return self._process.log_tail() if self._process else "not started"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill_tree()
            self._process = None


class MirrorMaker(OneProcess):
    """MirrorMaker 2 in its dedicated mode, with the JVM settings of Kafka's own start script."""

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        *,
        tuned: bool,
        once: bool = False,
        groups: str = "",
    ) -> None:
        """`groups`: pattern of consumer groups that follow."""
        how = "tuned" if tuned else "default"
        self.name = f"MirrorMaker 2 ({how}{', exactly once' * once})"
        self._servers, self._folder, self._tuned, self._once = servers, folder, tuned, once
        self._groups = groups
        self._runs = 0
        self._port: PortClaim

    def start(self, topics: Sequence[str], profile: Profile) -> None:
        self._runs += 1
        folder = self._folder / f"mirror-maker{'-once' * self._once}-{self._runs}"
        folder.mkdir()
        properties = folder / "mm2.properties"
        self._port = claim_port()
        text = _MM2_DEFAULT + _MM2_TUNED * self._tuned + _MM2_EXACTLY_ONCE * self._once
        text += _MM2_GROUPS * bool(self._groups)
        text += self._tls_lines()
        properties.write_text(
            text.format(
                source=self._servers.source.bootstrap,
                target=self._servers.target_address,
                topics=",".join(topics),
                partitions=profile.partitions,
                codec=profile.codec,
                port=self._port.port,
                groups=self._groups,
            )
        )
        command = _mirror_maker_java(folder).command(
            "org.apache.kafka.connect.mirror.MirrorMaker", properties
        )
        self._process = Process("mirror-maker", command, log=folder / "mm2.log")

    def _tls_lines(self) -> str:
        """Lines for TLS, which override the addresses."""
        tls = self._servers.tls
        ends = {"A": self._servers.source, "B": self._servers.target} if tls else {}
        return "".join(
            f"{end}.{key} = {value}\n"
            for end, cluster in ends.items()
            for key, value in (tls.of_java(cluster) if tls else {}).items()
        )

    def stop(self) -> None:
        if self._process is not None:
            super().stop()
            self._port.release()
            for cluster in (self._servers.source, self._servers.target):
                _delete_topics_of_mm2(cluster.bootstrap)


def _mirror_maker_java(folder: Path) -> Java:
    jars = jars_folder() / f"connect-mirror-{KAFKA_VERSION}"
    if not jars.exists():
        raise NotSetUpError(f"no MirrorMaker 2 in {jars}: run scripts/setup --bench")
    settings = folder / "log4j2.properties"
    settings.write_text(LOG4J)
    options = (
        f"-Xmx{HEAP_MB}m",
        *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
        *("-XX:-UsePerfData", "-Djava.awt.headless=true"),
        f"-Dlog4j2.configurationFile={settings}",
    )
    # The logging binding is only among the jars of the broker.
    classpath = os.pathsep.join((f"{jars}/*", f"{kafka_jars()}/*"))
    return Java(java_executable(), classpath, options)


def _delete_topics_of_mm2(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for topic in admin.list_topics(timeout=30).topics:
        if topic.startswith("mm2-") or topic.endswith(".checkpoints.internal"):
            delete_topic(bootstrap, topic)
