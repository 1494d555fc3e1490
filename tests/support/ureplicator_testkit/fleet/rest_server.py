"""REST as the daemon starts it: gunicorn on a socket of its parent's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import requests

from ureplicator_controller.api.rest_process import ENVIRONMENT
from ureplicator_testkit.servers.ports import claim_port
from ureplicator_testkit.servers.processes import Process

PARENT = f"""
import os, socket, subprocess, time
from ureplicator_controller.api.rest_process import ENVIRONMENT, WsgiConfig, command
listener = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
read, write = os.pipe()
config = WsgiConfig(config=os.environ["CONFIG"], id="c1", pipe_fd=read)
environment = os.environ | {{{ENVIRONMENT!r}: config.to_json()}}
fds = (listener.fileno(), read)
from ureplicator_common.config.settings import load_settings
tls = load_settings(config.config, environ={{}}).controller.tls
child = subprocess.Popen(command(listen_fd=fds[0], tls=tls), pass_fds=fds, env=environment)
os.close(read)
child.wait()
"""
"""The daemon's part in starting the REST process, and no more."""


NOWHERE = "127.0.0.1:1"
"""Hosts without a ZooKeeper: each call that needs it gets 503."""


class Rest:
    """A parent with its gunicorn child. `hosts`: of ZooKeeper; `more`: further sections of the
    configuration. `ca`: the authority of its certificate, if it has TLS."""

    def __init__(self, hosts: str, folder: Path, *, more: str = "", ca: Path | None = None) -> None:
        claim = claim_port()
        self.port = claim.port
        self.url = f"{'https' if ca else 'http'}://127.0.0.1:{self.port}"
        self._ca = str(ca) if ca else True
        config = folder / "fleet.yaml"
        config.write_text(
            f"fleet: rest\nzookeeper: {{hosts: '{hosts}', session_timeout_s: 3}}\n"
            "clusters: {a: {bootstrap.servers: '127.0.0.1:1'}, b: {bootstrap.servers: 'localhost:1'}}\n"
            f"routes: [{{source: a, target: b}}]\n{more}"
        )
        claim.release()
        self.parent = Process(
            "rest",
            [sys.executable, "-c", PARENT],
            log=folder / "rest.log",
            env={"PORT": str(self.port), "CONFIG": str(config)},
        )

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str] = MappingProxyType({})
    ) -> requests.Response:
        return requests.request(
            method, self.url + path, timeout=10, headers=headers, verify=self._ca
        )

    def opened(self, path: str, headers: Mapping[str, str]) -> requests.Response:
        """A response whose body is read while it comes."""
        return requests.get(
            self.url + path, timeout=10, headers=headers, verify=self._ca, stream=True
        )

    def status(self, path: str) -> int:
        try:
            return self.request("GET", path).status_code
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout):
            return 0
