"""Positions against a coordinator that follows a script."""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorResponse

from ureplicator_common.config.roles import ControllerSettings
from ureplicator_common.kafka import ClusterUnavailable, Position, positions
from ureplicator_common.kafka.client import (
    GROUP_COORDINATOR,
    Broker,
    ClusterClient,
)
from ureplicator_common.kafka.errors import OF_A_PARTITION, ErrorCode, refusal
from ureplicator_common.kafka.positions import CommitRefused, PositionStore
from ureplicator_common.kafka.publication import publish_positions
from ureplicator_common.kafka.transactions import fencing
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.position_rows import POSITIONS_PER_REQUEST
from ureplicator_common.kafka.transactions.producers import Producer, TransactionProtocol
from ureplicator_common.kafka.wire.sockets import receive_exactly
from ureplicator_testkit.kafka.coordinator import LOST, Coordinator
from ureplicator_worker.copier.holder import DRAIN_S

THERE = Broker(2, "there", 2)
KEY = ("t", 0)
GROUP_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR, INVALID_COMMIT_OFFSET_SIZE = 30, -1, 28


def ready(**scripts: list[Any]) -> tuple[PositionStore, Coordinator]:
    client = Coordinator(**scripts)
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    client.requests.clear()
    return store, client


def test_a_commit_is_one_transaction() -> None:
    store, client = ready()
    store.commit({KEY: Position(5), ("u", 3): Position(6)})
    store.commit({KEY: Position(7)})
    assert client.requests == ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"] * 2


MOVED = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
]


@pytest.mark.parametrize("name", ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_a_coordinator_that_moved_is_looked_up_again(name: str) -> None:
    store, client = ready(**{name: list(MOVED)})
    known = client.looked_up
    store.commit({KEY: Position(5)})
    assert client.requests.count(name) == 1 + len(MOVED)
    assert client.looked_up >= known + len(MOVED)


@pytest.mark.parametrize("name", ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_a_former_transaction_is_waited_out(name: str) -> None:
    """The first request is the commit of the offsets with the implicit protocol (KIP-890)."""
    store, client = ready(**{name: [ErrorCode.CONCURRENT_TRANSACTIONS] * 3})
    store.commit({KEY: Position(5)})
    assert client.requests.count(name) == 4


@pytest.mark.parametrize("name", ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_fenced(name: str, code: int) -> None:
    store, _ = ready(**{name: [code]})
    with pytest.raises(Fenced):
        store.commit({KEY: Position(5)})
    with pytest.raises(AssertionError):
        store.commit({KEY: Position(5)})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("AddOffsetsToTxn", LOST),
        ("AddOffsetsToTxn", 30),
        ("TxnOffsetCommit", LOST),
        ("TxnOffsetCommit", ErrorCode.INVALID_TXN_STATE),
        ("TxnOffsetCommit", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("TxnOffsetCommit", ErrorCode.TRANSACTION_ABORTABLE),
        ("TxnOffsetCommit", ErrorCode.NETWORK_EXCEPTION),
        ("TxnOffsetCommit", GROUP_AUTHORIZATION_FAILED),
        ("TxnOffsetCommit", UNKNOWN_SERVER_ERROR),
        ("TxnOffsetCommit", INVALID_COMMIT_OFFSET_SIZE),
        ("EndTxn", LOST),
        ("EndTxn", ErrorCode.INVALID_TXN_STATE),
        ("EndTxn", ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_after_any_failure_the_store_refuses_until_it_is_initialised(name: str, code: Any) -> None:
    store, client = ready(**{name: [code]})
    with pytest.raises(ClusterUnavailable):
        store.commit({KEY: Position(5)})
    with pytest.raises(AssertionError):
        store.commit({KEY: Position(5)})
    resets = client.resets
    store.initialise()
    assert client.resets == resets + 1
    store.commit({KEY: Position(5)})


def test_a_refused_partition_aborts_the_transaction() -> None:
    store, client = ready(TxnOffsetCommit=[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    with pytest.raises(CommitRefused) as refusal:
        store.commit({KEY: Position(5)})
    assert refusal.value.refused == {KEY: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert client.ends == [False]


@pytest.mark.parametrize("version", [0, 2])
def test_what_is_refused_and_optional_is_left_out(version: int) -> None:
    """The producer goes on: each request of the transaction had its response."""
    client = Coordinator()
    client.transaction_version = version
    client.untaken = {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    both = {KEY: Position(5), ("u", 0): Position(6)}
    assert store.commit(both, optional=[KEY]).keys() == {KEY}
    assert store.commit({KEY: Position(5)}, optional=[KEY]).keys() == {KEY}
    with pytest.raises(CommitRefused):
        store.commit(both, optional=[("u", 0)])
    assert client.ends == [True, False, False], "with nothing taken there is nothing to commit"


def test_read_gives_what_is_stored_and_nothing_unstable() -> None:
    store, client = ready(OffsetFetch=[ErrorCode.UNSTABLE_OFFSET_COMMIT] * 2)
    client.stored[KEY] = Position(5, 2, "m")
    assert store.read({"t": [0, 1]}) == {KEY: Position(5, 2, "m"), ("t", 1): Position(-1)}
    assert client.requests == ["OffsetFetch"] * 3


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_two_that_initialise_one_id_at_once_try_again(code: int) -> None:
    store, client = ready(InitProducerId=[0, code])
    store.fence(["other"])
    assert client.requests == ["InitProducerId"] * 2
    client = Coordinator(InitProducerId=[code])
    with pytest.raises(ClusterUnavailable):
        PositionStore(client, group="g", transactional_id="own").initialise()


def test_publishing_names_what_was_refused() -> None:
    client = Coordinator(OffsetCommit=[ErrorCode.NOT_COORDINATOR])
    assert publish_positions(client, "g", {KEY: Position(5)}) == {"NOT_COORDINATOR"}
    assert publish_positions(client, "g", {KEY: Position(5)}) == set()
    assert client.looked_up == 2


def serve_coordinator(server: socket.socket, found_ports: Sequence[int]) -> None:
    """Name coordinators at these ports, one a request; then the connection ends."""
    connection, _ = server.accept()
    with connection:
        for found_port in found_ports:
            (size,) = struct.unpack(">i", receive_exactly(connection, 4))
            (correlation_id,) = struct.unpack_from(">i", receive_exactly(connection, size), 4)
            found = FindCoordinatorResponse(
                version=3, error_code=0, node_id=1, host="127.0.0.1", port=found_port
            )
            found.with_header(correlation_id=correlation_id, client_id="")
            connection.sendall(found.encode(framed=True, header=True))


@pytest.fixture
def seed() -> Iterator[Broker]:
    """A broker that names coordinators: first one that is not there, then itself."""
    with socket.create_server(("127.0.0.1", 0)) as absent:
        dead_port = absent.getsockname()[1]
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    thread = threading.Thread(target=serve_coordinator, args=(server, [dead_port, port]))
    thread.start()
    yield Broker(-1, "127.0.0.1", port)
    thread.join()
    server.close()


def test_a_coordinator_that_does_not_respond_is_looked_up_again(seed: Broker) -> None:
    """Otherwise a route would keep using the broker of a dead coordinator."""
    client = ClusterClient(str(seed))
    first = client.coordinator("g", GROUP_COORDINATOR)
    assert first.port != seed.port
    with pytest.raises(ClusterUnavailable):
        client.call(first, None, None)
    assert client.coordinator("g", GROUP_COORDINATOR).port == seed.port
    client.close()


def test_many_positions_go_in_portions_but_in_one_transaction() -> None:
    """A coordinator refuses what would not fit into one batch of its log."""
    store, client = ready()
    client.requests.clear()
    many = {("t", number): Position(number) for number in range(2 * POSITIONS_PER_REQUEST + 1)}
    store.commit(many)
    assert client.requests == ["AddOffsetsToTxn", *["TxnOffsetCommit"] * 3, "EndTxn"]
    client.requests.clear()
    assert publish_positions(client, "g", many) == set()
    assert client.requests == ["OffsetCommit"] * 3


@pytest.mark.parametrize("code", sorted(OF_A_PARTITION))
def test_what_is_said_of_a_partition_refuses_its_position(code: int) -> None:
    store, _ = ready(TxnOffsetCommit=[code])
    with pytest.raises(CommitRefused) as refused:
        store.commit({KEY: Position(5)})
    right = "READ on topic t"
    assert refused.value.refused == {KEY: refusal(code, right, "the cluster at nowhere:1")}


def test_a_refusal_is_reported_though_the_abort_fails() -> None:
    """The partition leaves with it; the next initialisation ends the transaction."""
    store, _ = ready(
        TxnOffsetCommit=[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], EndTxn=[ErrorCode.INVALID_TXN_STATE]
    )
    with pytest.raises(CommitRefused):
        store.commit({KEY: Position(5)})
    with pytest.raises(AssertionError):
        store.commit({KEY: Position(5)})


def test_a_portion_that_is_refused_takes_the_whole_commit_along() -> None:
    store, _ = ready(TxnOffsetCommit=[0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    many = {("t", number): Position(number) for number in range(POSITIONS_PER_REQUEST + 1)}
    with pytest.raises(CommitRefused) as refusal:
        store.commit(many)
    assert list(refusal.value.refused) == [("t", POSITIONS_PER_REQUEST)]


@pytest.mark.parametrize("sent", [b"HTTP/1.1 400 Bad Request", b"\0\0\0\0", b"\0\0\0\4\0\0\0\7"])
def test_a_peer_that_is_no_broker_is_unavailable(sent: bytes) -> None:
    """Its first bytes as a length would be gigabytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(sent)

        thread = threading.Thread(target=serve)
        thread.start()
        client = ClusterClient(f"127.0.0.1:{port}")
        with pytest.raises(ClusterUnavailable, match=r"a response of|response 7 to 1"):
            client.view(["t"])
        thread.join()


@pytest.mark.parametrize("step", ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_one_deadline_holds_for_all_steps_of_a_commit(step: str) -> None:
    """A release waits for it; a worker that takes too long counts as one that does not release."""
    store, client = ready(**{step: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000})
    began_s = client.now_s()
    with pytest.raises(ClusterUnavailable, match="COORDINATOR_LOAD_IN_PROGRESS"):
        store.commit({KEY: Position(5)})
    last_pause_s = max(fencing.RETRY_DELAYS_S)
    assert client.now_s() - began_s <= positions.COMMAND_S + last_pause_s


def test_a_broker_that_responds_is_reached_behind_silent_ones() -> None:
    """The sockets are real; the silent ones accept connections, as frozen processes do."""
    with ExitStack() as servers:
        silent = [
            servers.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(2)
        ]
        live = servers.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = live.getsockname()[1]
        thread = threading.Thread(target=serve_coordinator, args=(live, [port]))
        thread.start()
        client = ClusterClient(",".join(f"127.0.0.1:{number}" for number in (*silent, port)))
        with client.within(3.0):  # else: time limit exceeded
            assert client.coordinator("g", GROUP_COORDINATOR).port == port
        thread.join()
        client.close()


def test_a_partition_is_released_before_its_worker_is_evicted() -> None:
    """Requests that may still follow the drain: a commit that runs, an initialisation, a new producer."""
    max_s = DRAIN_S + 3 * positions.COMMAND_S
    assert max_s < ControllerSettings().handover_timeout_s


def test_partitions_are_added_before_their_first_batch() -> None:
    client = Coordinator()
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    assert store.producer == Producer(7, 1, TransactionProtocol.ADDED)
    store.add_partitions([("t", 0), ("t", 1)])
    store.commit({KEY: Position(5)})
    assert client.requests[1:] == [
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ]
    assert store.producer == Producer(7, 1)


def test_with_the_implicit_protocol_each_transaction_has_a_producer_of_its_own() -> None:
    """KIP-890: nothing is added, and the end of a transaction brings the next epoch, or another id."""
    client = Coordinator()
    client.transaction_version = 2
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    assert store.producer == Producer(7, 1, TransactionProtocol.IMPLICIT)
    store.add_partitions([("t", 0)])
    store.commit({KEY: Position(5)})
    assert client.requests[1:] == ["TxnOffsetCommit", "EndTxn"]
    assert store.producer == Producer(9, 2, TransactionProtocol.IMPLICIT)


def test_a_fenced_producer_adds_no_partition() -> None:
    client = Coordinator(AddPartitionsToTxn=[ErrorCode.PRODUCER_FENCED])
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    with pytest.raises(Fenced):
        store.add_partitions([KEY])


def test_a_refused_partition_keeps_no_other_out_of_the_transaction() -> None:
    """The coordinator adds all partitions of a request, or none."""
    client = Coordinator()
    deleted, fine = ("deleted", 0), ("fine", 0)
    tried: list[list[str]] = []
    plain = client._AddPartitionsToTxn

    def add(request: Any, response: Any, code: int) -> Any:
        names = [topic.name for topic in request.v3_and_below_topics]
        tried.append(names)
        reply = plain(request, response, 0)
        for topic in reply.results_by_topic_v3_and_below if deleted[0] in names else ():
            (row,) = topic.results_by_partition
            row.partition_error_code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic.name == deleted[0]
                else ErrorCode.OPERATION_NOT_ATTEMPTED
            )
        return reply

    client._AddPartitionsToTxn = add  # type: ignore[method-assign]
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    assert store.add_partitions([deleted, fine]) == {deleted: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert tried == [["deleted", "fine"], ["fine"]]


@pytest.mark.parametrize(("check_s", "found"), [(1e9, 1), (0.0, 2)])
def test_an_upgrade_is_found_after_a_commit(
    monkeypatch: pytest.MonkeyPatch, check_s: float, found: int
) -> None:
    """The protocol is not read after each commit: that is one request more."""
    monkeypatch.setattr(positions, "PROTOCOL_CHECK_S", check_s)
    client = Coordinator()
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    store.commit({KEY: Position(5)})
    client.transaction_version = 2
    store.commit({KEY: Position(6)})
    assert store.producer.protocol == found


def test_a_commit_succeeds_though_the_protocol_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(positions, "PROTOCOL_CHECK_S", 0.0)
    client = Coordinator(ApiVersions=[0, LOST])
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    store.commit({KEY: Position(5)})
    assert store.producer == Producer(7, 1)


def test_a_cluster_without_transactions_is_refused_with_the_reason() -> None:
    """Positions are committed in transactions with either delivery."""
    client = Coordinator()
    client.api_keys -= {22, 26}
    store = PositionStore(client, group="g", transactional_id="own")
    reason = "no transactions: the brokers do not know InitProducerId, EndTxn"
    with pytest.raises(ClusterUnavailable, match=reason):
        store.initialise()
    assert client.requests == []


def test_a_group_that_the_coordinator_does_not_know_has_no_positions() -> None:
    store, _ = ready(OffsetFetch=[ErrorCode.GROUP_ID_NOT_FOUND])
    assert store.read({"t": [0, 1]}) == {("t", 0): Position(-1), ("t", 1): Position(-1)}
