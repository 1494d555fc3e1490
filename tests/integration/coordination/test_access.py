"""Digest users and access lists on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ureplicator_common.coordination import Create, Delete, Set, Unavailable
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.znodes.paths import Paths
from ureplicator_testkit.control.command import run
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

USER, STRANGER = "fleet:pw-0123456789", "stranger:pw-9876543210"
NewClient = Callable[[str], ZooKeeperCoordination]


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def client(server: ZooKeeperServer) -> Iterator[NewClient]:
    with ExitStack() as made:

        def new(digest: str) -> ZooKeeperCoordination:
            client = ZooKeeperCoordination(hosts=server.hosts, session_timeout_s=5, digest=digest)
            made.enter_context(closing(client)).connect(20)
            return client

        yield new


def tree(server: ZooKeeperServer, digest: str) -> dict[str, set[str]]:
    """Path -> schemes of the access list, of all nodes but ZooKeeper's own."""
    raw = KazooClient(server.hosts, auth_data=[("digest", digest)])
    raw.start()
    try:
        found: dict[str, set[str]] = {}
        waiting = [f"/{name}" for name in raw.get_children_async("/").get() if name != "zookeeper"]
        for path in waiting:
            found[path] = {acl.id.scheme for acl in raw.get_acls_async(path).get()[0]}
            waiting += [f"{path}/{name}" for name in raw.get_children_async(path).get()]
        return found
    finally:
        raw.stop()
        raw.close()


def test_each_node_belongs_to_who_created_it(server: ZooKeeperServer, client: NewClient) -> None:
    ours = client(USER)
    for path in Paths("f").skeleton:
        ours.ensure(path)
    ours.transact(
        [Create("/ureplicator/f/settings", b"1"), Create("/ureplicator/f/x", b"", ephemeral=True)]
    )
    found = tree(server, USER)
    assert "/ureplicator/f/x" in found
    assert set.union(*found.values()) == {"digest"}
    assert not ours.is_open("/ureplicator/f")
    for other in (client(""), client(STRANGER)):
        with pytest.raises(Unavailable, match="belongs to another user"):
            other.get("/ureplicator/f/settings")
        for operation in (
            Set("/ureplicator/f/settings", b"2", -1),
            Delete("/ureplicator/f/settings"),
            Create("/ureplicator/f/y", b""),
        ):
            with pytest.raises(Unavailable, match="belongs to another user"):
                other.transact([operation])
    node = client(USER).get("/ureplicator/f/settings")
    assert node is not None
    assert node.data == b"1"


def test_an_open_tree_is_secured_once_and_for_all(
    server: ZooKeeperServer, client: NewClient, tmp_path: Path
) -> None:
    nobody = client("")
    nobody.ensure("/ureplicator/f/topics/a.b")
    nobody.transact([Create("/ureplicator/f/topics/a.b/orders", b"1")])
    assert nobody.is_open("/ureplicator/f")
    (tmp_path / "user").write_text(USER + "\n")
    config = tmp_path / "fleet.yaml"
    config.write_text(
        f"fleet: f\nzookeeper: {{hosts: '{server.hosts}', digest_file: {tmp_path / 'user'}}}\n"
        "clusters: {a: {bootstrap.servers: 'a:1'}, b: {bootstrap.servers: 'b:1'}}\n"
        "routes: [{source: a, target: b}]\n"
    )
    for _ in range(2):
        result = run("zookeeper", "secure", config)
        assert result.exit_code == 0, result.stderr
        assert result.stdout.startswith("4 nodes")
        assert "pw-" not in result.output
    found = tree(server, USER)
    assert {path for path, schemes in found.items() if "world" in schemes} == {"/ureplicator"}
    with pytest.raises(Unavailable, match="belongs to another user"):
        nobody.transact([Set("/ureplicator/f/topics/a.b/orders", b"2", -1)])
