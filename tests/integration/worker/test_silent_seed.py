"""The first bootstrap server accepts connections and never responds: it delays a start, and stops nothing.

The copier alone; the silent address comes first at both ends.
"""

import socket
import time
from collections.abc import Iterator

import pytest

from ureplicator_testkit.copier.driver import StubDriver, partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.labels import labelled_records

PARTITIONS = 4
ONLINE_S = 10


@pytest.fixture
def silent() -> Iterator[str]:
    """A server whose backlog takes every connection, and which reads from none."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_first_bootstrap_server(lane: RealLane, silent: str) -> None:
    lane.make(PARTITIONS)
    lane.fill(labelled_records(lane.topic, partitions=PARTITIONS, count=50))
    began_s = time.monotonic()
    driver = StubDriver(
        partitions_of(lane.topic, PARTITIONS),
        source=f"{silent},{lane.source.bootstrap}",
        target=f"{silent},{lane.target.bootstrap}",
        fleet=lane.fleet,
        folder=lane.folder,
    )
    try:
        driver.wait_online(ONLINE_S)
        print(f"ONLINE after {time.monotonic() - began_s:.1f} s")
        driver.wait_caught_up(ONLINE_S)
        driver.stop()
    finally:
        driver.close()
    lane.assert_equal()
