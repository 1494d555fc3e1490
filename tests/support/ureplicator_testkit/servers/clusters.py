"""Kafka clusters for tests and for `scripts/stack`, all local.

Every server listens on 127.0.0.1 only, logs into a file, and counts as started only when it responds
in its own protocol: a port opens long before a broker can serve. `stop` removes everything, data too,
and so does a start that fails.

A cluster of one broker is one combined process. A larger one has a controller process of its own, so
that any broker can be killed or frozen without losing the quorum, or (`combined`) its first broker is the
controller, too. Brokers talk to each other on a listener of their own: clients can then be sent through
proxies by `advertised_ports`. A client that needs a proxy to itself gets a listener to itself
(`listeners`, `advertise`).
"""

import base64
import itertools
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ureplicator_testkit.servers.broker_config import FEW_THREADS, Node, kraft_config
from ureplicator_testkit.servers.java import KAFKA_VERSION, QUICK_START, jars_folder, kafka_java
from ureplicator_testkit.servers.processes import NotInTimeError, Process, eventually
from ureplicator_testkit.servers.server import START_DEADLINE_S, Server

CONTROLLER_ID = 100
CHECKPOINT = "data/bootstrap.checkpoint"
METADATA_CHECKPOINT = "data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
"""Place of the first records of a new cluster; the second from Kafka 4.4 on."""

NOT_YET = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)

QUIET_CLIENT: dict[str, str | int] = {
    "log_level": 0,  # a server that is still starting is not logged
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "allow.auto.create.topics": "false",
}


class KafkaCluster(Server):
    """A KRaft cluster of one or several brokers; brokers are numbered from 1."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        name: str = "kafka",
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        ports: Sequence[int] | None = None,
        advertised_ports: Sequence[int] | None = None,
        listeners: Sequence[str] = (),
        version: str = KAFKA_VERSION,
        heap_mb: int = 384,
        java_options: Sequence[str] = QUICK_START,
        folder: Path | None = None,
        detached: bool = False,
        combined: bool = False,
    ) -> None:
        """`properties` go to every broker and win over what this class sets; `features` are finalized at
        these levels; `listeners` name more of them than the usual one, each broker has each; none of
        `java_options` is for brokers whose speed is measured, they have all threads; `combined`: the first
        broker is the controller, too, and is not to be killed."""
        assert ports is None or len(ports) == brokers
        assert advertised_ports is None or len(advertised_ports) == brokers
        super().__init__(name, folder, detached)
        self.brokers = brokers
        self.cluster_id = _new_id()
        self._properties = {**(FEW_THREADS if java_options else {}), **(properties or {})}
        self._features = dict(features or {})
        self._version = version
        self._heap_mb = heap_mb
        self._java_options = java_options
        self._nodes: dict[int, Node] = {}
        self._claim_nodes(ports, advertised_ports, combined or brokers == 1)
        for node in self._nodes.values():
            for listener in listeners if node.port else ():
                port = self._claim(None)
                node.more[listener] = port, port

    def _claim_nodes(
        self, ports: Sequence[int] | None, advertised: Sequence[int] | None, combined: bool
    ) -> None:
        for index in range(self.brokers):
            port = self._claim(ports[index] if ports else None)
            self._add_node(index + 1, port, advertised[index] if advertised else port)
        if combined:
            self._nodes[1].controller_port = self._claim(None)
        else:
            port, folder = self._claim(None), self.folder / "controller"
            self._nodes[CONTROLLER_ID] = Node(CONTROLLER_ID, None, None, 0, port, folder, {})

    def _add_node(self, number: int, port: int, advertised_port: int) -> Node:
        self._nodes[number] = Node(
            node_id=number,
            port=port,
            advertised_port=advertised_port,
            internal_port=self._claim(None),
            controller_port=None,
            folder=self.folder / f"broker-{number}",
            more={},
        )
        return self._nodes[number]

    # --- addresses ---------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses for clients (the advertised ones)."""
        ports = [n.advertised_port for n in self._nodes.values() if n.advertised_port]
        return ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def ports(self) -> list[int]:
        """The ports that the brokers listen on, behind proxies if there are any."""
        return [node.port for node in self._nodes.values() if node.port]

    def listener_port(self, listener: str, broker: int = 1) -> int:
        """Port of a broker for this listener."""
        return self._nodes[broker].more[listener][0]

    def advertise(self, listener: str, port: int, broker: int = 1) -> None:
        """Send the clients of a listener to this port, a proxy of it. Before `start`."""
        self._nodes[broker].more[listener] = self.listener_port(listener, broker), port

    def processes(self) -> list[Process]:
        return [node.process for node in self._nodes.values() if node.process]

    def process(self, broker: int = 1) -> Process:
        found = self._nodes[broker].process
        assert found is not None, "not started"
        return found

    def admin(self) -> AdminClient:
        """An admin client; keep it in a variable until its futures are done."""
        return self._admin_of(self.ports)

    def _admin_of(self, ports: Sequence[int]) -> AdminClient:
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        return AdminClient({"bootstrap.servers": servers, **QUIET_CLIENT})

    # --- start and stop --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Format and start every node, and wait until clients, groups and transactions work."""
        try:
            self._prepare(*self._nodes.values())
            for node in self._nodes.values():
                self._start_node(node)
            self.wait_ready()
            self._warm_up()
        except BaseException:
            self.stop()
            raise
        return self

    def kill(self, broker: int = 1) -> None:
        """End one broker without warning (SIGKILL); its data stays."""
        self.process(broker).kill_tree()

    def shutdown(self, broker: int = 1, deadline_s: float = 60) -> None:
        """End one broker cleanly (SIGTERM): it hands its partitions over first."""
        self.process(broker).terminate(deadline_s)

    def restart(self, broker: int = 1, *, clean: bool = True) -> None:
        """End one broker if it still runs, start it again, and wait until it serves."""
        if self.process(broker).running:
            if clean:
                self.shutdown(broker)
            else:
                self.kill(broker)
        self._start_node(self._nodes[broker])
        self.wait_ready(ask_broker=broker)

    def add_broker(self) -> int:
        """Start one more broker in a running cluster; returns its number. It holds no partition."""
        assert self.brokers > 1, "a combined process can only be alone"
        port = self._claim(None)
        self.brokers += 1
        node = self._add_node(self.brokers, port, port)
        self._prepare(node)
        self._start_node(node)
        self.wait_ready()
        return node.node_id

    def pause_broker(self, broker: int = 1) -> None:
        """Freeze one broker (SIGSTOP)."""
        self.process(broker).pause()

    def resume_broker(self, broker: int = 1) -> None:
        self.process(broker).resume()

    def _start_node(self, node: Node) -> None:
        folder = node.folder
        heap_mb = self._heap_mb if node.port else 192
        java = kafka_java(heap_mb, folder, version=self._version, options=self._java_options)
        command = java.command("kafka.Kafka", folder / "server.properties")
        name = f"{self.name}-{folder.name}"
        node.process = Process(name, command, log=folder / "server.log", detached=self.detached)

    def _prepare(self, *nodes: Node) -> None:
        """Write their configurations, and format their logs."""
        for node in nodes:
            node.folder.mkdir(parents=True, exist_ok=True)
            (node.folder / "server.properties").write_text(self._config(node))
        self._format(*nodes)

    def _format(self, *nodes: Node) -> None:
        """Format by Kafka's tool, once on a machine for each kind of cluster: what it writes differs by
        ids alone."""
        features = "".join(f"-{name}-{level}" for name, level in sorted(self._features.items()))
        kept = jars_folder() / f"kafka_2.13-{self._version}{features}.checkpoint"
        if not kept.exists():
            self._format_by_tool(nodes[0])
            part = kept.with_name(f"{kept.name}.{_new_id()}.part")
            part.write_bytes((nodes[0].folder / self._checkpoint).read_bytes())
            part.rename(kept)
        for node in nodes:
            checkpoint = node.folder / self._checkpoint
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.unlink(missing_ok=True)  # the tool's may not be written
            checkpoint.write_bytes(kept.read_bytes())
            (node.folder / "data/meta.properties").write_text(
                f"version=1\ncluster.id={self.cluster_id}\nnode.id={node.node_id}\n"
                f"directory.id={_new_id()}\n"
            )

    @property
    def _checkpoint(self) -> str:
        return METADATA_CHECKPOINT if self._version >= "4.4" else CHECKPOINT

    def _format_by_tool(self, node: Node) -> None:
        features = [("--feature", f"{name}={level}") for name, level in self._features.items()]
        command = kafka_java(128, node.folder, version=self._version).command(
            "kafka.tools.StorageTool",
            *("format", "--cluster-id", self.cluster_id),
            *("--config", node.folder / "server.properties"),
            *itertools.chain(*features),
        )
        log = node.folder / "format.log"
        formatter = Process("format", command, log=log, detached=self.detached)
        if formatter.wait(START_DEADLINE_S) != 0:
            raise AssertionError(f"{formatter.name} failed:\n{formatter.log_tail()}")

    def _config(self, node: Node) -> str:
        return kraft_config(node, self._nodes.values(), self._properties)

    # --- readiness ---------------------------------------------------------------------------

    def wait_ready(
        self, deadline_s: float = START_DEADLINE_S, *, ask_broker: int | None = None
    ) -> None:
        """Wait until all running brokers are registered and every partition has a leader."""
        port = self._nodes[ask_broker].port if ask_broker else None
        admin = self._admin_of([port] if port else self.ports)
        eventually(lambda: self._ready(admin), deadline_s, f"all of {self.name} responds")

    def _ready(self, admin: AdminClient) -> bool:
        running = self._running_brokers()
        try:
            seen = admin.list_topics(timeout=2)
        except KafkaException:
            return False
        leaders = [p.leader for topic in seen.topics.values() for p in topic.partitions.values()]
        return set(seen.brokers) == running and (-1 not in leaders or len(running) < self.brokers)

    def _running_brokers(self) -> set[int]:
        """Brokers that should respond: all except those that the test stopped."""
        running = {n.node_id for n in self._nodes.values() if n.process and n.process.running}
        for process in self.processes():
            if process.returncode not in (None, -9, 143) and not process.disk_full:
                process.assert_running()
        return running - {CONTROLLER_ID}

    def _warm_up(self) -> None:
        """Create the internal topics, or the first test pays for them, or fails on them.

        Both at once: clients pause before they look for a coordinator again.
        """
        with ThreadPoolExecutor(2) as pool:
            for warmed in [pool.submit(self._warm_transactions), pool.submit(self._warm_groups)]:
                warmed.result()

    def _warm_transactions(self) -> None:
        producer = Producer({**self._warming(), "transactional.id": "warm-up"})
        self._until_served(lambda: producer.init_transactions(10), "transactions")

    def _warm_groups(self) -> None:
        consumer = Consumer({**self._warming(), "group.id": "warm-up"})
        try:
            partitions = [TopicPartition("warm-up", 0)]
            self._until_served(lambda: consumer.committed(partitions, timeout=30), "groups")
        finally:
            consumer.close()

    def _warming(self) -> dict[str, str | int]:
        return {"bootstrap.servers": self._plain_bootstrap(), **QUIET_CLIENT}

    def _until_served(self, request: Callable[[], object], what: str) -> None:
        """A coordinator is elected, moves and loads for a while after the start."""
        end = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                request()
                return
            except KafkaException as error:
                cause = error.args[0]
                # retriable() covers only what the client retries by itself.
                if not (cause.retriable() or cause.code() in NOT_YET):
                    raise
                if time.monotonic() > end:
                    raise NotInTimeError(f"{self.name}: no {what}: {cause}") from None
                time.sleep(0.05)

    def _plain_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)


def _new_id() -> str:
    """A new id in the format of Kafka; an id that began with `-` would be read as an option."""
    id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return id if not id.startswith("-") else _new_id()
