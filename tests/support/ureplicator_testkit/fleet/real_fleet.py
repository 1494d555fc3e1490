"""A fleet of real processes on real servers: controllers and workers, started, queried and stopped.

Short delays, so that a test need not wait two minutes for a rebalance; everything else is what an
operator would run. Every process has a configuration and a log of its own in the fleet's folder, and
a network path of its own to the servers (`network`), if there is one.
"""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psutil
import requests
import yaml

from ureplicator_common.model import Delivery, Route, position_group
from ureplicator_testkit.control.fleet import uneven_workers
from ureplicator_testkit.servers.network import NetworkPaths
from ureplicator_testkit.servers.ports import PortClaim, claim_port
from ureplicator_testkit.servers.processes import Process, eventually, spawn_ureplicator

FORTH = Route("source", "target")
FORTH_QUERY = f"src={FORTH.source}&dst={FORTH.target}"
SESSION_TIMEOUT_S = 4
REBALANCE_DELAY_S = 5
COMMIT_INTERVAL_S = 0.5
READY_S = 60
SETTLED_S = 60
REST_S = 10
MOVES_KEPT = 1_000
SESSION_ENDED = ("gone", "restarted")
"""Beginnings of the reasons in the history."""


class Fleet:
    """`rest` calls the first controller that runs, unless `calling` chose another."""

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        zookeeper: str,
        source: str,
        target: str,
        links: Mapping[str, NetworkPaths] | None = None,
        controller: Mapping[str, Any] | None = None,
        worker: Mapping[str, Any] | None = None,
        route: Mapping[str, Any] | None = None,
        routes: Sequence[Mapping[str, Any]] = (),
        workers_own: Mapping[str, Mapping[str, Any]] | None = None,
        aliases: Mapping[str, str] | None = None,
        security: Mapping[str, Mapping[str, str]] | None = None,
        zookeeper_security: Mapping[str, Any] | None = None,
        token: str = "",
        pages_token_file: Path | None = None,
    ) -> None:
        """`routes` instead of the one from source to target, which `route` extends; at least once, unless
        one says otherwise. `workers_own`: settings of single workers, beside those of all in `worker`.
        `aliases`: further names of `source` and `target`. `security`: properties of these clusters,
        besides their addresses; `zookeeper_security`: settings of ZooKeeper. `token`: login of the calls;
        `pages_token_file`: that of the pages."""
        self.name = name
        self.folder = folder
        self.zookeeper = zookeeper
        self.links = dict(links or {})
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.pages_token_file = pages_token_file
        pages_token = pages_token_file.read_text().strip() if pages_token_file else ""
        self.page_headers = {"Authorization": f"Bearer {pages_token}"} if pages_token else {}
        self._workers_own = dict(workers_own or {})
        self.controllers: dict[str, Process] = {}
        self.workers: dict[str, Process] = {}
        self.delays: dict[str, float] = {
            "rebalance_delay_s": REBALANCE_DELAY_S,
            "join_delay_s": 2,
            **(controller or {}),
        }
        self._claims: dict[str, PortClaim] = {}
        self._logged: dict[str, int] = {}
        self._called = ""
        self._aliases = dict(aliases or {})
        self._security = dict(security or {})
        self._config: dict[str, Any] = {
            "fleet": name,
            "zookeeper": {
                "hosts": zookeeper,
                "session_timeout_s": SESSION_TIMEOUT_S,
                **(zookeeper_security or {}),
            },
            "clusters": self._clusters(source, target),
            "routes": [
                {"delivery": Delivery.AT_LEAST_ONCE.value, **settings}
                for settings in routes
                or ({"source": "source", "target": "target", **(route or {})},)
            ],
            "pages": {"token_file": str(pages_token_file)} if pages_token_file else {},
            "worker": {"slots": 1, "commit_interval_s": COMMIT_INTERVAL_S, **(worker or {})},
        }

    def _clusters(self, source: str, target: str) -> dict[str, dict[str, str]]:
        servers = {"source": source, "target": target}
        servers |= {alias: servers[end] for alias, end in self._aliases.items()}
        return {
            name: {"bootstrap.servers": hosts, **self._security.get(name, {})}
            for name, hosts in servers.items()
        }

    def group(self, route: Route = FORTH) -> str:
        """The position group."""
        return position_group(fleet=self.name, route=route)

    @property
    def processes(self) -> dict[str, Process]:
        return {**self.workers, **self.controllers}

    # --- start and end -----------------------------------------------------------------------

    def start(self, *, controllers: int = 1, workers: int = 1) -> Self:
        return self.launch(controllers=controllers, workers=workers).wait_started()

    def launch(self, *, controllers: int = 1, workers: int = 1) -> Self:
        """Start without waiting."""
        for number in range(1, workers + 1):
            self.start_worker(f"w{number}")
        for number in range(1, controllers + 1):
            self.launch_controller(f"c{number}")
        return self

    def wait_started(self) -> Self:
        for id in self.controllers:
            self.wait_controller(id)
        self.wait_workers(*self.workers)
        return self

    def config_of(self, id: str) -> Path:
        """The same for all processes, except for addresses and what a worker has of its own."""
        config = {**self._config, "controller": self.delays}
        config["worker"] = {**config["worker"], **self._workers_own.get(id, {})}
        if id in self.links:
            overrides = self.links[id].config()
            config["zookeeper"] = {**config["zookeeper"], "hosts": overrides["hosts"]}
            config["clusters"] = self._clusters(overrides["source"], overrides["target"])
        path = self.folder / f"{id}.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def launch_controller(self, id: str, *, env: Mapping[str, str] | None = None) -> Process:
        """Start without waiting. It has the same port each time."""
        if id not in self._claims:
            self._claims[id] = claim_port()
        self.controllers[id] = spawn_ureplicator(
            *("controller", self.config_of(id), "--id", id),
            *("--set", f"controller.port={self._claims[id].port}"),
            log=self.folder / f"{id}.log",
            name=id,
            env=env,
        )
        return self.controllers[id]

    def start_controller(self, id: str, *, env: Mapping[str, str] | None = None) -> Process:
        process = self.launch_controller(id, env=env)
        self.wait_controller(id)
        return process

    def wait_controller(self, id: str) -> None:
        eventually(lambda: self._ready(id), READY_S, f"controller {id} is ready")

    def start_worker(
        self, id: str, *, env: Mapping[str, str] | None = None, hang: Path | None = None
    ) -> Process:
        """Start without waiting. With `hang`, its loop blocks while that file exists."""
        self._logged[id] = len(self.log_of(id))
        arguments = ("worker", self.config_of(id), "--id", id)
        log = self.folder / f"{id}.log"
        if hang is None:
            self.workers[id] = spawn_ureplicator(*arguments, log=log, name=id, env=env)
        else:
            module = (sys.executable, "-m", "ureplicator_testkit.fleet.hanging_worker", hang)
            path = Path(__file__).parents[2]
            settings = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": with_path(path)}
            self.workers[id] = Process(id, [*module, *arguments], log=log, env=settings)
        return self.workers[id]

    def use(self, **delays: float) -> None:
        """Restart the controllers with other delays, if they have different ones."""
        if delays.items() <= self.delays.items():
            return
        self.delays.update(delays)
        for process in self.controllers.values():
            assert process.terminate(30) == 0, process.log_tail()
        for id in self.controllers:
            self.launch_controller(id)
        for id in self.controllers:
            self.wait_controller(id)

    def heal(self) -> None:
        """Every process that was ever started runs again, takes partitions, and the fleet has settled."""
        for process in self.processes.values():
            process.resume()
        for id, process in self.controllers.items():
            if not process.running:
                self.launch_controller(id)
        for id, process in self.workers.items():
            if not process.running:
                process.kill_tree()
                self.start_worker(id)
        for id in self.controllers:
            self.wait_controller(id)
        self.wait_workers(*self.workers)
        for id in self.rest("GET", "/instances")["blacklisted"]:
            self.rest("POST", f"/instances/{id}")
        self.wait_settled()

    def clear(self) -> None:
        """Delete all topics of its only route, and what was changed of its settings."""
        ((route, shown),) = self.rest("GET", "/routes")["routes"].items()
        if shown["changes"]:
            self.change(dict.fromkeys(shown["changes"]), route)
        for topic in self.rest("GET", "/topics")["topics"]:
            self.rest("DELETE", f"/topics/{topic}")
        self.wait_no_topics()

    def change(self, settings: Mapping[str, object], route: str = str(FORTH)) -> Any:
        """Change settings of a route; None: as in the file."""
        return self.rest("PUT", f"/routes/{route}/settings", json={"settings": dict(settings)})

    def wait_no_topics(self) -> None:
        eventually(lambda: self.rest("GET", "/topics") == {"topics": []}, SETTLED_S, "no topics")

    def stop(self) -> None:
        """Stop cleanly, workers first; each must exit with 0 and leave nothing behind."""
        for process in self.processes.values():
            if process.running:
                assert process.terminate(40) == 0, process.log_tail()
                process.assert_tree_gone()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill what is left, however the test ended."""
        for process in self.processes.values():
            process.kill_tree()
        self._release()

    def _release(self) -> None:
        for claim in self._claims.values():
            claim.release()
        self._claims.clear()

    # --- REST --------------------------------------------------------------------------------

    def _ready(self, id: str) -> bool:
        self.controllers[id].assert_running()
        try:
            return self.call("GET", "/ready", controller=id).status_code == 200
        except requests.RequestException:
            return False

    @contextmanager
    def calling(self, controller: str) -> Iterator[None]:
        """Send calls to this controller meanwhile: another one is frozen, cut off or dead."""
        self._called = controller
        try:
            yield
        finally:
            self._called = ""

    def call(
        self, method: str, path: str, *, controller: str = "", json: object = None
    ) -> requests.Response:
        """One REST call, whatever the response."""
        url = f"{self.url(controller)}{path}"
        return requests.request(method, url, json=json, headers=self._headers, timeout=20)

    def url(self, controller: str = "") -> str:
        id = controller or self._called or self._running_controller()
        return f"http://127.0.0.1:{self._claims[id].port}"

    def _running_controller(self) -> str:
        return next(id for id, process in self.controllers.items() if process.running)

    def rest(self, method: str, path: str, *, json: object = None) -> Any:
        """The body of a REST call that succeeds. What only reads is repeated while the controller has no
        ZooKeeper, as its response demands: a network that no test breaks is slow at times, too."""

        def available() -> tuple[requests.Response, ...]:
            response = self.call(method, path, json=json)
            away = method == "GET" and response.status_code == requests.codes.unavailable
            return () if away else (response,)

        (response,) = eventually(available, REST_S, f"{method} {path}")
        assert response.ok, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    def whitelist(self, topic: str, route: Route = FORTH) -> None:
        """Repeated while the controller has no ZooKeeper (`rest`). 409 then: a former request was carried
        out after its response."""
        path, away = f"/topics?src={route.source}&dst={route.target}", []

        def answered() -> tuple[requests.Response, ...]:
            response = self.call("POST", path, json={"topic": topic})
            if response.status_code == requests.codes.unavailable:
                away.append(response)
                return ()
            return (response,)

        (response,) = eventually(answered, REST_S, f"POST {path}")
        done = response.ok or (away and response.status_code == requests.codes.conflict)
        assert done, f"POST {path}: {response.status_code} {response.text}"

    def topic(self, topic: str) -> Any:
        """Its full description from REST."""
        return self.rest("GET", f"/topics/{topic}")

    def view(self, topic: str) -> dict[int, dict[str, str]]:
        """Partition -> {worker: state}, as the external view has it."""
        shown = self.topic(topic)["externalView"]
        return {int(number): states for number, states in shown.items()}

    def held(self, topic: str) -> dict[int, dict[str, str]]:
        """The external view without partitions that no worker holds."""
        return {number: states for number, states in self.view(topic).items() if states}

    def owners(self, topic: str) -> dict[int, str]:
        """Partition -> the worker where it is ONLINE; only partitions that are ONLINE on exactly one."""
        return {
            number: next(iter(states))
            for number, states in self.view(topic).items()
            if len(states) == 1 and set(states.values()) == {"ONLINE"}
        }

    def moves(self, topic: str) -> list[tuple[Any, ...]]:
        """Moves of the topic's partitions in the history, newest first."""
        shown = self.rest("GET", f"/history?topic={topic}&kind=move&limit={MOVES_KEPT}")["history"]
        return [(move["number"], move["partition"], move["from"], move["to"]) for move in shown]

    def last_event(self) -> int:
        """Number of the newest event in the history; 0 if there is none."""
        shown = self.rest("GET", "/history?limit=1")["history"]
        return shown[0]["number"] if shown else 0

    def ended_sessions(self, since: int) -> set[str]:
        """Workers whose session has ended after the event of this number."""
        shown = self.rest("GET", f"/history?kind=worker&limit={MOVES_KEPT}")["history"]
        return {
            event["worker"]
            for event in shown
            if event["number"] > since and event["reason"].startswith(SESSION_ENDED)
        }

    def leader(self) -> str:
        """Id of the leading controller; "" if none."""
        return str(self.rest("GET", "/ready")["leader"] or "")

    def follower_of(self, leader: str) -> str:
        return next(id for id in self.controllers if id != leader)

    def live_workers(self) -> set[str]:
        shown = self.rest("GET", "/instances")["workers"]
        return {id for id, worker in shown.items() if worker["live"]}

    # --- waiting -----------------------------------------------------------------------------

    def wait_workers(self, *ids: str) -> None:
        def present() -> bool:
            for id in ids:
                self.workers[id].assert_running()
            return set(ids) <= self.live_workers()

        eventually(present, READY_S, f"workers {ids} are live")

    def wait_online(self, topic: str, partitions: int, *, deadline_s: float = 40) -> float:
        """Seconds until every partition was ONLINE on one worker."""
        began_s = time.monotonic()
        eventually(
            lambda: len(self.owners(topic)) == partitions,
            deadline_s,
            f"all {partitions} partitions of {topic} are ONLINE",
        )
        return time.monotonic() - began_s

    def wait_leader(self, *, other_than: str) -> str:
        """Wait until another controller leads; returns its id."""

        def successor() -> str:
            leader = self.leader()
            return leader if leader != other_than else ""

        limit_s = SESSION_TIMEOUT_S + 10
        return eventually(successor, limit_s, f"a leader other than {other_than}")

    def wait_settled(self) -> None:
        """Wait until the external view is the ideal state and even over all workers."""
        eventually(lambda: not self.unsettled(), SETTLED_S, "the fleet has settled")

    def unsettled(self) -> str:
        """The first deviation from the settled state; "" if none."""
        if not self.leader():
            return "no leader"
        shown = self.rest("GET", "/validation")
        counts = {id: shown["IdealState"].get(id, 0) for id in self.workers}
        if shown["mismatches"]:
            return f"mismatches: {shown['mismatches'][:3]}"
        found = self.rest("GET", "/instances")["workers"]
        slots = {id: found[id]["slots"] if id in found else 0 for id in counts}
        if not all(slots.values()):
            return f"not all workers live: {slots}"
        return f"uneven: {counts}" if uneven_workers(counts, slots) else ""

    def assert_one_leader_per_epoch(self) -> None:
        led: dict[int, str] = {}
        for id in self.controllers:
            for epoch in re.findall(r"leading with epoch (\d+)", self.log_of(id)):
                other = led.setdefault(int(epoch), id)
                assert other == id, f"both {other} and {id} led with epoch {epoch}"

    # --- what a worker reports -----------------------------------------------------------------

    def status(self, worker: str) -> Any:
        """The worker's own /status, which works without ZooKeeper."""
        self.workers[worker].assert_running()
        url = f"http://127.0.0.1:{self.port_of(worker)}/status"
        return requests.get(url, headers=self.page_headers, timeout=10).json()

    def port_of(self, worker: str) -> str:
        """Port of its pages."""
        return eventually(lambda: self._logged_port(worker), READY_S, f"{worker} logs its port")

    def states(self) -> list[tuple[str, str]]:
        """State and reason of every partition, as the workers report them."""
        rows = [row for id in self.workers for row in self.status(id)["partitions"].values()]
        return [(row["state"], row["reason"]) for row in rows]

    def _logged_port(self, worker: str) -> str:
        """The last one it logged: a log outlives the process, and a worker may be restarted."""
        log = self.log_of(worker)[self._logged.get(worker, 0) :]
        found = re.findall(r"status on port (\d+)", log)
        return found[-1] if found else ""

    def log_of(self, id: str) -> str:
        path = self.folder / f"{id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @staticmethod
    def wait_seconds(seconds: float) -> None:
        """Wait, for faults that last a fixed time."""
        time.sleep(seconds)


def pids_of(process: Process, part: str) -> Sequence[int]:
    """Processes of a tree by what they are: `java`, or `pyspark` for Spark's Python processes."""
    found = []
    for pid in process.tree():
        try:
            command = psutil.Process(pid).cmdline()
        except psutil.NoSuchProcess:
            continue
        if any(part in word for word in command[:4]):
            found.append(pid)
    return found


def with_path(folder: Path) -> str:
    """PYTHONPATH with a folder before what it already has."""
    return os.pathsep.join(part for part in (str(folder), os.environ.get("PYTHONPATH")) if part)
