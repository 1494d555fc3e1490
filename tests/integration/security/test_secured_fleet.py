"""A whole fleet between brokers that want TLS and logins, on a ZooKeeper that wants them too: every path to
Kafka and to ZooKeeper is one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from kazoo.client import KazooClient

from ureplicator_common.coordination import Unavailable
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.znodes.fleet import decode_controller
from ureplicator_common.znodes.paths import Paths
from ureplicator_testkit.fleet.auditors import start_auditor
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import compare_logs, create_topic, produce, sample_records
from ureplicator_testkit.secured.brokers import PASSWORD
from ureplicator_testkit.secured.ends import Secured, logins
from ureplicator_testkit.secured.outputs import auditor_ports, findings, outputs
from ureplicator_testkit.secured.tokens import SECRET
from ureplicator_testkit.servers.processes import Process, eventually, spawn_ureplicator
from ureplicator_testkit.servers.zookeeper import ServerTls, ZooKeeperServer

pytestmark = pytest.mark.timeout(600)

USER = "fleet:pw-of-zookeeper"
OPERATOR, VIEWER = "operator-of-4711-fleet", "viewer-of-4711-fleet"
PAGES = "pages-of-the-4711-fleet"
SECRETS = (PASSWORD, SECRET, USER.split(":")[1], OPERATOR, VIEWER, PAGES)
PARTITIONS = 2
COPIED_S = 240.0
"""A query has a JVM of its own, which is slow to start on a busy machine."""


@pytest.fixture
def closed_zookeeper(secured: Secured) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that asks clients for a certificate."""
    authority = secured.authority
    tls = ServerTls(authority.issue("zookeeper").both, authority.certificate, client_auth="need")
    with ZooKeeperServer(name="zookeeper-tls", tls=tls) as server:
        yield server


@pytest.fixture
def running(
    closed_zookeeper: ZooKeeperServer, secured: Secured, fleet: str, tmp_path: Path
) -> Iterator[Fleet]:
    """The source by token, the target by a password from a file."""
    user = tmp_path / "user"
    user.write_text(f"{USER}\n")
    file = tmp_path / "secret"
    file.write_text(f"{PASSWORD}\n")
    operators, viewers = tmp_path / "operators", tmp_path / "viewers"
    operators.write_text(f"olga {OPERATOR}\n")
    viewers.write_text(f"victor {VIEWER}\n")
    (tmp_path / "token").write_text(f"{OPERATOR}\n")
    pages = tmp_path / "pages-token"
    pages.write_text(f"{PAGES}\n")
    access = {
        "mode": "tokens",
        "operator_tokens_file": str(operators),
        "viewer_tokens_file": str(viewers),
    }
    by_password = logins(secured, "SCRAM-SHA-512", **{"sasl.password.file": str(file)})
    whole = Fleet(
        name=fleet,
        folder=tmp_path,
        zookeeper=closed_zookeeper.tls_hosts,
        source=secured.source.bootstrap,
        target=secured.target.bootstrap,
        controller={"access": access},
        route={
            "delivery": "exactly_once",
            "offset_map": True,
            "handlers": [
                {"topics": ".*-handled", "handler": "ureplicator_worker.handlers:identity"}
            ],
            "sql": [{"topics": ".*-queried", "query": "SELECT * FROM records"}],
        },
        token=OPERATOR,
        pages_token_file=pages,
        security={
            "source": logins(secured, "OAUTHBEARER")["source"],
            "target": by_password["target"],
        },
        zookeeper_security={
            "digest_file": str(user),
            "tls": {
                "ca_file": str(secured.authority.certificate),
                "certificate_file": str(secured.client.certificate),
                "key_file": str(secured.client.key),
            },
        },
    )
    try:
        yield whole.start()
    finally:
        whole.kill()


def test_topics_are_created_copied_measured_and_compared(
    running: Fleet,
    closed_zookeeper: ZooKeeperServer,
    secured: Secured,
    topic: str,
    tmp_path: Path,
) -> None:
    source, target = secured.source.bootstrap, secured.target.bootstrap
    for made in (topic, f"{topic}-handled", f"{topic}-queried"):
        create_topic(source, made, partitions=PARTITIONS)
        produce(source, made, sample_records(1_000, partitions=PARTITIONS, seed=3))
        running.whitelist(made)
        running.wait_online(made, PARTITIONS)
        wait_copied(running, made)
        compare_logs(source, target, made).assert_clean()
    audit = spawn_ureplicator(
        *("audit", running.config_of("audit"), "--topic", topic, "--master", "local[1]"),
        log=tmp_path / "audit.log",
    )
    assert audit.wait(COPIED_S) == 0, audit.log_tail()
    with auditing(running, tmp_path) as auditor:
        shown = outputs(
            running,
            others={"auditor": auditor},
            topic=topic,
            token_file=str(tmp_path / "token"),
            hosts=closed_zookeeper.hosts,
            user=USER,
        )
        assert_pages_are_closed(running, closed_zookeeper)
    assert any(name.startswith("auditor /status with") for name in shown)
    assert findings(shown, SECRETS) == []
    assert findings({**shown, "planted": f"x={quote(SECRET, safe='')}"}, SECRETS) == ["planted"]
    assert any(topic in text for name, text in shown.items() if name.startswith("/ureplicator"))
    assert any("by olga" in text for text in shown.values())
    assert '"registered": true' in shown["archive ureplicator-diagnosis/workers/w1/status.txt"]
    assert any("config.yaml" in name for name in shown if name.startswith("archive"))
    assert "everyone who reaches ZooKeeper" not in "".join(shown.values())
    with closing(
        ZooKeeperCoordination(hosts=closed_zookeeper.hosts, session_timeout_s=5)
    ) as nobody:
        nobody.connect(COPIED_S)
        with pytest.raises(Unavailable, match="belongs to another user"):
            nobody.get(Paths(running.name).root)


def wait_copied(fleet: Fleet, topic: str) -> None:
    def lags() -> list[int | None]:
        return [
            fleet.rest("GET", f"/offset/{topic}/{number}")["lagRecords"]
            for number in range(PARTITIONS)
        ]

    eventually(lambda: lags() == [0] * PARTITIONS, COPIED_S, "the lag is measured, and 0")


@contextmanager
def auditing(fleet: Fleet, folder: Path) -> Iterator[Process]:
    """A live auditor."""
    auditor = start_auditor(fleet, "a1", folder)
    try:
        yield auditor
        assert auditor.terminate(30) == 0, auditor.log_tail()
    finally:
        auditor.kill_tree()


def assert_pages_are_closed(fleet: Fleet, zookeeper: ZooKeeperServer) -> None:
    """Request the pages of workers and auditors, and the metrics of each control loop: none is shown without
    the token, but for probes."""
    own = [*(int(fleet.port_of(worker)) for worker in fleet.workers), *auditor_ports(fleet)]
    ports = [(port, "/status") for port in own]
    ports += [(port, "/metrics") for port in metrics_ports(fleet, zookeeper)]
    assert len(ports) == len(fleet.workers) + 1 + len(fleet.controllers)
    for port, path in ports:
        url = f"http://127.0.0.1:{port}{path}"
        assert requests.get(url, timeout=20).status_code == 401
        wrong = {"Authorization": f"Bearer {OPERATOR}"}
        assert requests.get(url, headers=wrong, timeout=20).status_code == 401
        assert requests.get(url, headers=fleet.page_headers, timeout=20).status_code == 200
    for port in own:
        assert requests.get(f"http://127.0.0.1:{port}/health", timeout=20).status_code == 200


def metrics_ports(fleet: Fleet, zookeeper: ZooKeeperServer) -> list[int]:
    """Ports of metrics as the live nodes of the controllers name them."""
    client = KazooClient(zookeeper.hosts, auth_data=[("digest", USER)])
    client.start(timeout=20)
    try:
        folder = Paths(fleet.name).controllers
        names = client.get_children_async(folder).get(timeout=20)
        nodes = [client.get_async(f"{folder}/{name}").get(timeout=20)[0] for name in names]
        return [decode_controller(node).metrics_port for node in nodes]
    finally:
        client.stop()
        client.close()
