"""The copier alone between brokers that want TLS, and logins by password or certificate.

The driver is a stub (`ureplicator_testkit.copier.driver`), the copier and its sockets are real.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ureplicator_common.model import (
    Delivery,
    OwnerEpoch,
    Partition,
    RouteSettings,
)
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import NewRecord, sample_records
from ureplicator_testkit.secured.brokers import (
    MUTUAL,
    PASSWORD,
    give_certificate,
    reserved,
    set_password,
)
from ureplicator_testkit.secured.certificates import Authority, Certificate, is_shown
from ureplicator_testkit.secured.ends import REAUTHENTICATION_MS, Secured, logins
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import deadline_factor, eventually
from ureplicator_worker.lifeline.messages import Grant
from ureplicator_worker.records.offsets import earliest
from ureplicator_worker.records.range_reader import read_range

PARTITIONS = 2
OTHER = "another-secret"
ROTATIONS = 2
PAUSE_S = 0.1
"""Between batches, and between looks at the target: few against the gaps that are not allowed."""
MAX_GAP_S = 2.0 * deadline_factor()
SHOWN_S = 20.0
BROKER = "broker"
"""Common name in the certificates of brokers: they take no new one under another name while they run."""
LOST_S = 30.0
"""So long a gap is not waited for."""


@pytest.fixture
def lane(secured: Secured, topic: str, fleet: str, tmp_path: Path) -> Iterator[RealLane]:
    lane = RealLane(secured.source, secured.target, topic, fleet, tmp_path)
    lane.make(PARTITIONS)
    yield lane
    lane.close()


def start(
    lane: RealLane,
    properties: Mapping[str, Mapping[str, str]],
    *,
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
) -> StubDriver:
    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, settings=RouteSettings(delivery=delivery))

    return lane.start(PARTITIONS, grant=grant, properties=properties)


@pytest.mark.parametrize(
    ("mechanism", "delivery"),
    [
        ("PLAIN", Delivery.AT_LEAST_ONCE),
        ("PLAIN", Delivery.EXACTLY_ONCE),
        ("certificate", Delivery.AT_LEAST_ONCE),
    ],
)
def test_all_records_arrive_once_over_tls(
    lane: RealLane, secured: Secured, mechanism: str, delivery: Delivery
) -> None:
    lane.fill(sample_records(2_000, partitions=PARTITIONS, seed=1))
    driver = start(lane, logins(secured, mechanism), delivery=delivery)
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_logins_are_repeated_while_records_are_copied(
    lane: RealLane, secured: Secured, mechanism: str
) -> None:
    """No connection is closed for it: a broker would close one that is used behind the life of its login."""
    driver = start(lane, logins(secured, mechanism), delivery=Delivery.EXACTLY_ONCE)
    driver.wait_online()
    with producing(lane):
        time.sleep(1.6 * REAUTHENTICATION_MS / 1_000)
    driver.wait_caught_up()
    driver.stop()
    lane.assert_equal()
    assert "connection dropped" not in log_of(lane)


def test_a_password_that_is_changed_and_mended(
    lane: RealLane, secured: Secured, tmp_path: Path
) -> None:
    """First at the target, then in the file."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    more = {"sasl.password.file": str(file)}
    driver = start(lane, logins(secured, "SCRAM-SHA-256", **more))
    driver.wait_online()
    set_password(secured.target, OTHER)
    try:
        reason = wait_reason(lane, driver, "SASL_AUTHENTICATION_FAILED")
        assert "cluster target at 127.0.0.1:" in reason
        assert "SCRAM-SHA-256 login of 'alice'" in reason
        file.write_text(OTHER)
        set_password(secured.source, OTHER)
        driver.wait_caught_up(60)
    finally:
        for cluster in (secured.source, secured.target):
            set_password(cluster)
    driver.stop()
    lane.assert_equal()
    for secret in (PASSWORD, OTHER):
        assert secret not in log_of(lane) + str(driver.report)


def test_a_certificate_that_is_replaced_while_records_are_copied(
    lane: RealLane, secured: Secured, tmp_path: Path
) -> None:
    """A certificate that the brokers do not know takes its place, then the next one; connections are cut each
    time."""
    mine = Authority(tmp_path).issue("mine")
    mine.replace(secured.client)
    secured = replace(secured, client=mine)
    driver = start(lane, logins(secured, "certificate"), delivery=Delivery.EXACTLY_ONCE)
    driver.wait_online()
    lane.fill(sample_records(500, partitions=PARTITIONS, seed=2))
    stranger = Authority(tmp_path / "strangers", "strangers").issue("stranger")
    mine.replace(stranger)
    secured.proxy.reset()
    reason = wait_reason(lane, driver, "TLS: ")
    assert "cluster source at" in reason
    mine.replace(secured.authority.issue("next"))
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def test_certificates_are_rotated_under_load_and_no_gap_is_long(
    lane: RealLane, secured: Secured, tmp_path: Path
) -> None:
    """Each turn replaces the certificate and cuts the connections, so that the next ones need it."""
    mine = Authority(tmp_path).issue("mine")
    mine.replace(secured.client)
    secured = replace(secured, client=mine)
    driver = start(lane, logins(secured, "certificate"), delivery=Delivery.EXACTLY_ONCE)
    driver.wait_online()
    with producing(lane):
        assert longest_gap_s(lane, 3) < MAX_GAP_S
        for turn in range(ROTATIONS):
            mine.replace(secured.authority.issue(f"turn-{turn}"))
            secured.proxy.reset()
            assert longest_gap_s(lane, 4) < MAX_GAP_S
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def test_certificates_of_brokers_are_rotated_under_load_and_no_gap_is_long(
    lane: RealLane, secured: Secured
) -> None:
    """Each turn gives both brokers another certificate, and cuts the connections to the source."""
    driver = start(lane, logins(secured, "certificate"), delivery=Delivery.EXACTLY_ONCE)
    driver.wait_online()
    with producing(lane):
        for turn in range(ROTATIONS):
            own = secured.authority.issue(f"broker-{turn}", subject=BROKER)
            for cluster in (secured.source, secured.target):
                replace_certificate(cluster, own, secured)
            secured.proxy.reset()
            assert longest_gap_s(lane, 4) < MAX_GAP_S
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def test_a_broker_with_a_certificate_of_strangers_is_refused_until_it_has_its_own(
    lane: RealLane, secured: Secured, tmp_path: Path
) -> None:
    driver = start(lane, logins(secured, "certificate"))
    driver.wait_online()
    lane.fill(sample_records(500, partitions=PARTITIONS, seed=4))
    strangers = Authority(tmp_path / "strangers", "strangers")
    try:
        replace_certificate(secured.source, strangers.issue("stranger", subject=BROKER), secured)
        secured.proxy.reset()
        reason = wait_reason(lane, driver, "TLS: ")
        assert "cluster source at" in reason
    finally:
        own = secured.authority.issue("broker-again", subject=BROKER)
        replace_certificate(secured.source, own, secured)
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def replace_certificate(cluster: KafkaCluster, own: Certificate, secured: Secured) -> None:
    """Returns when the broker shows it to clients that connect."""
    give_certificate(cluster, own, MUTUAL)
    port = cluster.listener_port(MUTUAL)
    eventually(
        lambda: is_shown(own, port, client=secured.client),
        SHOWN_S,
        f"{cluster.name} has the new certificate",
    )


@contextmanager
def producing(lane: RealLane) -> Iterator[None]:
    """Records to the first partition, some times a second."""
    stopping = threading.Event()

    def produce() -> None:
        for turn in itertools.count():
            lane.fill([NewRecord(b"%d-%d" % (turn, number)) for number in range(20)])
            if stopping.wait(PAUSE_S):
                return

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def longest_gap_s(lane: RealLane, watched_s: float) -> float:
    """Longest time in which nothing came to the target, while it is watched."""
    began_s = grown_s = time.monotonic()
    ends, longest_s = lane.target_ends(), 0.0
    while grown_s < began_s + watched_s:
        found, now_s = lane.target_ends(), time.monotonic()
        if found != ends:
            longest_s = max(longest_s, now_s - grown_s)
            ends, grown_s = found, now_s
        elif now_s - grown_s > LOST_S:
            return now_s - grown_s
        time.sleep(PAUSE_S)
    return longest_s


def test_a_right_to_read_that_is_revoked_and_given_back(lane: RealLane, secured: Secured) -> None:
    driver = start(lane, logins(secured, "PLAIN"))
    driver.wait_online()
    with reserved(secured.source, lane.topic):
        assert "source" in wait_reason(lane, driver, "TOPIC_AUTHORIZATION_FAILED")
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def test_a_right_to_write_that_is_revoked_and_given_back(lane: RealLane, secured: Secured) -> None:
    """The partition is given up with the reason; the next copier, when there are rights again, goes on."""
    driver = start(lane, logins(secured, "PLAIN"))
    driver.wait_online()
    with reserved(secured.target, lane.topic):
        lane.fill([NewRecord(b"x", partition=number) for number in range(PARTITIONS)])
        for number in range(PARTITIONS):
            reason = lane.failure(driver, number)
            assert "target" in reason
            assert "TOPIC_AUTHORIZATION_FAILED" in reason
    driver.stop()
    driver = start(lane, logins(secured, "PLAIN"))
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER", "certificate"])
def test_records_are_read_by_queries_and_the_data_source(
    lane: RealLane, secured: Secured, mechanism: str
) -> None:
    lane.fill([NewRecord(b"%d" % number, partition=0) for number in range(500)])
    cluster = logins(secured, mechanism)["source"]
    where = {"cluster": cluster, "topic": lane.topic, "partition": 0}
    assert earliest(cluster=cluster, partitions=[(lane.topic, 0)]) == {(lane.topic, 0): 0}
    batches = list(read_range(**where, start=0, end=500))  # type: ignore[arg-type]
    assert sum(len(batch) for batch in batches) == 500


def wait_reason(lane: RealLane, driver: StubDriver, text: str) -> str:
    """Fill the topic until a partition shows this reason."""
    found: list[str] = []

    def shown() -> bool:
        lane.fill([NewRecord(b"x", partition=number) for number in range(PARTITIONS)])
        found[:] = [row.reason for row in driver.report.values() if text in row.reason]
        return bool(found)

    eventually(shown, 60, f"a partition shows {text!r}", poll_s=0.2)
    return found[0]


def log_of(lane: RealLane) -> str:
    return (lane.folder / "copier-w1-0.log").read_text()
