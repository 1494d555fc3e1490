"""The audit on real brokers and real Spark: differences that are planted into a copy are named."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Consumer, TopicPartition

from ureplicator_common.coordination import Create, Delete
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Delivery, Partition, Route, RouteSettings, position_group
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_testkit.control import command as here
from ureplicator_testkit.fleet.real_fleet import pids_of
from ureplicator_testkit.records.topics import (
    NewRecord,
    compare_logs,
    create_topic,
    delete_records,
    produce,
    produce_in_transaction,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import Process, eventually, spawn_ureplicator
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer
from ureplicator_worker.audit.job import run_audit
from ureplicator_worker.audit.result import (
    AuditOptions,
    AuditRequest,
    AuditResult,
    AuditState,
    PartitionRange,
)
from ureplicator_worker.auditor import command as audit_command
from ureplicator_worker.auditor.session import AuditorSession

pytestmark = pytest.mark.timeout(600)
COUNT = 40_000
APART = 8
FLEET = "audited"
KEPT_FOR_EVER = {"retention.ms": "-1"}

Named = set[tuple[str, int, int]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = AuditorSession(
        name="tests", properties={"spark.master": "local[2]"}, on_failed=lambda _: None
    )
    try:
        yield session.start()
    finally:
        session.close()


@pytest.fixture
def both(source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str) -> tuple[str, str]:
    """Addresses of the clusters; both have the topic, with one partition."""
    addresses = source_cluster.bootstrap, target_cluster.bootstrap
    for address in addresses:
        create_topic(address, topic, config=KEPT_FOR_EVER)
    return addresses


def record(number: int) -> NewRecord:
    headers = (("h", b"%d" % number), ("h", None)) if number % 3 else ()
    key = b"k%d" % (number % 500) if number % 10 else None
    return NewRecord(b"v%d" % number, key, 0, headers, 1_750_000_000_000 + number)


def audit(
    spark: Any, both: tuple[str, str], topic: str, *, end: int, **options: Any
) -> AuditResult:
    clusters = dict(
        zip(("a", "b"), ({"bootstrap.servers": address} for address in both), strict=True)
    )
    return run_audit(
        spark,
        AuditRequest("a.b", topic, topic, (PartitionRange(0, end),), AuditOptions(**options)),
        clusters=clusters,
        on_progress=lambda _: None,
    )


def named(result: AuditResult) -> Named:
    return {
        (finding.kind.value, finding.source_offset, finding.target_offset)
        for finding in result.findings
    }


def planted(seed: int) -> tuple[list[NewRecord], Named]:
    """A copy with 1,000 of each kind of difference, and what is to be found."""
    picks = [n * APART for n in random.Random(seed).sample(range(2, COUNT // APART - 2), 4_000)]  # noqa: S311
    gone, twice, altered, moved = (set(picks[n * 1_000 : (n + 1) * 1_000]) for n in range(4))
    order = list(range(COUNT))
    swapped = sorted(moved)
    for a, b in zip(swapped[::2], swapped[1::2], strict=True):
        order[a], order[b] = order[b], order[a]
    copy: list[NewRecord] = []
    expected: Named = set()
    for place, offset in enumerate(order):
        if place in gone:
            expected.add(("missing", offset, -1))
            continue
        each = record(offset)
        if place in altered:
            expected.add(("altered", offset, len(copy)))
            each = replace(each, value=b"altered")
        if place in moved:
            expected.add(("reordered", offset, len(copy)))
        copy.append(each)
        if place in twice:
            expected.add(("repeated", offset, len(copy)))
            copy.append(each)
    return copy, expected


def test_planted_differences_are_named_and_nothing_else(
    spark: Any, both: tuple[str, str], topic: str
) -> None:
    copy, expected = planted(seed=1)
    produce(both[0], topic, [record(n) for n in range(COUNT)])
    produce(both[1], topic, copy)
    result = audit(spark, both, topic, end=COUNT)
    assert named(result) == expected
    assert len(expected) == 4_000
    assert result.state is AuditState.DIFFERENT
    found = result.partitions[0]
    assert (found.verified_from, found.verified_to) == (0, COUNT)


def test_a_thousand_in_a_row_are_missing_from_the_middle(
    spark: Any, both: tuple[str, str], topic: str
) -> None:
    produce(both[0], topic, [record(n) for n in range(10_000)], codec="zstd")
    produce(both[1], topic, [record(n) for n in range(10_000) if not 4_000 <= n < 5_000])
    result = audit(spark, both, topic, end=10_000)
    assert named(result) == {("missing", offset, -1) for offset in range(4_000, 5_000)}


def test_transactions_and_retention_raise_no_alarm(
    spark: Any, both: tuple[str, str], topic: str
) -> None:
    """Aborted records are on no side; the first records of either log are deleted."""
    kept: list[NewRecord] = []
    for turn in range(8):
        records = [record(turn * 500 + n) for n in range(500)]
        commit = turn % 3 != 1
        produce_in_transaction(
            both[0], topic, records, transactional_id=f"{topic}-{turn}", commit=commit
        )
        kept += records if commit else []
    produce(both[1], topic, kept)
    end = read_all(both[0], topic)[0][-1].offset + 2
    result = audit(spark, both, topic, end=end)
    assert (result.state, named(result)) == (AuditState.EQUAL, set())
    assert result.partitions[0].compared == len(kept)
    delete_records(both[0], topic, {0: 1_200})
    delete_records(both[1], topic, {0: 600})
    result = audit(spark, both, topic, end=end)
    assert (result.state, named(result)) == (AuditState.EQUAL, set())
    assert 0 < result.partitions[0].compared < len(kept)
    assert result.partitions[0].verified_from >= 1_200


def test_rounds_follow_each_other(spark: Any, both: tuple[str, str], topic: str) -> None:
    """Each round is a Spark job of its own; a limit of the rate makes them many."""
    records = [replace(record(n), value=b"x" * 1_000) for n in range(4_000)]
    produce(both[0], topic, records)
    produce(both[1], topic, records[:3_000] + records[2_500:])
    result = audit(spark, both, topic, end=4_000, round_s=0.5, rate_bytes_per_s=1_000_000)
    assert named(result) == {("repeated", 2_500 + n, 3_000 + n) for n in range(500)}
    assert result.partitions[0].compared == 4_000
    assert result.state is AuditState.EQUAL, "at_least_once"
    assert result.ended_ms - result.began_ms > 3_000


def configuration(
    folder: Path, both: Sequence[str], zookeeper: ZooKeeperServer, **route: Any
) -> Path:
    config = folder / "fleet.yaml"
    clusters = {
        name: {"bootstrap.servers": address} for name, address in zip("ab", both, strict=True)
    }
    content = {
        "fleet": FLEET,
        "zookeeper": {"hosts": zookeeper.hosts},
        "clusters": clusters,
        "routes": [{"source": "a", "target": "b", **route}],
    }
    config.write_text(json.dumps(content))
    return config


def commit_position(bootstrap: str, topic: str, position: int) -> None:
    """Commit an offset as the route's position."""
    group = position_group(fleet=FLEET, route=Route("a", "b"))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, position)], asynchronous=False)
    finally:
        consumer.close()


def run(spark: Any, *words: str | Path) -> Result:
    """The command in this process, with its Spark. The command starts one for itself in `test_auditor`."""
    session = SimpleNamespace(start=lambda: spark, wait_failed=lambda _: None, close=lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_command, "AuditorSession", lambda **_: session)
        return here.run(*words)


def test_the_command_compares_resumes_and_repairs(
    spark: Any, both: tuple[str, str], topic: str, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    config, folder = configuration(tmp_path, both, zookeeper), tmp_path / "result"
    produce(both[0], topic, [record(n) for n in range(3_000)])
    produce(both[1], topic, [record(n) for n in range(1_000)])
    commit_position(both[1], topic, 1_000)
    command = ["audit", str(config), "--topic", topic, "--master", "local[1]"]
    done = run(spark, *command, "--result", str(folder), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["partitions"][0]["verifiedTo"] == 1_000

    produce(both[1], topic, [record(n) for n in range(1_000, 2_000)])
    commit_position(both[1], topic, 2_500)
    done = run(spark, *command, "--result", str(folder), "--resume", "--repair", "--json")
    assert done.exit_code == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["totals"]["missing"] == 500
    assert found["totals"]["compared"] == 2_000
    assert "--repair" in found["nextSteps"][0]
    (repaired,) = found["repaired"]
    assert repaired["copied"] == []
    assert set(repaired["refused"]) == {str(n) for n in range(2_000, 2_500)}
    reasons = {why.partition(", at offset")[0] for why in repaired["refused"].values()}
    assert reasons == {
        "a later record has the same key",
        "it has no key, and records follow it",
    }
    rows = spark.read.parquet(str(folder / "findings.parquet")).collect()
    assert sorted(row.source_offset for row in rows) == list(range(2_000, 2_500))

    commit_position(both[1], topic, 3_000)
    done = run(spark, *command, "--repair", "--json")
    assert len(json.loads(done.stdout)["repaired"][0]["copied"]) == 1_000
    compare_logs(*both, topic).assert_clean()

    done = run(spark, *command, "--result", str(folder), "--resume", "--repair", "--json")
    (repaired,) = json.loads(done.stdout)["repaired"]
    assert (repaired["copied"], len(repaired["refused"])) == ([], 500), "they were copied before"
    compare_logs(*both, topic).assert_clean()
    assert run(spark, *command).exit_code == 0

    delete_records(both[1], topic, {0: 3_000})
    done = run(spark, *command)
    assert done.exit_code == 2
    reason = "not verified: partition 0: the target has no records"
    assert done.stderr.splitlines()[-1] == f"{topic}: {reason}"


@contextmanager
def published(zookeeper: ZooKeeperServer, settings: RouteSettings) -> Iterator[None]:
    """Settings of the route as a leader publishes them, meanwhile."""
    path = Paths(FLEET).route(Route("a", "b"))
    coordination = ZooKeeperCoordination(hosts=zookeeper.hosts, session_timeout_s=10)
    with closing(coordination):
        coordination.connect(10)
        coordination.ensure(path.rpartition("/")[0])
        coordination.transact([Create(path, encode_route(settings))])
        try:
            yield
        finally:
            coordination.transact([Delete(path, -1)])


def test_the_command_judges_by_what_operators_have_changed_since(
    spark: Any, both: tuple[str, str], topic: str, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    """Repeats are within the promise of the file, and not within that of the route."""
    config = configuration(tmp_path, both, zookeeper, delivery="at_least_once")
    produce(both[0], topic, [record(n) for n in range(100)])
    produce(both[1], topic, [record(n) for n in (*range(100), *range(80, 100))])
    commit_position(both[1], topic, 100)
    command = ["audit", str(config), "--topic", topic, "--master", "local[1]", "--json"]
    assert run(spark, *command).exit_code == 0
    with published(zookeeper, RouteSettings(Delivery.EXACTLY_ONCE)):
        done = run(spark, *command)
    assert done.exit_code == 1, done.stderr
    assert json.loads(done.stdout)["totals"]["repeated"] == 20


def test_without_the_settings_of_the_route_nothing_is_judged(tmp_path: Path) -> None:
    away = SimpleNamespace(hosts="127.0.0.1:1")
    config = configuration(tmp_path, ("127.0.0.1:1", "127.0.0.1:2"), away)  # type: ignore[arg-type]
    done = here.run("audit", config, "--topic", "orders")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("the settings of route a.b cannot be read in ZooKeeper: ")


def test_the_command_adds_to_the_offset_map(
    spark: Any, both: tuple[str, str], topic: str, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    """Once; of equal partitions alone, and only where the route has a map."""
    config = configuration(tmp_path, both, zookeeper)
    produce(both[0], topic, [record(n) for n in range(300)])
    delete_records(both[0], topic, {0: 100})
    produce(both[1], topic, [record(n) for n in range(100, 300)])
    commit_position(both[1], topic, 300)
    command = ["audit", str(config), "--topic", topic, "--master", "local[1]", "--offset-map"]
    done = run(spark, *command)
    assert done.exit_code == 2
    assert "--offset-map: the route a.b has no map: set offset_map: true for it" in done.stderr
    with published(zookeeper, RouteSettings(offset_map=True)):
        done = run(spark, *command)
        assert done.exit_code == 0, done.stderr
        assert "partition 0: offset map: source offsets 100 to 300 added, 1 segment" in done.stdout
        name = map_topic(fleet=FLEET, route=Route("a", "b"))
        with closing(KafkaOffsetMaps(ClusterClient(both[1]), name)) as maps:
            maps.update()
            partition = Partition(Route("a", "b"), topic, 0)
            assert list(maps.view(partition).segments()) == [MapSegment(100, 300, 0)]
        done = run(spark, *command, "--json")
        (again,) = json.loads(done.stdout)["offsetMap"]
        assert (again["segments"], again["reason"]) == (0, "the map has all that was compared")
        produce(both[1], topic, [NewRecord(b"foreign")])
        done = run(spark, *command)
        assert "partition 0: offset map: nothing added: records differ: 1" in done.stdout


def test_what_the_target_refuses_is_named_and_the_others_are_copied_again(
    spark: Any,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
    zookeeper: ZooKeeperServer,
) -> None:
    """Tombstones, empty values, and records above the limit of librdkafka, or that of the target."""
    both = source_cluster.bootstrap, target_cluster.bootstrap
    limits = {"max.message.bytes": "6000000"}, {"max.message.bytes": "3000000"}
    for address, limit in zip(both, limits, strict=True):
        create_topic(address, topic, config=KEPT_FOR_EVER | limit)
    originals = [record(n) for n in range(30)]
    originals[20] = replace(originals[20], value=b"2" * 2_000_000, key=b"large")
    originals[22] = replace(originals[22], value=None)
    originals[24] = replace(originals[24], value=b"")
    originals[26] = replace(originals[26], value=b"4" * 4_000_000, key=b"too large")
    produce(both[0], topic, originals, settings={"message.max.bytes": 6_000_000})
    produce(both[1], topic, originals[:20])
    commit_position(both[1], topic, 30)
    config = configuration(tmp_path, both, zookeeper)
    command = ("audit", config, "--topic", topic, "--master", "local[1]")
    done = run(spark, *command, "--repair", "--json")
    assert done.exit_code == 1, done.stderr
    (repaired,) = json.loads(done.stdout)["repaired"]
    assert repaired["copied"] == [n for n in range(20, 30) if n != 26]
    assert list(repaired["refused"]) == ["26"]
    assert repaired["refused"]["26"].startswith("the target refuses it: ")
    done = run(spark, *command)
    assert (done.exit_code, "missing" in done.stdout) == (1, True)
    copies = [copied.value for copied in read_all(both[1], topic)[0]]
    assert copies == [original.value for n, original in enumerate(originals) if n != 26]


def verified_to(folder: Path) -> int:
    """Offset to which a result that is being written is verified."""
    path = folder / "result.json"
    to: int = json.loads(path.read_text())["partitions"][0]["verifiedTo"] if path.exists() else -1
    return to


def passed(process: Process) -> int:
    """Source offsets within the round."""
    folders = Path(tempfile.gettempdir()).glob(f"ureplicator-audit-{process.pid}-*/signals/0")
    return sum(int(file.read_text() or 0) for file in folders)


@pytest.mark.parametrize(("number", "first"), [(signal.SIGINT, 500), (signal.SIGKILL, 20_500)])
def test_an_audit_that_is_ended_in_the_middle_is_resumed(
    spark: Any,
    both: tuple[str, str],
    topic: str,
    tmp_path: Path,
    number: signal.Signals,
    first: int,
    zookeeper: ZooKeeperServer,
) -> None:
    """Each missing record is named once. The result reaches the last place where all was explained after
    SIGINT, the end of the last round after SIGKILL."""
    config = configuration(tmp_path, both, zookeeper)
    folder, log = tmp_path / "result", tmp_path / "log"
    count, lost = 30_000, range(first, 30_000, 1_000)
    produce(both[0], topic, [record(n) for n in range(count)])
    produce(both[1], topic, [record(n) for n in range(count) if n not in lost])
    commit_position(both[1], topic, count)
    words = ("--topic", topic, "--master", "local[1]", "--result", folder)
    slow = ("--rate", "4000")
    process = spawn_ureplicator("audit", config, *words, *slow, log=log)
    try:
        if number == signal.SIGKILL:
            eventually(lambda: verified_to(folder) > 0, 120, "a round has ended")
        else:
            eventually(lambda: passed(process) > 600, 60, "a task has come past a difference")
        began_s = time.monotonic()
        os.kill(process.pid, number)
        code = process.wait(15)
        print(f"ended {time.monotonic() - began_s:.2f} s after {number.name}")
    finally:
        process.kill_tree()
    if number == signal.SIGINT:
        assert (code, process.log_text()) == (2, "interrupted; go on with --resume\n")
    reached = verified_to(folder)
    assert 0 < reached < count if number == signal.SIGKILL else reached == 500
    print(f"{reached} offsets were verified")
    done = run(spark, "audit", config, *words, "--resume", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["state"]) == (1, "different")
    assert [finding["sourceOffset"] for finding in found["findings"]] == list(lost)
    assert found["totals"]["compared"] == count - len(lost)
    assert found["partitions"][0]["verifiedFrom"] == 0


def test_what_cannot_be_compared_is_one_line(
    both: tuple[str, str], topic: str, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    config = configuration(tmp_path, both, zookeeper)
    done = here.run("audit", config, "--topic", "none")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "none at a: there is no such topic\n"


def test_a_jvm_that_is_killed_is_one_line(
    both: tuple[str, str], topic: str, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    config, log = configuration(tmp_path, both, zookeeper), tmp_path / "audit.log"
    for address in both:
        produce(address, topic, [record(n) for n in range(3_000)])
    commit_position(both[1], topic, 3_000)
    slow = ("--master", "local[1]", "--rate", "1000")
    process = spawn_ureplicator("audit", config, "--topic", topic, *slow, log=log)
    try:
        eventually(lambda: pids_of(process, "pyspark.daemon"), 60, "a task runs")
        (jvm,) = pids_of(process, "java")
        os.kill(jvm, signal.SIGKILL)
        assert process.wait(15) == 2
        assert process.log_text() == "Spark failed: the JVM ended with code -9\n"
        process.assert_tree_gone()
    finally:
        process.kill_tree()
