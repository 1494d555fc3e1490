"""Controllers as real processes on a real ZooKeeper: suspended, killed, stopped."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from ureplicator_common.coordination import Create, Set
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import (
    Delivery,
    PartitionState,
    Route,
    RouteSettings,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    CurrentEntry,
    CurrentState,
    LiveController,
    LiveWorker,
    TopicIntent,
)
from ureplicator_common.znodes.fleet import decode_controller
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_route
from ureplicator_common.znodes.topics import decode_intent, encode_intent
from ureplicator_common.znodes.workers import decode_assignment, encode_current, encode_live_worker
from ureplicator_testkit.servers.ports import port_is_free
from ureplicator_testkit.servers.processes import (
    Process,
    eventually,
    spawn_ureplicator,
    wait_for_http,
)
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

SESSION_TIMEOUT_S = 2
START_S = 30.0
FAILOVER_S = SESSION_TIMEOUT_S + 10.0
"""The server's tick and two busy cores come on top."""
ROUTE = Route("a", "b")
KEY = TopicKey(ROUTE, "orders")


class Stage:
    """One fleet on the shared ZooKeeper: controllers as processes, the rest by hand."""

    def __init__(self, zookeeper: ZooKeeperServer, fleet: str, folder: Path) -> None:
        self.paths = Paths(fleet)
        self.hosts = zookeeper.hosts
        self.folder = folder
        self.config = folder / "fleet.yaml"
        self.config.write_text(
            f"fleet: {fleet}\n"
            f"zookeeper: {{hosts: '{zookeeper.hosts}', session_timeout_s: {SESSION_TIMEOUT_S}}}\n"
            "clusters: {a: {bootstrap.servers: '127.0.0.1:1'}, b: {bootstrap.servers: 'localhost:1'}}\n"
            "routes: [{source: a, target: b, naming: {prefix: copy-}}]\n"
            "controller: {port: 0, rebalance_delay_s: 0, join_delay_s: 0}\n"
        )
        self.hand = ZooKeeperCoordination(
            hosts=zookeeper.hosts, session_timeout_s=SESSION_TIMEOUT_S * 5
        )
        self.hand.connect(START_S)
        for path in (*self.paths.skeleton, f"{self.paths.topics}/{ROUTE}"):
            self.hand.ensure(path)
        self.processes: list[Process] = []

    def controller(self, id: str, *arguments: str) -> Process:
        log = self.folder / f"{id}-{len(self.processes)}.log"
        process = spawn_ureplicator(
            "controller", self.config, "--id", id, *arguments, log=log, name=id
        )
        self.processes.append(process)
        return process

    def live(self, id: str) -> LiveController:
        """The live node of a controller, as it shows itself, once it does."""
        node = eventually(
            lambda: self.hand.get(self.paths.controller(id)), START_S, f"{id} shows itself"
        )
        assert node is not None
        return decode_controller(node.data)

    def url(self, id: str) -> str:
        live = self.live(id)
        return f"http://{live.host}:{live.port}"

    def leader(self) -> str:
        node = self.hand.get(self.paths.leader)
        return decode_controller(node.data).id if node else ""

    def epoch(self) -> int:
        node = self.hand.get(self.paths.epoch)
        assert node is not None
        return node.stat.version

    def until_led_by(self, id: str, within_s: float = START_S) -> None:
        eventually(lambda: self.leader() == id, within_s, f"{id} leads")

    def close(self) -> None:
        for process in self.processes:
            process.resume()
            process.kill_tree()
        self.hand.close()


@pytest.fixture
def stage(zookeeper: ZooKeeperServer, fleet: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(zookeeper, fleet, tmp_path)
    yield stage
    stage.close()


def test_controller_leads_serves_and_stops_cleanly_and_another_leads_at_once(
    stage: Stage, fleet: str
) -> None:
    one = stage.controller("one")
    stage.until_led_by("one")
    wait_for_http(f"{stage.url('one')}/ready", START_S, process=one)
    live = stage.live("one")
    metrics = requests.get(f"http://127.0.0.1:{live.metrics_port}/metrics", timeout=5).text
    assert f'ureplicator_controller_leading{{fleet="{fleet}"}} 1.0' in metrics
    route = eventually(lambda: stage.hand.get(stage.paths.route(ROUTE)), 5, "the route is there")
    assert route is not None
    expected = RouteSettings(delivery=Delivery.EXACTLY_ONCE, prefix="copy-")
    assert decode_route(route.data) == expected
    two = stage.controller("two")
    stage.live("two")
    one.send(signal.SIGTERM)
    stage.until_led_by("two", within_s=1.0)
    assert one.wait(30) == 0
    one.assert_tree_gone()
    assert port_is_free(live.port)
    assert two.terminate(30) == 0
    assert stage.leader() == ""
    assert stage.hand.children(stage.paths.controllers) == []


def test_killed_leader_is_replaced_and_leaves_no_port_taken(stage: Stage) -> None:
    """Started again under its id, a killed one waits for the end of its own former session."""
    one = stage.controller("one")
    stage.until_led_by("one")
    port = stage.live("one").port
    wait_for_http(f"{stage.url('one')}/health", START_S, process=one)
    two = stage.controller("two")
    stage.live("two")
    one.send(signal.SIGKILL)
    stage.until_led_by("two", within_s=FAILOVER_S)
    assert stage.epoch() == 2
    one.assert_tree_gone(15)
    assert port_is_free(port)
    two.kill_tree()
    stage.controller("two")
    eventually(lambda: stage.epoch() == 3, FAILOVER_S, "the new process leads")
    stage.until_led_by("two")


def test_thawed_leader_writes_nothing_and_follows(stage: Stage) -> None:
    """It finds a successor's leader node of the version that it remembers. Another process under the
    leader's id waits one session timeout, and exits."""
    one = stage.controller("one")
    stage.until_led_by("one")
    stage.controller("two")
    stage.live("two")
    one.pause()
    stage.until_led_by("two", within_s=FAILOVER_S)
    worker = Worker(stage, "w")
    stage.hand.transact(
        [Create(stage.paths.topic(KEY), encode_intent(TopicIntent(4, 4, target_topic="orders")))]
    )
    worker.until_assigned(4)
    before = stage.hand.get(stage.paths.assignment(WorkerId("w")))
    assert before is not None
    one.resume()
    eventually(
        lambda: stage.hand.children(stage.paths.controllers) == ["one", "two"],
        FAILOVER_S,
        "the thawed controller is back",
    )
    after = stage.hand.get(stage.paths.assignment(WorkerId("w")))
    assert after is not None
    assert after.stat == before.stat
    assert (stage.leader(), stage.epoch()) == ("two", 2)
    worker.client.close()
    twin = stage.controller("two")
    assert twin.wait(30) == 1
    assert "another live controller has the id two" in twin.log_text().splitlines()[-1]
    assert stage.leader() == "two"


class Worker:
    """Worker that reports states and copies nothing."""

    def __init__(self, stage: Stage, id: str) -> None:
        self._stage = stage
        self._id = WorkerId(id)
        self.client = ZooKeeperCoordination(hosts=stage.hosts, session_timeout_s=SESSION_TIMEOUT_S)
        self.client.connect(START_S)
        live = encode_live_worker(LiveWorker(slots=2))
        self.client.transact([Create(stage.paths.worker_live(self._id), live, ephemeral=True)])

    def assigned(self) -> int:
        node = self.client.get(self._stage.paths.assignment(self._id))
        return len(decode_assignment(node.data).entries) if node else 0

    def until_assigned(self, count: int) -> None:
        what = f"{self._id} is assigned {count}"
        eventually(lambda: self.assigned() == count, FAILOVER_S, what, poll_s=0.01)

    def report(self) -> None:
        """Release what is no longer assigned, copy what is."""
        node = self.client.get(self._stage.paths.assignment(self._id))
        assert node is not None
        entries = {
            partition: CurrentEntry(PartitionState.ONLINE, entry.owner_epoch, committed=True)
            for partition, entry in decode_assignment(node.data).entries.items()
        }
        path = self._stage.paths.current_state(self._id)
        data = encode_current(CurrentState(node.stat.mzxid, entries))
        exists = self.client.get(path) is not None
        self.client.transact(
            [Set(path, data, -1) if exists else Create(path, data, ephemeral=True)]
        )


def test_partitions_move_only_after_their_release(stage: Stage) -> None:
    one = stage.controller("one")
    stage.until_led_by("one")
    a = Worker(stage, "a")
    stage.hand.transact(
        [Create(stage.paths.topic(KEY), encode_intent(TopicIntent(4, 4, target_topic="orders")))]
    )
    a.until_assigned(4)
    a.report()
    b = Worker(stage, "b")
    a.until_assigned(2)
    assert b.assigned() == 0, "a has not released"
    a.report()
    b.until_assigned(2)
    b.report()

    def marked() -> bool:
        node = stage.hand.get(stage.paths.topic(KEY))
        return node is not None and decode_intent(node.data).had_position == {0, 1, 2, 3}

    eventually(marked, 5, "the positions are marked")
    a.client.close()
    b.until_assigned(4)
    b.client.close()
    assert_rest_child_is_started_again(stage, one)


def assert_rest_child_is_started_again(stage: Stage, one: Process) -> None:
    """Kill the process of REST: it is started again on the same address."""
    url = f"{stage.url('one')}/health"
    wait_for_http(url, START_S, process=one)
    for child in psutil.Process(one.pid).children(recursive=True):
        os.kill(child.pid, signal.SIGKILL)
    one.wait_for_line("restarting it in", 10)
    wait_for_http(url, START_S, process=one)


def test_taken_port_is_one_clear_line(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for key in ("port", "metrics_port"):
            process = stage.controller("one", "--set", f"controller.{key}={port}")
            assert process.wait(30) == 1
            lines = [line for line in process.log_text().splitlines() if "Address already" in line]
            assert len(lines) == 1
            assert f"127.0.0.1:{port}" in lines[0]
            assert "Traceback" not in process.log_text()


def test_controller_starts_without_zookeeper_and_reports_it(stage: Stage) -> None:
    process = stage.controller("one", "--set", "zookeeper.hosts=127.0.0.1:1")
    process.wait_for_line("waiting for ZooKeeper", START_S)
    port = process.wait_for_line(r"REST at http://127\.0\.0\.1:(\d+)", START_S).group(1)
    wait_for_http(f"http://127.0.0.1:{port}/health", START_S, process=process)
    assert requests.get(f"http://127.0.0.1:{port}/ready", timeout=5).status_code == 503
    assert process.terminate(30) == 0
