"""Shared servers, unique names, and the check that a test run leaves nothing behind.

Cheap tests run first: their failures explain those of the expensive ones. The servers start with the
first test that needs them and serve all that follow, so every test uses topics and fleets of its own.
A test that freezes or kills a server starts one of its own.
"""

import gc
import os
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from ureplicator_testkit.servers import processes
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer
from ureplicator_testkit.shared import Shared
from ureplicator_testkit.spark import quick_start
from ureplicator_testkit.times import pytest_runtest_protocol as pytest_runtest_protocol

HERE = Path(__file__).parent
ORDER = ("unit", "simulation", "helm", "integration", "faults")
TIMEOUTS_S = {"unit": 60, "simulation": 1_800, "integration": 180, "faults": 600}
HANGS_FACTOR = 3
"""A test that runs so much longer hangs: on a machine with other work, time alone fails none."""

settings.register_profile(
    "busy machine",
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("busy machine")
os.environ.update(quick_start.environment())
gc.set_threshold(100_000, 50, 100)  # a search for cycles with each 100,000 new containers, not 700


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's folder determines its place in the order, its marker, and its timeout."""
    for item in items:
        folder = _folder(item)
        if folder in ("integration", "faults"):
            item.add_marker(folder)
        if folder in TIMEOUTS_S:
            own = item.get_closest_marker("timeout")
            timeout_s = own.args[0] if own else TIMEOUTS_S[folder]
            factor = HANGS_FACTOR * processes.deadline_factor()
            item.add_marker(pytest.mark.timeout(timeout_s * factor), append=False)
    items.sort(key=lambda item: ORDER.index(_folder(item)) if _folder(item) in ORDER else -1)


def pytest_collection_finish() -> None:
    """Leave what was collected out of searches for cycles: one through thousands of tests takes half a
    second, and comes every few dozen tests."""
    gc.collect()
    gc.freeze()


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Set up before every other fixture, so torn down after all others: then nothing may be left."""
    threads = set(threading.enumerate())
    yield
    try:
        processes.eventually(lambda: not _left(threads), 10, "threads and processes end")
    except processes.NotInTimeError:
        pytest.fail("left behind by this test run:\n" + "\n".join(_left(threads)))
    finally:
        processes.stop_guard()


def _left(threads: set[threading.Thread]) -> list[str]:
    started = [t for t in threading.enumerate() if t not in threads and t.is_alive()]
    guard = processes.guard_pid()
    children = [c for c in psutil.Process().children() if c.pid != guard]
    return [
        *(f"thread {thread.name}" for thread in started),
        *(f"child {child.pid}: {child.name()}" for child in children if child.is_running()),
        *(f"process {line}" for line in processes.leftovers()),
    ]


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """One ZooKeeper for all tests: use a fleet of your own, do not stop it."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def source_cluster() -> Iterator[KafkaCluster]:
    """One source broker for all tests."""
    with KafkaCluster(name="source") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def target_cluster() -> Iterator[KafkaCluster]:
    """One target broker for all tests."""
    with KafkaCluster(name="target") as cluster:
        yield cluster


_of_folder = Shared()


@pytest.fixture(scope="session")
def of_folder() -> Iterator[Shared]:
    """Things that the tests of a folder share."""
    yield _of_folder
    _of_folder.end()  # if the last one of the folder did not run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _of_folder.end()


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """Contains the test's name, and is never used twice."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{test[:40].strip('-')}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(unique_name: str) -> str:
    """Name of a topic that does not exist yet."""
    return unique_name


@pytest.fixture
def fleet(unique_name: str) -> str:
    """Name of a fleet that does not exist yet."""
    return unique_name


@pytest.fixture(scope="module")
def quick_java() -> Iterator[None]:
    """JVMs start quickly that get neither options of the tests nor Spark's variables: those of the queries of
    a slot, and executors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", quick_start.environment()["SPARK_SUBMIT_OPTS"])
        yield
