"""One controller and some workers as processes, on running servers.

All start in parallel, as in production: a worker waits for ZooKeeper, and a controller for workers.
After `wait_ready` a whitelisted topic is copied at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from rich.console import Console

from ureplicator_cli.rest_client import Login, RestClient, RestFailure
from ureplicator_demo.waiting import await_none_missing
from ureplicator_testkit.servers.ports import PortClaim, claim_port, port_is_free
from ureplicator_testkit.servers.processes import NotInTimeError, Process, eventually
from ureplicator_testkit.servers.reaper import kill_marked, marked_processes

USUAL_PORT = 9000
START_DEADLINE_S = 300.0
DRAIN_DEADLINE_S = 40.0


@dataclass(frozen=True, slots=True)
class WorkerPages:
    """Web pages of one worker."""

    name: str
    status: str
    spark: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A variable in the environment of every process of a fleet, and of their descendants."""

    name: str
    value: str

    def end(self, roots: Sequence[int]) -> int:
        """Send SIGTERM, then kill what is left. Returns the number of processes."""
        there = self.processes()
        for pid in set(roots) & set(there):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(NotInTimeError):
            eventually(
                lambda: not set(roots) & set(self.processes()), DRAIN_DEADLINE_S, "all ended"
            )
        kill_marked(self.name, self.value)
        return len(there)

    def processes(self) -> Sequence[int]:
        return marked_processes(self.name, self.value)


def login_of(servers: Mapping[str, str]) -> Login | None:
    """Files for calls of REST, from the addresses of a stack; None: it is not secured."""
    token, ca = servers.get("UREPLICATOR_TOKEN_FILE"), servers.get("UREPLICATOR_CA_FILE")
    return Login(Path(token), Path(ca)) if token and ca else None


class Fleet:
    """Roles named c1, w1, w2, ...; a detached fleet outlives its starter."""

    def __init__(
        self,
        config: Path,
        folder: Path,
        *,
        name: str,
        workers: int,
        mark: Mark,
        detached: bool = False,
        login: Login | None = None,
    ) -> None:
        """`login`: REST has TLS, and wants a token."""
        self._config, self._folder, self.name = config, folder, name
        self._login = login
        self._workers = workers
        self._mark = mark
        self._detached = detached
        self._claim: PortClaim | None = None
        self.processes: list[Process] = []
        self.url = ""

    def start(self) -> None:
        scheme = "https" if self._login else "http"
        self.url = f"{scheme}://127.0.0.1:{self._port()}"
        port = self.url.rpartition(":")[2]
        self._spawn("controller", "c1", "--set", f"controller.port={port}")
        for number in range(1, self._workers + 1):
            self._spawn("worker", f"w{number}")

    def wait_ready(self, console: Console) -> None:
        """Wait until a leader is elected and every copier of every worker waits for work. Raises
        NotInTimeError."""
        await_none_missing(self._missing, START_DEADLINE_S, console=console)

    def add_worker(self) -> str:
        """Start one more; returns its id."""
        self._workers += 1
        return self._spawn("worker", f"w{self._workers}")

    def take_away(self, worker: str) -> int:
        """Stop a worker for good, as the chart's hook and Kubernetes do. Returns its exit code."""
        (process,) = (running for running in self.processes if running.name == f"worker {worker}")
        process.send(signal.SIGUSR1)
        process.send(signal.SIGTERM)
        code = process.wait(DRAIN_DEADLINE_S)
        self.processes.remove(process)
        self._workers -= 1
        return code

    def rest(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Body of a REST response. Raises RestFailure."""
        return RestClient(self.url, login=self._login).call(method, path, body=body)

    def refuses_strangers(self) -> bool:
        """True if REST shows nothing to who has no login, where one is needed."""
        if self._login is None:
            return True
        ca_file = str(self._login.ca_file)
        return requests.get(f"{self.url}/topics", verify=ca_file, timeout=10).status_code == 401

    def options(self) -> str:
        """Options by which the operators' command reaches this fleet."""
        if self._login is None:
            return "" if self.url.endswith(f":{USUAL_PORT}") else f" --url {self.url}"
        files = f"--token-file {self._login.token_file} --ca-file {self._login.ca_file}"
        return f" --url {self.url} {files}"

    def pages(self) -> Sequence[WorkerPages]:
        found = []
        for name, worker in self.rest("GET", "/instances")["workers"].items():
            base = f"http://{worker['host']}:{worker['port']}"
            status = requests.get(f"{base}/status", timeout=10).json()
            found.append(WorkerPages(name, f"{base}/status", status["sparkUi"]))
        return found

    def wrong(self) -> str:
        """Deviations that the fleet itself reports."""
        try:
            found = self.rest("GET", "/validation")["mismatches"]
        except RestFailure as error:
            return str(error)
        return "\n".join(f"{m['topic']}/{m['partition']}: {m['reason']}" for m in found)

    def stop(self) -> None:
        """Stop all cleanly: workers drain and commit first."""
        self._mark.end([process.pid for process in self.processes])
        if self._claim is not None:
            self._claim.release()

    def _port(self) -> int:
        if port_is_free(USUAL_PORT):
            return USUAL_PORT
        self._claim = claim_port()
        return self._claim.port

    def _spawn(self, role: str, id: str, *more: str) -> str:
        command = Path(sys.executable).with_name("ureplicator")
        process = Process(
            f"{role} {id}",
            [command, role, self._config, "--id", id, "--set", f"fleet={self.name}", *more],
            log=self._folder / f"{role}-{id}.log",
            env={"PYTHONUNBUFFERED": "1", self._mark.name: self._mark.value},
            detached=self._detached,
        )
        self.processes.append(process)
        return id

    def _missing(self) -> str:
        """The part that the fleet waits for before it can copy; "" if there is none."""
        for process in self.processes:
            process.assert_running()
        try:
            leader = self.rest("GET", "/ready")["leader"]
            workers = self.rest("GET", "/instances")["workers"]
        except RestFailure as error:
            return f"the controller: {error}"
        live = {name: worker for name, worker in workers.items() if worker["live"]}
        if not leader:
            return "the election of a leader"
        if len(live) != self._workers:
            return f"{self._workers - len(live)} of {self._workers} workers to register"
        starting = sorted(name for name, worker in live.items() if not _copiers_wait(worker))
        return f"the copiers of {', '.join(starting)} to start" if starting else ""


def _copiers_wait(worker: Mapping[str, Any]) -> bool:
    try:
        response = requests.get(f"http://{worker['host']}:{worker['port']}/ready", timeout=5)
    except requests.RequestException:
        return False
    return response.status_code == 200
