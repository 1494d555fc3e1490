"""Parts common to ZooKeeper and Kafka as servers of tests, and the start of several at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from ureplicator_testkit.servers.ports import PortClaim, PortTakenError, claim_port, port_is_free
from ureplicator_testkit.servers.processes import Process, remove_folder, scratch_folder

START_DEADLINE_S = 120.0


class Server:
    """A folder, claimed ports, and processes."""

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


def start_all(*servers: Server) -> None:
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
