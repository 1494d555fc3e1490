"""Brokers that a client of control requests tries, and for how long: no silent one stops it."""

import socket
import struct
import threading

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.broker_order import FAILED_S, BrokerOrder, broker_order
from ureplicator_common.kafka.client import (
    CONNECT_TIMEOUT_S,
    Broker,
    ClusterClient,
    Security,
    connect,
)
from ureplicator_common.kafka.features import newest_versions
from ureplicator_common.kafka.positions import (
    COMMAND_S,
    KafkaPositionReader,
    PositionStore,
    read_positions,
)
from ureplicator_common.kafka.wire.sockets import receive_exactly
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.kafka.cluster import ClusterModel, Log
from ureplicator_testkit.kafka.control_network import ControlNetwork

KEY = ("t", 0)


def network(*, nodes: int = 3, latency_s: float = 0.0) -> ControlNetwork:
    model = ClusterModel("B", {"t": 6}, log=Log, nodes=nodes)
    return ControlNetwork(model, clock=ManualClock(), latency_s=latency_s)


def store(client: ClusterClient) -> PositionStore:
    return PositionStore(client, group="g", transactional_id="own")


class Took:
    """Virtual seconds since the last call."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._from_s = clock.monotonic_s()

    def __call__(self) -> float:
        before_s, self._from_s = self._from_s, self._clock.monotonic_s()
        return self._from_s - before_s


@pytest.mark.parametrize("fault", ["blackholed", "frozen", "down"])
def test_a_silent_first_seed_costs_one_time_out(fault: str) -> None:
    """Copiers start and commit within 2 s, and are not delayed again."""
    net = network(latency_s=0.01)
    getattr(net, fault).add(1)
    net.coordinators = {"own": 2, "g": 3}
    positions, took = store(net.client()), Took(net.clock)
    positions.initialise()
    positions.commit({KEY: Position(5)})
    assert took() < 2.0
    positions.initialise()
    positions.commit({KEY: Position(6)})
    assert took() < 0.2


def test_all_silent_seeds_but_the_last() -> None:
    net = network(nodes=4)
    net.frozen = {1, 2, 3}
    net.coordinators = {"own": 4, "g": 4}
    positions, took = store(net.client()), Took(net.clock)
    positions.initialise()
    assert took() < COMMAND_S
    positions.commit({KEY: Position(5)})
    assert took() < 0.1


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_last_broker_in_turn_may_take_all_the_time(nodes: int) -> None:
    """Nothing is gained by giving it up early on a slow line."""
    net = network(nodes=nodes)
    net.slow_s[nodes] = 2.5
    net.blackholed = set(range(1, nodes))
    assert net.client(timeout_s=4.0).view(["t"])


def test_the_broker_that_responded_last_is_tried_first() -> None:
    net = network()
    client = net.client()
    net.down.add(1)
    client.view(["t"])
    net.down.clear()
    net.requests.clear()
    client.view(["t"])
    assert net.requests == [(2, "Metadata")]


@pytest.mark.parametrize("fault", ["blackholed", "frozen"])
def test_a_coordinator_that_falls_silent_is_found_again_within_the_command(fault: str) -> None:
    net = network(latency_s=0.01)
    net.coordinators = {"g": 1}
    client = net.client()
    read_positions(client, "g", {"t": [0]})
    getattr(net, fault).add(1)
    took = Took(net.clock)
    net.coordinators = {"g": 2}
    with client.within(COMMAND_S):
        read_positions(client, "g", {"t": [0]})
    assert took() < 3.0


def test_a_dead_coordinator_is_left_soon_after_it_moved() -> None:
    net = network(latency_s=0.01)
    net.coordinators = {"own": 1, "g": 1}
    positions = store(net.client())
    positions.initialise()
    net.frozen.add(1)
    with pytest.raises(ClusterUnavailable):
        positions.commit({KEY: Position(5)})
    net.coordinators = {"own": 2, "g": 3}
    took = Took(net.clock)
    positions.initialise()
    positions.commit({KEY: Position(5)})
    assert took() < 1.0


def test_positions_for_display_wait_for_no_cluster() -> None:
    """REST reports that nothing responds, while the request for the page lasts."""
    net = network()
    net.down = {1, 2, 3}
    took = Took(net.clock)
    with pytest.raises(ClusterUnavailable):
        KafkaPositionReader(net.client()).read("g", {"t": [0]})
    assert took() < 0.5


def test_the_list_of_brokers_is_read_again_after_a_failure() -> None:
    """A client that only commits makes no Metadata request of its own."""
    net = network()
    client = net.client(1, 2)
    client.view(["t"])
    net.down = {1, 2}
    client.view(["t"])
    net.down = {3}
    assert client.coordinator("g", 0)
    assert net.count("Metadata") == 3


def test_seeds_are_tried_when_all_known_addresses_changed() -> None:
    """KIP-899: the name of the seed leads to another broker now."""
    net = network(nodes=2)
    net.names["seed", 9092] = 1
    client = ClusterClient(
        "seed:9092", open_channel=net.open, clock=net.clock, pause=net.clock.advance
    )
    client.view(["t"])
    client.reset()
    moved = {n: Broker(n, f"new{n}", 9092) for n in (1, 2)}
    net.model.nodes = moved
    net.names = {("seed", 9092): 2, ("new1", 9092): 1, ("new2", 9092): 2}
    assert client.view(["t"]).brokers == moved
    net.names = {("new1", 9092): 1}
    assert client.view(["t"])


def test_clients_that_share_an_order_learn_from_each_other() -> None:
    net = network()
    net.blackholed.add(1)
    order = broker_order("B1:9092,B2:9092,B3:9092")
    first, second = net.client(order=order), net.client(order=order)
    first.view(["t"])
    took = Took(net.clock)
    second.view(["t"])
    assert took() == 0.0


def test_failures_are_forgotten_after_a_while() -> None:
    a, b, c = ("a", 1), ("b", 1), ("c", 1)
    order = BrokerOrder([a, b, c])
    order.failed(a, 10.0)
    order.failed(b, 12.0)
    assert order.in_turn(12.0) == [c, a, b]
    assert order.in_turn(10.0 + FAILED_S) == [a, c, b]
    order.responded(b)
    assert order.in_turn(13.0) == [b, c, a]


def test_a_request_without_a_response_has_a_limit_altogether() -> None:
    net = network()
    net.frozen = {1, 2, 3}
    client, took = net.client(timeout_s=4.0), Took(net.clock)
    with pytest.raises(ClusterUnavailable):
        client.view(["t"])
    assert took() <= 4.01


@pytest.mark.parametrize("latency_s", [0.0, 0.1])
def test_many_ids_are_fenced_in_a_few_round_trips(latency_s: float) -> None:
    net = network(latency_s=latency_s)
    ids = [f"f.a.b.w{n}.0" for n in range(300)]
    positions, took = store(net.client()), Took(net.clock)
    positions.fence(ids)
    assert took() <= 20 * latency_s
    assert set(net.ledger.epochs) == set(ids)
    assert net.count("InitProducerId") == len(ids)


def test_an_id_that_cannot_be_fenced_delays_no_other() -> None:
    net = network()
    net.coordinators = {"x": 1, "y": 2}
    net.frozen.add(1)
    positions = store(net.client(2, 3))
    with pytest.raises(ClusterUnavailable, match="x: "):
        positions.fence(["x", "y"])
    assert net.ledger.epochs == {"y": 0}


def test_a_name_that_resolves_to_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried."""
    with socket.create_server(("127.0.0.1", 0)) as absent:
        dead = absent.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as server:
        live = server.getsockname()
        rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", at) for at in (dead, live)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
        connection, _ = connect(Broker(-1, "seed", 9092), security=Security())
        assert connection.getpeername() == live
        assert connection.gettimeout() == CONNECT_TIMEOUT_S
        connection.close()


def test_requests_carry_the_client_id() -> None:
    ours, theirs = socket.socketpair()
    response = ApiVersionsResponse(version=0, error_code=0, api_keys=[])
    response.with_header(correlation_id=1, client_id="")
    theirs.sendall(response.encode(framed=True, header=True))
    assert (
        newest_versions(
            Broker(1, "h", 1), ours, security=Security(), timeout_s=5.0, client_id="mirror-eu"
        )
        == {}
    )
    assert b"\x00\x09mirror-eu" in theirs.recv(1000)
    ours.close()
    theirs.close()


def test_a_view_that_has_not_changed_is_not_decoded_again() -> None:
    """Every few seconds each copier reads the metadata of all its topics."""
    net = network()
    client = net.client()
    first = client.view(["t"])
    assert client.view(["t"]) is first
    net.model.leaders[KEY] = 2 if first.leaders[KEY].node_id != 2 else 3
    moved = client.view(["t"])
    assert moved.leaders[KEY] != first.leaders[KEY]
    assert client.view(["t"]) is moved


def test_a_connection_that_was_closed_while_idle_is_no_failure() -> None:
    """Brokers close connections that are not used for ten minutes; a quiet partition commits more seldom."""
    net = network(nodes=1)
    net.idle_s = 600.0
    client = net.client()
    positions = store(client)
    positions.initialise()
    for offset in range(1, 4):
        positions.commit({KEY: Position(offset)})
        net.clock.advance(700.0)
    assert client.view(["t"])
    assert not client.has_failed(net.model.nodes[1])
    assert net.ledger.read(KEY) == Position(3)


def test_a_socket_that_the_broker_has_closed_is_replaced() -> None:
    ended = threading.Semaphore(0)

    def serve(server: socket.socket) -> None:
        for requests in (2, 1):
            connection, _ = server.accept()
            for number in range(1, requests + 1):
                receive_exactly(connection, *struct.unpack(">i", receive_exactly(connection, 4)))
                reply = ApiVersionsResponse(version=0, error_code=0, api_keys=[])
                reply.with_header(correlation_id=number, client_id="")
                connection.sendall(reply.encode(framed=True, header=True))
            connection.close()
            ended.release()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        broker = Broker(1, *server.getsockname())
        client = ClusterClient(str(broker))
        for number in range(3):
            client.call(broker, ApiVersionsRequest(version=0), ApiVersionsResponse)
            assert number == 0 or ended.acquire(timeout=30)
        thread.join()
        client.close()


def test_a_broker_that_knows_no_cluster_yet_is_passed_over() -> None:
    """A broker that starts would report that no topic exists, and no broker."""
    net = network()
    client = net.client()
    net.starting = {1}
    assert set(client.view(["t"]).brokers) == {1, 2, 3}
    assert client.view(["t"]).topic_ids
    net.starting = {1, 2, 3}
    with pytest.raises(ClusterUnavailable, match="knows no brokers"):
        client.view(["t"])
    net.starting = set()
    assert client.view(["t"]).topic_ids


@pytest.mark.parametrize("key", ["own", "g"])
def test_a_commit_waits_while_a_coordinator_is_elected(key: str) -> None:
    """Nothing was sent to it, so nothing is of unknown outcome."""
    net = network(latency_s=0.01)
    net.coordinators = {"own": 1, "g": 1}
    positions = store(net.client())
    positions.initialise()
    positions.commit({KEY: Position(1)})
    net.coordinators[key] = 2
    net.unled[key] = 5
    positions.commit({KEY: Position(2)})
    assert net.ledger.read(KEY) == Position(2)
    net.coordinators[key] = 3
    net.unled[key] = 1_000
    took = Took(net.clock)
    with pytest.raises(ClusterUnavailable, match="COORDINATOR_NOT_AVAILABLE"):
        positions.commit({KEY: Position(3)})
    assert took() < COMMAND_S + 1.0


def test_positions_for_display_wait_for_no_election() -> None:
    net = network()
    net.unled["g"] = 1_000
    took = Took(net.clock)
    with pytest.raises(ClusterUnavailable, match="COORDINATOR_NOT_AVAILABLE"):
        KafkaPositionReader(net.client()).read("g", {"t": [0]})
    assert took() < 0.5
