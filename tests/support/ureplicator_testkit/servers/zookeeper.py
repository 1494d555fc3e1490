"""A ZooKeeper server on this machine. It counts as started only when it responds in its own protocol.

Run as a program, this module makes the archive of ZooKeeper's classes, from which servers start faster.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ureplicator_testkit.servers.java import (
    QUICK_START,
    new_archive,
    zookeeper_archive,
    zookeeper_java,
)
from ureplicator_testkit.servers.processes import Process, eventually
from ureplicator_testkit.servers.server import START_DEADLINE_S, Server

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
TLS_CONFIG = """\
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.type=PEM
ssl.keyStore.location={own}
ssl.trustStore.type=PEM
ssl.trustStore.location={authorities}
ssl.clientAuth={client_auth}
"""


@dataclass(frozen=True)
class ServerTls:
    """TLS of a server, on a port besides the plaintext one.

    `own`: its key and certificate, in one PEM file; `authorities`: those of clients; `client_auth`: none,
    want or need.
    """

    own: Path
    authorities: Path
    client_auth: str = "none"


class ZooKeeperServer(Server):
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
        tls: ServerTls | None = None,
        java_options: Sequence[str] = QUICK_START,
    ) -> None:
        super().__init__(name, folder, detached)
        self.port = self._claim(port)
        self.tls = tls
        self.tls_port = self._claim(None) if tls else 0
        self._heap_mb = heap_mb
        self._java_options = java_options
        self._process: Process | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def tls_hosts(self) -> str:
        return f"127.0.0.1:{self.tls_port}"

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
        java = zookeeper_java(self._heap_mb, self.folder, options=self._java_options)
        config = self.folder / "zookeeper.properties"
        config.write_text(self.config())
        command = java.command(self.main_class, config)
        log = self.folder / "zookeeper.log"
        self._process = Process(self.name, command, log=log, detached=self.detached)

    def config(self) -> str:
        config = ZOOKEEPER_CONFIG.format(data=self.folder / "data", port=self.port)
        return config + (self._tls_config(self.tls) if self.tls else "")

    def _tls_config(self, tls: ServerTls) -> str:
        return TLS_CONFIG.format(
            port=self.tls_port,
            own=tls.own,
            authorities=tls.authorities,
            client_auth=tls.client_auth,
        )

    def kill(self) -> None:
        """End it without warning (SIGKILL); its data stays."""
        self.process.kill_tree()

    def restart(self) -> None:
        """Start it again with its data, after `kill` or instead of it."""
        self.kill()
        self.start()

    def serves(self) -> bool:
        """True if it responds with `Mode: ...` to the `srvr` command, as a serving server does."""
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


def make_archive() -> None:
    """Start and end a server that writes down the classes it loaded."""
    archive = zookeeper_archive()
    if archive.exists():
        return
    with (
        new_archive(archive) as options,
        ZooKeeperServer(name="archive", java_options=options) as server,
    ):
        server.process.terminate()


if __name__ == "__main__":
    make_archive()
