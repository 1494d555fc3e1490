"""A whole fleet of real processes on real servers: controllers, workers, a load, and a judge.

Short delays, so that a test need not wait two minutes for a rebalance; everything else is what an
operator would run. Every process writes its log into the test's folder.
"""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from confluent_kafka import Producer

from ureplicator_testkit.clusters import KafkaCluster, ZooKeeperServer
from ureplicator_testkit.ports import claim_port
from ureplicator_testkit.processes import Process, eventually, spawn_ureplicator

SESSION_TIMEOUT_S = 4
REBALANCE_DELAY_S = 5
READY_S = 60


class Fleet:
    """`rest` asks the first controller that runs, unless told which."""

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        zookeeper: str,
        source: str,
        target: str,
        controller: Mapping[str, Any] | None = None,
        worker: Mapping[str, Any] | None = None,
        route: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.controllers: dict[str, tuple[Process, int]] = {}
        self.workers: dict[str, Process] = {}
        self._started: dict[str, int] = {}
        self.config = folder / "fleet.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "fleet": name,
                    "zookeeper": {"hosts": zookeeper, "session_timeout_s": SESSION_TIMEOUT_S},
                    "clusters": {
                        "source": {"bootstrap.servers": source},
                        "target": {"bootstrap.servers": target},
                    },
                    "routes": [{"source": "source", "target": "target", **(route or {})}],
                    "controller": {
                        "rebalance_delay_s": REBALANCE_DELAY_S,
                        "join_delay_s": 2,
                        **(controller or {}),
                    },
                    "worker": {"slots": 1, "commit_interval_s": 0.5, **(worker or {})},
                }
            )
        )

    def start(self, *, controllers: int = 1, workers: int = 1) -> Self:
        for number in range(1, controllers + 1):
            self.start_controller(f"c{number}")
        for number in range(1, workers + 1):
            self.start_worker(f"w{number}")
        self.wait_workers(*self.workers)
        return self

    def start_controller(self, id: str) -> Process:
        claim = claim_port()
        claim.release()
        process = spawn_ureplicator(
            *("controller", self.config, "--id", id, "--set", f"controller.port={claim.port}"),
            log=self.folder / f"{id}.log",
            name=id,
        )
        self.controllers[id] = (process, claim.port)
        eventually(lambda: self._ready(id), READY_S, f"controller {id} is ready")
        return process

    def start_worker(self, id: str) -> Process:
        """Started, not yet waited for."""
        if (self.folder / f"{id}.log").exists():
            self._started[id] = len(self.log_of(id))
        process = spawn_ureplicator(
            *("worker", self.config, "--id", id), log=self.folder / f"{id}.log", name=id
        )
        self.workers[id] = process
        return process

    def _ready(self, id: str) -> bool:
        process, _ = self.controllers[id]
        process.assert_running()
        try:
            return self.call("GET", "/ready", controller=id).status_code == 200
        except requests.RequestException:
            return False

    def call(
        self, method: str, path: str, *, controller: str = "", json: object = None
    ) -> requests.Response:
        """One REST call, whatever it answers."""
        id = controller or next(
            id for id, (process, _) in self.controllers.items() if process.running
        )
        port = self.controllers[id][1]
        return requests.request(method, f"http://127.0.0.1:{port}{path}", json=json, timeout=20)

    def rest(self, method: str, path: str, *, json: object = None) -> Any:
        """The body of a REST call that succeeds."""
        response = self.call(method, path, json=json)
        assert response.ok, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    def wait_workers(self, *ids: str) -> None:
        def present() -> bool:
            for process in self.workers.values():
                process.assert_running()
            return set(ids) <= set(self.rest("GET", "/instances")["instances"])

        eventually(present, READY_S, f"workers {ids} are live")

    def whitelist(self, topic: str) -> None:
        self.rest("POST", "/topics", json={"topic": topic})

    def view(self, topic: str) -> dict[int, dict[str, str]]:
        """Partition -> {worker: state}, as the external view has it."""
        shown = self.rest("GET", f"/topics/{topic}")["externalView"]
        return {int(number): states for number, states in shown.items()}

    def owners(self, topic: str) -> dict[int, str]:
        """Partition -> the worker where it is ONLINE; only those that are so on exactly one."""
        return {
            number: next(iter(states))
            for number, states in self.view(topic).items()
            if len(states) == 1 and set(states.values()) == {"ONLINE"}
        }

    def wait_online(self, topic: str, partitions: int, *, deadline_s: float = 40) -> float:
        """How long it took until every partition was ONLINE on one worker."""
        began_s = time.monotonic()
        eventually(
            lambda: len(self.owners(topic)) == partitions,
            deadline_s,
            f"all {partitions} partitions of {topic} are ONLINE",
        )
        return time.monotonic() - began_s

    def status(self, worker: str) -> Any:
        """The worker's own word, from its /status: it answers without ZooKeeper, too."""
        self.workers[worker].assert_running()
        port = eventually(lambda: self._port_of(worker), READY_S, f"{worker} tells its port")
        return requests.get(f"http://127.0.0.1:{port}/status", timeout=10).json()

    def _port_of(self, worker: str) -> str:
        """The last one it logged: a log outlives the process, and a worker may be started again."""
        started = self._started.get(worker, 0)
        found = re.findall(r"status on port (\d+)", self.log_of(worker)[started:])
        return found[-1] if found else ""

    def leader(self) -> str:
        """Id of the controller that leads; "" while none does."""
        return str(self.rest("GET", "/ready")["leader"] or "")

    @staticmethod
    def wait_seconds(seconds: float) -> None:
        """For what has no event to wait for: a fault that lasts."""
        time.sleep(seconds)

    def log_of(self, id: str) -> str:
        return (self.folder / f"{id}.log").read_text(errors="replace")

    def stop(self) -> None:
        """A clean end of all that runs: workers first; each must end with 0 and leave nothing."""
        for process in [*self.workers.values(), *(one for one, _ in self.controllers.values())]:
            if process.running:
                assert process.terminate(40) == 0, process.log_tail()
                process.assert_tree_gone()

    def kill(self) -> None:
        """Whatever is left, however the test went."""
        for process in [*self.workers.values(), *(one for one, _ in self.controllers.values())]:
            process.kill_tree()


class Load:
    """A producer that goes on until told to stop; knows what was acknowledged to it."""

    def __init__(
        self, bootstrap: str, topic: str, *, partitions: int, records_per_s: int = 1_000
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self._pause_s = 20 / records_per_s
        self._stopping = threading.Event()
        self._sent = 0
        self.acknowledged = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            for _ in range(20):
                self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        value = b"%d" % self._sent
        partition = self._sent % self._partitions
        try:
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._delivered
            )
            self._sent += 1
        except BufferError:
            self._producer.poll(0.1)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1


def fleet_on(
    servers: tuple[ZooKeeperServer, KafkaCluster, KafkaCluster],
    *,
    name: str,
    folder: Path,
    **settings: Any,
) -> Fleet:
    zookeeper, source, target = servers
    return Fleet(
        name=name,
        folder=folder,
        zookeeper=zookeeper.hosts,
        source=source.bootstrap,
        target=target.bootstrap,
        **settings,
    )


def pids_of(process: Process, part: str) -> Sequence[int]:
    """Processes of a tree by what they are: `java`, or `pyspark` for Spark's Python processes."""
    import psutil

    found = []
    for pid in process.tree():
        try:
            command = psutil.Process(pid).cmdline()
        except psutil.NoSuchProcess:
            continue
        if any(part in word for word in command[:4]):
            found.append(pid)
    return found
