"""The containers of the chart as processes: commands, variables, probes and hooks, as a kubelet runs them.

Each is the first process of a namespace for process ids, as in a container: it gets a signal only if it asks
for it, and the hook reaches it as process 1.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from ureplicator_testkit.deploy.chart import of_kind, render
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.ports import claim_port
from ureplicator_testkit.servers.processes import Process, eventually, wait_for_http
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a namespace for process ids needs root")
PARTITIONS = 4
READY_S = 60.0
STOP_S = 60.0
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
Container = Mapping[str, Any]


ROLES = ("CONTROLLER", "WORKER", "AUDIT")


class Pod:
    """One container, started with its command; `ports` by the names of the manifest."""

    def __init__(self, name: str, container: Container, config: Path, folder: Path) -> None:
        self._container = container
        self._name = name
        self.ports = {port["name"]: claim_port() for port in container["ports"]}
        words = {"/etc/ureplicator/config.yaml": str(config), "$(POD_NAME)": name}
        command = [words.get(word, word) for word in container["command"]]
        self.process = Process(
            name, [*NAMESPACE, *command], log=folder / f"{name}.log", env=self._env()
        )

    def _env(self) -> dict[str, str]:
        """Environment of the manifest; what comes from the pod's own fields, and its ports, are set here."""
        role = str(self._container["name"]).upper()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"POD_NAME": self._name, "PATH": path}
        own |= {f"UREPLICATOR_{role}__ADVERTISE": "127.0.0.1" for role in ROLES}
        shown = {
            variable["name"]: variable["value"]
            for variable in self._container["env"]
            if "value" in variable
        }
        ports = {f"UREPLICATOR_{role}__PORT": str(self.ports["http"].port)}
        if "metrics" in self.ports:
            ports["UREPLICATOR_CONTROLLER__METRICS_PORT"] = str(self.ports["metrics"].port)
        return shown | own | ports

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['http'].port}"

    def end(self) -> None:
        self.process.kill_tree()
        for claim in self.ports.values():
            claim.release()

    def probe(self, name: str) -> None:
        """Wait until it succeeds."""
        path = self._container[name]["httpGet"]["path"]
        wait_for_http(f"{self.url}{path}", READY_S, process=self.process)

    def stop(self) -> int:
        """Hook and SIGTERM to the first process of the namespace; the exit code of the container."""
        (first,) = map(int, children(self.process.pid))
        hook = (
            self._container.get("lifecycle", {})
            .get("preStop", {})
            .get("exec", {})
            .get("command", ())
        )
        if hook:
            command = ["nsenter", "--target", str(first), "--pid", "--mount", *hook]
            subprocess.run(command, env={**os.environ, **self._env()}, check=True)  # noqa: S603
        os.kill(first, 15)
        return self.process.wait(STOP_S)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.fixture
def pods(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path: Path,
) -> Iterator[Callable[[str, str], Pod]]:
    """`pods(kind, name)`: a running pod of this workload of the chart."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(_values(zookeeper, source_cluster, target_cluster)))
    manifests = render(values)
    (configured,) = of_kind(manifests, "ConfigMap")
    config = tmp_path / "config.yaml"
    config.write_text(configured["data"]["config.yaml"])
    with ExitStack() as started:

        def start(kind: str, name: str) -> Pod:
            (workload,) = of_kind(manifests, kind)
            (container,) = workload["spec"]["template"]["spec"]["containers"]
            pod = Pod(name, container, config, tmp_path)
            started.callback(pod.end)
            return pod

        yield start


def _values(
    zookeeper: ZooKeeperServer, source: KafkaCluster, target: KafkaCluster
) -> dict[str, Any]:
    return {
        "config": {
            "fleet": f"chart-{uuid.uuid4().hex[:8]}",
            "zookeeper": {"hosts": zookeeper.hosts, "session_timeout_s": 10},
            "clusters": {
                "source": {"bootstrap.servers": source.bootstrap},
                "target": {"bootstrap.servers": target.bootstrap},
            },
            "routes": [{"source": "source", "target": "target"}],
            "controller": {"rebalance_delay_s": 600, "join_delay_s": 1},
        },
        "access": {"mode": "open"},
        "workerGroups": {"default": {"replicas": 2, "slots": 1, "leaveFrom": 1}},
    }


@pytest.mark.timeout(300)
def test_pods_start_are_ready_and_leave_or_stay_as_their_number_says(
    pods: Callable[[str, str], Pod], source_cluster: KafkaCluster, topic: str
) -> None:
    controller = pods("Deployment", "r-controller-0")
    staying, leaving = (pods("StatefulSet", f"r-worker-default-{n}") for n in range(2))
    for pod in (controller, staying, leaving):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            pod.probe(probe)
    create_topic(source_cluster.bootstrap, topic, partitions=PARTITIONS)
    requests.post(f"{controller.url}/topics", json={"topic": topic}, timeout=30).raise_for_status()

    def owners() -> set[str]:
        shown = requests.get(f"{controller.url}/topics/{topic}", timeout=10).json()
        views = shown["externalView"].values()
        online = [list(view) for view in views if list(view.values()) == ["ONLINE"]]
        return {owner for (owner,) in online} if len(online) == PARTITIONS else set()

    names = {"r-worker-default-0", "r-worker-default-1"}
    eventually(lambda: owners() == names, READY_S, "both pods copy")
    assert leaving.stop() == 0
    eventually(lambda: owners() == {"r-worker-default-0"}, READY_S, "pod 0 has all partitions")
    for pod in (controller, staying, leaving):
        assert all(map(json.loads, pod.process.log_text().splitlines())), "each line is JSON"
    metrics = requests.get(f"{staying.url}/metrics", timeout=10).text
    labels = r'\{fleet="chart-\w+",process="copier",slot="0"\}'
    assert re.search(f"ureplicator_worker_cpu_seconds_total{labels}", metrics)
    assert staying.stop() == 0
    kept = requests.get(f"{controller.url}/topics/{topic}", timeout=10).json()["idealState"]
    assert {owner for view in kept.values() for owner in view} == {"r-worker-default-0"}, "it stays"
    assert controller.stop() == 0
