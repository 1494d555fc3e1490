"""REST as it is served: gunicorn on a socket of its parent's, real ZooKeeper, and their ends."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from ureplicator_common.coordination import create_or_set, version_of
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_controller.api.rest_process import WsgiConfig
from ureplicator_testkit.fleet.rest_server import Rest
from ureplicator_testkit.servers.ports import port_is_free
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

RESPONSE_S = 2.0
PATHS = Paths("rest")
KEY = TopicKey(Route("a", "b"), "orders")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """One that tests freeze and kill; each has it back in order."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def rest(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """The last test ends it."""
    rest = Rest(zookeeper.hosts, tmp_path_factory.mktemp("rest"))
    eventually(lambda: rest.status("/ready") == 200, 20, "REST is ready")
    yield rest
    rest.parent.kill_tree()


def timed(rest: Rest, method: str, path: str) -> tuple[requests.Response, float]:
    began_s = time.monotonic()
    return rest.request(method, path), time.monotonic() - began_s


def assert_away(rest: Rest) -> None:
    """Everything that needs ZooKeeper says so, in time; liveness does not mind."""
    for method, path in (("GET", "/topics"), ("POST", "/topics/x"), ("DELETE", "/topics/orders")):
        response, took_s = timed(rest, method, path)
        assert response.status_code == 503
        assert "ZooKeeper is unavailable" in response.json()["detail"]
        assert took_s < RESPONSE_S
    assert rest.status("/ready") == 503
    assert rest.status("/health") == 200


def intend(zookeeper: ZooKeeperServer) -> None:
    """A topic that was whitelisted earlier."""
    client = ZooKeeperCoordination(hosts=zookeeper.hosts, session_timeout_s=3)
    client.connect(5)
    path = PATHS.topic(KEY)
    client.ensure(path.rpartition("/")[0])
    intent = encode_intent(TopicIntent(2, 2, target_topic=KEY.topic))
    client.transact([create_or_set(path, intent, version_of(client.get(path)))])
    client.close()


def shown(rest: Rest) -> Any:
    return rest.request("GET", "/topics").json()["topics"]


def state(rest: Rest) -> str:
    """State of the topic; "" if it is not known."""
    found: dict[str, str] = rest.request("GET", "/topics/orders").json()
    return found.get("state", "")


def test_one_reads_what_one_wrote(zookeeper: ZooKeeperServer, rest: Rest) -> None:
    intend(zookeeper)
    eventually(lambda: state(rest) == "active", 2, "the topic is shown")
    assert shown(rest) == ["orders"]
    assert rest.request("DELETE", "/topics/orders").status_code == 200
    assert state(rest) == "deleting"


def test_pages_of_other_sites_neither_read_nor_write(
    zookeeper: ZooKeeperServer, rest: Rest
) -> None:
    intend(zookeeper)
    eventually(lambda: state(rest) == "active", 2, "the topic is shown")
    assert shown(rest) == ["orders"]
    rebound = {"Host": f"elsewhere.example:{rest.port}"}
    assert rest.request("GET", "/export", headers=rebound).status_code == 403
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.example"}):
        assert rest.request("DELETE", "/topics/orders", headers=headers).status_code == 403
    assert state(rest) == "active"


def test_without_a_target_a_topic_is_shown_all_the_same(
    zookeeper: ZooKeeperServer, rest: Rest
) -> None:
    intend(zookeeper)
    eventually(lambda: state(rest) == "active", 2, "the topic is shown")
    assert shown(rest) == ["orders"]
    response, took_s = timed(rest, "GET", "/topics/orders")
    assert response.status_code == 200
    assert response.json()["positions"] is None
    assert response.json()["positionsReason"].startswith("b: ")
    assert took_s < RESPONSE_S


def test_zookeeper_frozen_then_thawed(zookeeper: ZooKeeperServer, rest: Rest) -> None:
    zookeeper.pause()
    assert_away(rest)
    zookeeper.resume()
    eventually(lambda: rest.status("/ready") == 200, 10, "REST is ready again")


def test_zookeeper_killed_then_back(zookeeper: ZooKeeperServer, rest: Rest) -> None:
    intend(zookeeper)
    zookeeper.kill()
    eventually(lambda: rest.status("/ready") == 503, 5, "the loss is noticed")
    assert_away(rest)
    zookeeper.restart()
    eventually(lambda: rest.status("/ready") == 200, 15, "REST is ready again")
    assert shown(rest) == ["orders"]


def test_rest_ends_with_its_daemon(rest: Rest) -> None:
    """Killed without a word, as by the kernel: the port must be free for the next one."""
    os.kill(rest.parent.pid, 9)
    eventually(lambda: port_is_free(rest.port), 10, "the port is free")
    rest.parent.assert_tree_gone()


def test_the_configuration_survives_the_environment() -> None:
    config = WsgiConfig(config="/a b.yaml", overrides=("x=1", 'y="2"'), id="c", pipe_fd=7)
    assert WsgiConfig.from_json(config.to_json()) == config
