"""Two hosts with a lifeline between them, of which each loses the other: a network of two namespaces.

    unshare -rn python -m ureplicator_testkit.copier.lost_host

Prints `copier <seconds>` and `driver <seconds>`: how long each end took to notice. The hosts lose each
other by a wrong hardware address for the other: packets go out, and nothing ever comes back. Time counts from
the moment when both have: until then bytes of the one that is later still arrive.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time

from ureplicator_worker.lifeline.client import open_lifeline
from ureplicator_worker.lifeline.codec import encode
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId, CopierReport
from ureplicator_worker.lifeline.server import Disconnected, LifelineServer

DRIVER, COPIER = "10.9.0.1", "10.9.0.2"
NOBODY = "02:00:00:00:00:99"
LIMIT_S = 30.0
LOST = "lost\n"
"""Line of a copier that has lost its driver."""


def ip(*command: str) -> None:
    subprocess.run(["ip", *command], check=True)  # noqa: S603, S607


def set_up(device: str, address: str) -> None:
    ip("addr", "add", f"{address}/24", "dev", device)
    ip("link", "set", device, "up")


def lose(device: str, other: str) -> None:
    ip("neigh", "replace", other, "lladdr", NOBODY, "dev", device, "nud", "permanent")


def driver() -> None:
    server = LifelineServer(host="0.0.0.0")  # noqa: S104  # in a namespace of its own
    gone, admitted = threading.Event(), threading.Event()
    server.start(lambda _, sent: (gone if isinstance(sent, Disconnected) else admitted).set())
    config = f"{server.address[1]} {server.admit(CopierId(0, 1))}"
    command = ["unshare", "-n", sys.executable, "-m", __spec__.name, *config.split(), sys.argv[1]]
    pipe = subprocess.PIPE
    copier = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)  # noqa: S603
    try:
        assert copier.stdin is not None
        assert copier.stdout is not None
        time.sleep(1.0)
        ip("link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(copier.pid))
        set_up("v0", DRIVER)
        copier.stdin.write("\n")
        copier.stdin.flush()
        assert admitted.wait(LIMIT_S)
        lose("v0", COPIER)
        copier.stdin.write("\n")
        copier.stdin.flush()
        assert copier.stdout.readline() == LOST
        began_s = time.monotonic()
        assert gone.wait(LIMIT_S)
        print(f"driver {time.monotonic() - began_s:.1f}", flush=True)
        print(copier.stdout.read(), end="", flush=True)
        copier.wait(LIMIT_S)
    finally:
        copier.kill()
        server.close()


def copier(port: int, token: str, *, sends: bool) -> None:
    sys.stdin.readline()
    set_up("v1", COPIER)
    connection = open_lifeline(config(port, token))
    lose("v1", DRIVER)
    print(LOST, end="", flush=True)
    sys.stdin.readline()
    began_s = time.monotonic()
    while not (closed(connection) or (sends and not sent(connection))):
        pass
    print(f"copier {time.monotonic() - began_s:.1f}", flush=True)


def closed(connection: socket.socket) -> bool:
    if not select.select([connection], [], [], 0.2)[0]:
        return False
    try:
        return connection.recv(1) == b""
    except OSError:
        return True


def sent(connection: socket.socket) -> bool:
    """Send a report. A connection that timed out says so to whichever call comes next: this or `closed`."""
    try:
        connection.send(encode(CopierReport({})))
    except OSError:
        return False
    return True


def config(port: int, token: str) -> CopierConfig:
    return CopierConfig(
        fleet="f",
        worker="w",
        slot=0,
        run=1,
        host=DRIVER,
        port=port,
        token=token,
        clusters={},
        commit_interval_s=1.0,
        transaction_interval_s=0.1,
        buffer_bytes=1,
        silence_s=60.0,
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        copier(int(sys.argv[1]), sys.argv[2], sends=sys.argv[3] == "sends")
        os._exit(0)
    driver()
