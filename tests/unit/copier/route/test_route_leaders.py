"""Leaders that move: which broker a partition is fetched from, and sent to."""

import pytest

from ureplicator_common.kafka.client import Leader
from ureplicator_common.model import PartitionState
from ureplicator_testkit.copier.line import MakeLine, assert_same, fill

K0 = ("t", 0)


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("known", [True, False])
def test_a_new_leader_that_is_named_is_followed_without_metadata(
    make: MakeLine, end: str, known: bool
) -> None:
    """KIP-951: the former leader names the new one, and its address."""
    line = make(1, nodes=2)
    kafka, metadata = getattr(line, end), getattr(line, f"{end}_metadata")
    new = kafka.nodes[2] if known else kafka.nodes.pop(2)
    fill(line, K0, 5)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    metadata.silent = True
    kafka.nodes[2] = new
    kafka.move(K0, 2)
    fill(line, K0, 5)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_former_leader_is_not_followed(make: MakeLine, end: str) -> None:
    """A broker that lags behind may name a leader of an older epoch."""
    line = make(1, nodes=2)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    source, target, *_ = line.lane.sockets()
    connections = source if end == "source" else target
    before = connections.leader(*K0)
    assert not connections.learn(K0, Leader(2, before.epoch), None)
    assert connections.leader(*K0) == before
    assert not connections.learn(K0, None, None)
    assert connections.learn(K0, Leader(2, before.epoch + 1), None)


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_leader_whose_address_is_unknown_waits_for_the_metadata(make: MakeLine, end: str) -> None:
    line = make(1)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    source, target, *_ = line.lane.sockets()
    connections = source if end == "source" else target
    metadata = getattr(line, f"{end}_metadata")
    assert not list(metadata.events.take())
    assert not connections.learn(K0, Leader(9, connections.leader(*K0).epoch + 1), None)
    assert list(metadata.events.take())


def test_a_broker_that_still_lives_in_a_former_epoch_is_not_read(make: MakeLine) -> None:
    """Its log may be truncated once it learns of its successor (KIP-320)."""
    line = make(1)
    log = line.source.logs[K0]
    line.source.move(K0, 1)
    fill(line, K0, 2)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    fill(line, K0, 2)
    log.epoch -= 1
    line.run(lambda: "UNKNOWN_LEADER_EPOCH" in line.report(partition).reason)
    line.turns(20)
    assert len(line.target.logs[K0].taken) == 2
    log.epoch += 1
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_a_new_epoch_of_the_same_leader_is_learned(make: MakeLine) -> None:
    line = make(1)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.source.move(K0, 1)
    fill(line, K0, 2)
    line.run(lambda: line.copied(partition))
    assert line.lane.sockets()[0].leader(*K0).epoch == line.source.logs[K0].epoch
    assert line.report(partition).gaps == 0
