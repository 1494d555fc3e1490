"""The testkit's servers: they serve, keep data, and end; comparison of a good and a bad copy."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.coordination.zookeeper import open_coordination
from ureplicator_common.kafka.security.settings import librdkafka
from ureplicator_testkit.records.topics import (
    CODECS,
    NewRecord,
    add_partitions,
    compare_logs,
    create_topic,
    delete_records,
    offsets,
    produce,
    produce_in_transaction,
    read_all,
    sample_records,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.ports import PortTakenError
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

ROOT = Path(__file__).parents[3]


def test_zookeeper_answers(zookeeper: ZooKeeperServer) -> None:
    assert zookeeper.serves()


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_is_read_back(
    source_cluster: KafkaCluster, source_topic: str, codec: str
) -> None:
    records = sample_records(400, partitions=4, seed=len(codec))
    before_ms = int(time.time() * 1000)
    assert produce(source_cluster.bootstrap, source_topic, records, codec=codec) == 400
    log = read_all(source_cluster.bootstrap, source_topic)
    for partition in range(4):
        sent = [record for record in records if record.partition == partition]
        got = log[partition]
        assert [r.offset for r in got] == list(range(100))
        assert [(r.key, r.value, r.headers) for r in got] == [
            (r.key, r.value, r.headers) for r in sent
        ]
        for given, kept in zip((r.timestamp for r in sent), got, strict=True):
            assert kept.timestamp == given if given else kept.timestamp >= before_ms


def test_aborted_and_deleted_records_are_not_read(source_cluster: KafkaCluster, topic: str) -> None:
    bootstrap = source_cluster.bootstrap
    create_topic(bootstrap, topic)
    for name, commit in (("kept", True), ("dropped", False)):
        records = [NewRecord(f"{name}-{n}".encode()) for n in range(3)]
        produce_in_transaction(bootstrap, topic, records, transactional_id=topic, commit=commit)
    values = [record.value for record in read_all(bootstrap, topic)[0]]
    assert values == [b"kept-0", b"kept-1", b"kept-2"]
    assert len(read_all(bootstrap, topic, "read_uncommitted")[0]) == 6
    delete_records(bootstrap, topic, {0: 2})
    assert offsets(bootstrap, topic) == {0: (2, 8)}
    assert [record.value for record in read_all(bootstrap, topic)[0]] == [b"kept-2"]


def test_a_copy_is_compared(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, source_topic: str
) -> None:
    records = sample_records(40, partitions=2)
    stamped = [NewRecord(r.value, r.key, r.partition, r.headers, 5) for r in records]
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    produce(source, source_topic, stamped)
    create_topic(target, source_topic, partitions=2)
    add_partitions(target, source_topic, 4)
    produce(target, source_topic, stamped[:30])
    early = compare_logs(source, target, source_topic)
    assert sum(len(report.missing) for report in early.partitions) == 10
    produce(target, source_topic, stamped[30:])
    compare_logs(source, target, source_topic).assert_clean()
    produce(target, source_topic, stamped[:1])
    again = compare_logs(source, target, source_topic)
    assert again.faultless
    assert again.duplicates == 1


def test_a_taken_port_fails_at_once(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with pytest.raises(PortTakenError, match=str(zookeeper.port)):
        ZooKeeperServer(port=zookeeper.port, folder=tmp_path)


class Stack:
    """`scripts/stack` with a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(  # noqa: S603
            [ROOT / "scripts" / "stack", *arguments],
            env={**os.environ, "UREPLICATOR_LOCAL": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def settings(self) -> Settings:
        return load_settings(self.folder / "config.yaml", environ={})


def test_stack_up_and_down(tmp_path: Path) -> None:
    """The stack has a Spark cluster, TLS and logins."""
    stack = Stack(tmp_path)
    try:
        assert stack("status")[0] == 1
        code, shown = stack("up", "--spark", "--secure")
        assert code == 0, shown
        assert shown == (tmp_path / "stack.env").read_text()
        addresses = dict(line.split("=") for line in shown.splitlines())
        create_topic(addresses["SOURCE_BOOTSTRAP"], "t")
        assert stack("up")[0] == 0
        settings = stack.settings()
        assert settings.fleet == "local"
        assert settings.worker.spark_master == addresses["SPARK_MASTER"]
        assert stack("status")[0] == 0
        assert stack("up", "--source-port", "1")[0] == 1
        assert_secured(settings, tmp_path)
    finally:
        code, shown = stack("down")
    assert "6 processes ended" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stack.lock"]


def assert_secured(settings: Settings, folder: Path) -> None:
    assert settings.controller.access.mode == "tokens"
    assert settings.controller.tls.enabled
    assert settings.zookeeper.tls.enabled
    with closing(open_coordination(settings.zookeeper)) as coordination:
        coordination.connect(30)
        coordination.ensure("/mine")
        assert not coordination.is_open("/mine")
    for cluster in settings.clusters.values():
        assert cluster.properties["security.protocol"] == "SASL_SSL"
        admin = AdminClient({**librdkafka(cluster.properties)})
        assert admin.list_topics(timeout=30).brokers
    left = (path for path in folder.rglob("*") if path.is_file())
    secret = Path(settings.clusters["source"].properties["sasl.password.file"]).read_text()
    assert [path.name for path in left if secret.strip() in path.read_text("latin-1")] == [
        "kafka-password"
    ]


RUNNER = """
import time
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer
server = ZooKeeperServer().start()
print(server.port, server.process.pid, server.folder, flush=True)
time.sleep(600)
"""


def test_servers_end_when_the_test_run_is_killed() -> None:
    runner = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", RUNNER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")},
    )
    with runner:
        assert runner.stdout is not None
        _, pid, folder = runner.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        runner.send_signal(signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), 15, "the server is gone")
    eventually(lambda: not Path(folder).exists(), 15, "its folder is gone")
