"""Real servers for tests and for `scripts/stack`: ZooKeeper and KRaft Kafka clusters, all local.

Every server listens on 127.0.0.1 only, logs into a file, and counts as started only when it responds
in its own protocol: a port opens long before a broker can serve. `stop` removes everything, data too,
and so does a start that fails.

A cluster of one broker is one combined process. A larger one has a controller process of its own, so
that any broker can be killed or frozen without losing the quorum. Brokers talk to each other on a
listener of their own: clients can then be sent through proxies by `advertised_ports`. A client that
needs a proxy to itself gets a listener to itself (`listeners`, `advertise`).
"""

import base64
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ureplicator_testkit.servers.java import kafka_java, zookeeper_java
from ureplicator_testkit.servers.ports import PortClaim, PortTakenError, claim_port, port_is_free
from ureplicator_testkit.servers.processes import (
    NotInTimeError,
    Process,
    eventually,
    remove_folder,
    scratch_folder,
)

START_DEADLINE_S = 60.0
CONTROLLER_ID = 100

# Short tick: sessions of one second are allowed, and expire when they should.
ZOOKEEPER_CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
"""

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


class _Server:
    """Common to ZooKeeper and Kafka: a folder, claimed ports, and processes."""

    def __init__(self, name: str, folder: Path | None, detached: bool) -> None:
        self.name = name
        self.folder = folder or scratch_folder(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.detached = detached
        self._claims: list[PortClaim] = []

    def _claim(self, wanted: int | None) -> int:
        if wanted is not None:
            if not port_is_free(wanted):
                raise PortTakenError(f"port {wanted} for {self.name} is taken")
            return wanted
        claim = claim_port()
        self._claims.append(claim)
        return claim.port

    def processes(self) -> list[Process]:
        raise NotImplementedError

    def start(self) -> Self:
        raise NotImplementedError

    def pause(self) -> None:
        """Freeze all processes (SIGSTOP)."""
        for process in self.processes():
            process.pause()

    def resume(self) -> None:
        for process in self.processes():
            process.resume()

    def stop(self) -> None:
        """Kill it and remove all its data at once."""
        for process in self.processes():
            process.kill_tree()
        for claim in self._claims:
            claim.release()
        self._claims.clear()
        remove_folder(self.folder)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_all(*servers: _Server) -> None:
    """Start several servers in parallel; if one fails, stop all."""
    pool = ThreadPoolExecutor(len(servers))
    try:
        for started in [pool.submit(server.start) for server in servers]:
            started.result()
    except BaseException:
        for server in servers:  # ends the other starts too: their processes have ended
            server.stop()
        pool.shutdown()
        for server in servers:
            server.stop()
        raise
    pool.shutdown()


class ZooKeeperServer(_Server):
    """One ZooKeeper server: standalone, or (`ensemble`) a member of several."""

    main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"

    def __init__(
        self,
        *,
        name: str = "zookeeper",
        port: int | None = None,
        heap_mb: int = 192,
        folder: Path | None = None,
        detached: bool = False,
    ) -> None:
        super().__init__(name, folder, detached)
        self.port = self._claim(port)
        self._heap_mb = heap_mb
        self._process: Process | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        assert self._process is not None, "not started"
        return self._process

    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def start(self) -> Self:
        """Start it with its data, and wait until it serves."""
        try:
            self.launch()
            eventually(self._serves, START_DEADLINE_S, f"{self.name} serves")
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        """Start it without waiting."""
        java = zookeeper_java(self._heap_mb, self.folder)
        config = self.folder / "zookeeper.properties"
        config.write_text(self.config())
        command = java.command(self.main_class, config)
        log = self.folder / "zookeeper.log"
        self._process = Process(self.name, command, log=log, detached=self.detached)

    def config(self) -> str:
        return ZOOKEEPER_CONFIG.format(data=self.folder / "data", port=self.port)

    def kill(self) -> None:
        """End it without warning (SIGKILL); its data stays."""
        self.process.kill_tree()

    def restart(self) -> None:
        """Start it again with its data, after `kill` or instead of it."""
        self.kill()
        self.start()

    def serves(self) -> bool:
        """It responds with `Mode: ...` to the `srvr` command, as a serving server does."""
        return self.responds_with("Mode: ")

    def responds_with(self, part: str) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                response = b"".join(iter(lambda: connection.recv(4096), b""))
                return part.encode() in response
        except OSError:
            return False

    def _serves(self) -> bool:
        self.process.assert_running()
        return self.serves()


@dataclass
class _Node:
    """One process of a cluster: a broker, the controller, or both in one."""

    node_id: int
    port: int | None  # None: a controller serves no clients
    advertised_port: int | None
    internal_port: int
    controller_port: int | None  # None: a broker that is no controller
    folder: Path
    more: dict[str, tuple[int, int]]  # listener -> the port it listens on, the one it advertises
    process: Process | None = field(default=None)

    @property
    def roles(self) -> str:
        roles = {"broker": self.port, "controller": self.controller_port}
        return ",".join(role for role, port in roles.items() if port)


class KafkaCluster(_Server):
    """A KRaft cluster of one or several brokers; brokers are numbered from 1."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        name: str = "kafka",
        properties: Mapping[str, str] | None = None,
        ports: Sequence[int] | None = None,
        advertised_ports: Sequence[int] | None = None,
        listeners: Sequence[str] = (),
        heap_mb: int = 384,
        folder: Path | None = None,
        detached: bool = False,
    ) -> None:
        """`properties` go to every broker and win over what this class sets; `listeners` name more
        of them than the usual one, each broker has each."""
        assert ports is None or len(ports) == brokers
        assert advertised_ports is None or len(advertised_ports) == brokers
        super().__init__(name, folder, detached)
        self.brokers = brokers
        self.cluster_id = _new_cluster_id()
        self._properties = dict(properties or {})
        self._heap_mb = heap_mb
        self._nodes: dict[int, _Node] = {}
        self._claim_nodes(ports, advertised_ports)
        for node in self._nodes.values():
            for listener in listeners if node.port else ():
                port = self._claim(None)
                node.more[listener] = port, port

    def _claim_nodes(self, ports: Sequence[int] | None, advertised: Sequence[int] | None) -> None:
        combined = self.brokers == 1
        for index in range(self.brokers):
            port = self._claim(ports[index] if ports else None)
            self._nodes[index + 1] = _Node(
                node_id=index + 1,
                port=port,
                advertised_port=advertised[index] if advertised else port,
                internal_port=self._claim(None),
                controller_port=self._claim(None) if combined else None,
                folder=self.folder / f"broker-{index + 1}",
                more={},
            )
        if not combined:
            port, folder = self._claim(None), self.folder / "controller"
            self._nodes[CONTROLLER_ID] = _Node(CONTROLLER_ID, None, None, 0, port, folder, {})

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
            for node in self._nodes.values():
                node.folder.mkdir(parents=True, exist_ok=True)
                (node.folder / "server.properties").write_text(self._config(node))
            self._format()
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

    def pause_broker(self, broker: int = 1) -> None:
        """Freeze one broker (SIGSTOP)."""
        self.process(broker).pause()

    def resume_broker(self, broker: int = 1) -> None:
        self.process(broker).resume()

    def _start_node(self, node: _Node) -> None:
        folder = node.folder
        heap_mb = self._heap_mb if node.port else 192
        command = kafka_java(heap_mb, folder).command("kafka.Kafka", folder / "server.properties")
        name = f"{self.name}-{folder.name}"
        node.process = Process(name, command, log=folder / "server.log", detached=self.detached)

    def _format(self) -> None:
        formatters = []
        for node in self._nodes.values():
            command = kafka_java(128, node.folder).command(
                "kafka.tools.StorageTool",
                *("format", "--cluster-id", self.cluster_id),
                *("--config", node.folder / "server.properties"),
            )
            log = node.folder / "format.log"
            formatters.append(Process("format", command, log=log, detached=self.detached))
        for formatter in formatters:
            if formatter.wait(START_DEADLINE_S) != 0:
                raise AssertionError(f"{formatter.name} failed:\n{formatter.log_tail()}")

    def _config(self, node: _Node) -> str:
        voters = (n for n in self._nodes.values() if n.controller_port)
        replicas = str(min(3, self.brokers))
        settings = {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(
                f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in voters
            ),
            **_listeners(node),
            "log.dirs": str(node.folder / "data"),
            "auto.create.topics.enable": "false",
            # Sample records are of 1970: retention would delete a rolled segment of them within a test.
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker may come back only when its old session is over: 9 s by default.
            "broker.session.timeout.ms": "5000",
            "broker.heartbeat.interval.ms": "1000",
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": "1",
            # Compaction within the time of a test: 15 s and a 128 MiB buffer by default.
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            **self._properties,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

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
            if process.returncode not in (None, -9, 143):
                process.assert_running()
        return running - {CONTROLLER_ID}

    def _warm_up(self) -> None:
        """Create the internal topics, or the first test pays for them, or fails on them."""
        settings = {"bootstrap.servers": self._plain_bootstrap(), **QUIET_CLIENT}
        producer = Producer({**settings, "transactional.id": "warm-up"})
        self._until_served(lambda: producer.init_transactions(10), "transactions")
        consumer = Consumer({**settings, "group.id": "warm-up"})
        try:
            partitions = [TopicPartition("warm-up", 0)]
            self._until_served(lambda: consumer.committed(partitions, timeout=30), "groups")
        finally:
            consumer.close()

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


def _new_cluster_id() -> str:
    """In the format of Kafka; an id that began with `-` would be read as an option."""
    id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return id if not id.startswith("-") else _new_cluster_id()


def _listeners(node: _Node) -> dict[str, str]:
    """Clients, other brokers and the controller each have a listener, all on loopback."""
    listening, advertised = [], []
    if node.port and node.advertised_port:
        clients = {"PLAINTEXT": (node.port, node.advertised_port), **node.more}
        clients["INTERNAL"] = node.internal_port, node.internal_port
        for name, (port, advertised_port) in clients.items():
            listening.append(f"{name}://127.0.0.1:{port}")
            advertised.append(f"{name}://127.0.0.1:{advertised_port}")
    if node.controller_port:
        listening.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
    names = ("PLAINTEXT", "INTERNAL", "CONTROLLER", *node.more)
    settings = {
        "listeners": ",".join(listening),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }
    if advertised:
        settings["advertised.listeners"] = ",".join(advertised)
        settings["inter.broker.listener.name"] = "INTERNAL"
    return settings
