"""The control plane of a large fleet: real controllers and a real ZooKeeper, simulated workers.

10,000 topics with 100,000 partitions are on a route whose two clusters are away: they accept connections
and say nothing, so their topics stay as they are. The topics that are whitelisted meanwhile are on a route
between two real clusters. The workers are sessions that report at once what is assigned to them
(`simulated_workers`): what is measured is the controllers' own time, and ZooKeeper's.

    place      from the start of a controller until all partitions are ONLINE
    quiet      requests of the whole fleet to ZooKeeper, processor time and memory of the controllers
    whitelist  from a POST to a partition that is ONLINE
    REST       GETs while one partition changes every 50 ms; /metrics with two clusters away
    failover   from the kill of the leader until its successor has placed a topic
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from ureplicator_bench import usage
from ureplicator_bench.figures import Figure
from ureplicator_bench.servers import Servers, running
from ureplicator_common.coordination import Create
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import PartitionState, Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import decode_current
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.ports import claim_port
from ureplicator_testkit.servers.processes import Process, eventually, spawn_ureplicator

FLEET = "bench-large"
AWAY, LIVE = Route("away-1", "away-2"), Route("source", "target")
TOPICS, PER_TOPIC, WORKERS = 10_000, 10, 100
SESSION_S = 10.0
PLACE_S, ONLINE_S, FAILOVER_S = 600.0, 60.0, 120.0
QUIET_S = 60.0
QUIET_LIMIT = 200.0
"""Requests a second; half of them compare nodes (`VERIFIED_PER_S` of the observer)."""
GETS = 40
SCRAPES = 10
PATHS = Paths(FLEET)


@dataclass(frozen=True, slots=True)
class Size:
    topics: int = TOPICS
    per_topic: int = PER_TOPIC
    workers: int = WORKERS
    whitelisted: int = 200

    @property
    def partitions(self) -> int:
        return self.topics * self.per_topic

    def __str__(self) -> str:
        return f"{self.topics:,} topics, {self.partitions:,} partitions, {self.workers} workers"


def figures(
    folder: Path, size: Size | None = None, *, progress: Callable[[str], None]
) -> Iterator[Figure]:
    """All of them, as they are measured."""
    size = size or Size()
    with running(folder) as servers, _fleet(servers, folder, size, progress) as fleet:
        progress(f"large fleet: {size}")
        yield Figure(f"{size}: all ONLINE after", fleet.place(), "s")
        progress("quiet")
        yield from fleet.quiet()
        progress("topics are whitelisted")
        yield from fleet.whitelisted()
        progress("one partition changes every 50 ms")
        yield from fleet.changing()
        progress("the leader is killed")
        yield from fleet.failover()


class _Fleet:
    """The controllers, the simulated workers, and a client that watches."""

    def __init__(
        self, servers: Servers, folder: Path, size: Size, config: Mapping[str, Any]
    ) -> None:
        self._servers = servers
        self._folder = folder
        self._size = size
        self._config = config
        self._controllers: dict[str, Process] = {}
        self._ports: dict[str, int] = {}
        self._client = ZooKeeperCoordination(hosts=servers.zookeeper.hosts, session_timeout_s=30)
        self._client.connect(30)
        self._workers = Process(
            "simulated workers",
            [
                sys.executable,
                "-m",
                "ureplicator_bench.fleets.simulated_workers",
                servers.zookeeper.hosts,
                FLEET,
                str(size.workers),
            ],
            log=folder / "workers.log",
        )

    def fill(self) -> None:
        """Write the intents, as if they had been copied for long."""
        for path in PATHS.skeleton:
            self._client.ensure(path)
        self._client.ensure(f"{PATHS.topics}/{AWAY}")
        keys = (TopicKey(AWAY, f"topic-{number:06d}") for number in range(self._size.topics))
        made = [Create(PATHS.topic(key), self._intent(key)) for key in keys]
        for begin in range(0, len(made), 100):
            self._client.transact(made[begin : begin + 100])
        self._workers.wait_for_line("all workers are live", PLACE_S)

    def _intent(self, key: TopicKey) -> bytes:
        count = self._size.per_topic
        intent = TopicIntent(
            count,
            count,
            had_position=frozenset(range(count)),
            source_topic_id="4TfjGyTUQoCXPcEUYmZAUA",
            target_topic_id="x9KQ0gXLQBCZkvuVpW5y3g",
            whole=True,
            target_topic=key.topic,
        )
        return encode_intent(intent)

    def start_controller(self, id: str) -> None:
        claim = claim_port()
        self._ports[id] = claim.port
        config = {**self._config, "controller": {**self._config["controller"], "port": claim.port}}
        path = self._folder / f"{id}.yaml"
        path.write_text(json.dumps(config))
        claim.release()
        self._controllers[id] = spawn_ureplicator(
            "controller", path, "--id", id, log=self._folder / f"{id}.log", name=id
        )

    def stop(self) -> None:
        for process in (*self._controllers.values(), self._workers):
            process.kill_tree()
        self._client.close()

    # --- Measurements

    def place(self) -> float:
        began_s = time.monotonic()
        self.start_controller("c1")
        self._controllers["c1"].wait_for_line(r"REST at", ONLINE_S)
        eventually(
            lambda: self._online() == self._size.partitions, PLACE_S, "all are ONLINE", poll_s=1.0
        )
        return time.monotonic() - began_s

    def quiet(self) -> Iterator[Figure]:
        eventually(lambda: self._get("/topics").ok, ONLINE_S, "REST responds")
        time.sleep(QUIET_S / 2)
        cpu_s, before, began_s = self._cpu_s(), self._counts(), time.monotonic()
        time.sleep(QUIET_S)
        took_s, after = time.monotonic() - began_s, self._counts()
        for name in ("requests", "writes"):
            rate = (after[name] - before[name]) / took_s
            yield Figure(f"quiet: ZooKeeper's {name}", rate, "/s", QUIET_LIMIT)
        yield Figure("quiet: controller", (self._cpu_s() - cpu_s) / took_s, "CPU-s/s", 0.5)
        yield from self._memory("c1")

    def whitelisted(self) -> Iterator[Figure]:
        steps = sorted(self._whitelist(number) for number in range(self._size.whitelisted))
        what = f"POST until ONLINE, {len(steps)} topics"
        yield Figure(f"{what}: p50", usage.quantile(steps, 0.5), "s")
        yield Figure(f"{what}: p99", usage.quantile(steps, 0.99), "s")
        yield Figure(f"{what}: worst", steps[-1], "s", 1.0)

    def changing(self) -> Iterator[Figure]:
        self._workers.send(signal.SIGUSR1)
        topic = f"/topics/topic-000500?src={AWAY.source}&dst={AWAY.target}"
        paths = ("/topics", topic, "/instances", "/validation", "/history", "/noprogress")
        for path in paths:
            taken = sorted(self._timed(path) for _ in range(GETS))
            name = path.partition("?")[0]
            yield Figure(f"GET {name}: p50", usage.quantile(taken, 0.5) * 1_000, "ms")
            yield Figure(f"GET {name}: p99", usage.quantile(taken, 0.99) * 1_000, "ms", 200)
        taken = sorted(self._timed("/metrics") for _ in range(SCRAPES))
        yield Figure("GET /metrics, two clusters away: worst", taken[-1] * 1_000, "ms", 500)
        self._workers.send(signal.SIGUSR2)

    def failover(self) -> Iterator[Figure]:
        self.start_controller("c2")
        self._controllers["c2"].wait_for_line(r"REST at", ONLINE_S)
        eventually(lambda: self._get("/topics", "c2").ok, ONLINE_S, "the standby's REST responds")
        eventually(lambda: self._leader() == "c1", ONLINE_S, "c1 leads")
        yield from self._memory("c2")
        create_topic(self._servers.source.bootstrap, "after-failover", partitions=1)
        began_s = time.monotonic()
        self._controllers["c1"].send_tree(signal.SIGKILL)
        eventually(lambda: self._leader() == "c2", FAILOVER_S, "c2 leads", poll_s=0.05)
        led_s = time.monotonic() - began_s
        yield Figure("failover: a successor leads after", led_s, "s", SESSION_S + 2.0)
        self._post("after-failover", "c2")
        eventually(lambda: self._is_online("after-failover"), ONLINE_S, "ONLINE", poll_s=0.05)
        planned_s = time.monotonic() - began_s
        yield Figure("failover: it has placed a topic after", planned_s, "s", SESSION_S + 2.0)

    # --- Observations

    def _whitelist(self, number: int) -> float:
        topic = f"probe-{number:04d}"
        create_topic(self._servers.source.bootstrap, topic, partitions=1)
        began_s = time.monotonic()
        self._post(topic, "c1")
        eventually(lambda: self._is_online(topic), ONLINE_S, f"{topic} is ONLINE", poll_s=0.01)
        return time.monotonic() - began_s

    def _post(self, topic: str, id: str) -> None:
        path = f"/topics?src={LIVE.source}&dst={LIVE.target}"
        response = requests.post(self._url(path, id), json={"topic": topic}, timeout=ONLINE_S)
        assert response.ok, response.text

    def _timed(self, path: str) -> float:
        began_s = time.monotonic()
        response = self._get(path)
        assert response.ok, f"{path}: {response.text[:200]}"
        return time.monotonic() - began_s

    def _get(self, path: str, id: str = "c1") -> requests.Response:
        return requests.get(self._url(path, id), timeout=ONLINE_S)

    def _url(self, path: str, id: str) -> str:
        return f"http://127.0.0.1:{self._ports[id]}{path}"

    def _states(self) -> Iterator[tuple[str, PartitionState]]:
        for number in range(self._size.workers):
            node = self._client.get(PATHS.current_state(WorkerId(f"worker-{number:04d}")))
            if node is not None:
                for partition, entry in decode_current(node.data).entries.items():
                    yield partition.topic, entry.state

    def _online(self) -> int:
        return sum(state is PartitionState.ONLINE for _, state in self._states())

    def _is_online(self, topic: str) -> bool:
        node = self._client.get(PATHS.ideal_topic(TopicKey(LIVE, topic)))
        found = re.search(rb"worker-\d+", node.data) if node else None
        if found is None:
            return False
        state = self._client.get(PATHS.current_state(WorkerId(found[0].decode())))
        entries = decode_current(state.data).entries if state else {}
        return any(entry.topic == topic for entry in entries)

    def _leader(self) -> str:
        node = self._client.get(PATHS.leader)
        return str(json.loads(node.data)["id"]) if node else ""

    def _counts(self) -> Mapping[str, int]:
        """Requests that ZooKeeper has received, and changes that it has made."""
        text = _four_letters(self._servers.zookeeper.port, b"srvr")
        received = re.search(r"Received: (\d+)", text)
        zxid = re.search(r"Zxid: 0x([0-9a-f]+)", text)
        assert received is not None, text
        assert zxid is not None, text
        return {"requests": int(received[1]), "writes": int(zxid[1], 16)}

    def _cpu_s(self) -> float:
        return usage.cpu_s(self._controllers.values())

    def _memory(self, id: str) -> Iterator[Figure]:
        daemon = self._controllers[id].pid
        others = [pid for pid in self._controllers[id].tree() if pid != daemon]
        role = "leader" if self._leader() == id else "standby"
        yield Figure(f"{role}: memory", usage.peak_rss_bytes(daemon) / 1e6, "MB")
        rest = max((usage.peak_rss_bytes(pid) for pid in others), default=0)
        yield Figure(f"{role}'s REST: memory", rest / 1e6, "MB")


@contextmanager
def _fleet(
    servers: Servers, folder: Path, size: Size, progress: Callable[[str], None]
) -> Iterator[_Fleet]:
    with ExitStack() as closing:
        away = [closing.enter_context(_silent()) for _ in range(2)]
        fleet = _Fleet(servers, folder, size, _config(servers, away))
        closing.callback(fleet.stop)
        progress(f"{size.topics:,} intents are written")
        fleet.fill()
        yield fleet


@contextmanager
def _silent() -> Iterator[str]:
    """Address of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _config(servers: Servers, away: Sequence[str]) -> Mapping[str, Any]:
    hosts = {
        AWAY.source: away[0],
        AWAY.target: away[1],
        LIVE.source: servers.source.bootstrap,
        LIVE.target: servers.target.bootstrap,
    }
    return {
        "fleet": FLEET,
        "zookeeper": {"hosts": servers.zookeeper.hosts, "session_timeout_s": SESSION_S},
        "clusters": {name: {"bootstrap.servers": address} for name, address in hosts.items()},
        "routes": [{"source": route.source, "target": route.target} for route in (AWAY, LIVE)],
        "controller": {"host": "127.0.0.1", "join_delay_s": 2},
    }


def _four_letters(port: int, word: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(word)
        return b"".join(iter(lambda: connection.recv(4_096), b"")).decode()
