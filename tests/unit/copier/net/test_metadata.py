"""The thread that reads a cluster's metadata: it posts results, and its own crash."""

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import Broker, ClusterView, Leader
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_worker.copier.net import metadata as metadata_module
from ureplicator_worker.copier.net.metadata import (
    CONNECTS_AT_ONCE,
    MIN_REFRESH_INTERVAL_S,
    REFRESH_EVERY_S,
    ClusterMetadata,
    ClusterUnreachable,
    ConnectFailed,
    MetadataCrashed,
    MetadataEvent,
    ViewChanged,
    merged,
    rest_s,
)

E = TypeVar("E")


class MetadataFixture:
    def __init__(self) -> None:
        self.cluster = MemoryCluster(cluster_model("A", {"t": 1, "u": 1}))
        self.events: queue.SimpleQueue[MetadataEvent] = queue.SimpleQueue()
        self.metadata = ClusterMetadata("a", new_client=lambda: self.cluster, post=self.events.put)

    def next(self, kind: type[E]) -> E:
        event = self.events.get(timeout=30)
        assert isinstance(event, kind), event
        return event


@pytest.fixture
def metadata_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataFixture]:
    monkeypatch.setattr(metadata_module, "MIN_REFRESH_INTERVAL_S", 0.0)
    monkeypatch.setattr(metadata_module, "REFRESH_EVERY_S", 3_600.0)
    metadata_fixture = MetadataFixture()
    yield metadata_fixture
    metadata_fixture.metadata.close()
    assert metadata_fixture.cluster.closed


def test_topics_that_are_followed_are_shown(metadata_fixture: MetadataFixture) -> None:
    metadata_fixture.metadata.cover(frozenset({"t"}))
    assert metadata_fixture.next(ViewChanged).view.topic_ids == {"t": "A-t"}
    metadata_fixture.metadata.cover(frozenset({"t", "u"}))
    assert metadata_fixture.next(ViewChanged).view.topic_ids == {"t": "A-t", "u": "A-u"}
    metadata_fixture.metadata.refresh()
    metadata_fixture.next(ViewChanged)


def test_topics_that_are_added_are_read_alone(
    metadata_fixture: MetadataFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view takes their brokers as long with 5,000 topics as with 5,000 added ones."""
    read: list[list[str]] = []
    view = metadata_fixture.cluster.view

    def recorded(topics: Sequence[str]) -> ClusterView:
        read.append(list(topics))
        return view(topics)

    monkeypatch.setattr(metadata_fixture.cluster, "view", recorded)
    metadata = metadata_fixture.metadata
    metadata.cover(frozenset({"t"}))
    first = metadata_fixture.next(ViewChanged)
    metadata.cover(frozenset({"t", "u", "none"}))
    second = metadata_fixture.next(ViewChanged)
    metadata.refresh()
    third = metadata_fixture.next(ViewChanged)
    assert read == [["t"], ["none", "u"], ["none", "t", "u"]]
    assert (set(first.topics), set(second.topics)) == ({"t"}, {"t", "u", "none"})
    assert second == third
    metadata.cover(frozenset({"u"}))
    metadata.cover(frozenset({"u", "t"}))
    again = metadata_fixture.next(ViewChanged)
    assert read[3:] == [["t"]], "it may have been recreated meanwhile"
    assert again.topics == frozenset({"u", "t"})
    assert not again.view.missing


def test_what_an_added_topic_cannot_be_read_for_is_read_with_all(
    metadata_fixture: MetadataFixture,
) -> None:
    metadata_fixture.metadata.cover(frozenset({"t"}))
    metadata_fixture.next(ViewChanged)
    metadata_fixture.cluster.failures = 1
    metadata_fixture.metadata.cover(frozenset({"t", "u"}))
    metadata_fixture.next(ClusterUnreachable)
    assert metadata_fixture.next(ViewChanged).view.topic_ids == {"t": "A-t", "u": "A-u"}


VIEWS = st.fixed_dictionaries(
    {topic: st.sampled_from(["missing", "first", "second"]) for topic in "abcd"}
)


def view_of(states: Mapping[str, str]) -> ViewChanged:
    """Each topic as it is in one of three states."""
    there = {topic: state for topic, state in states.items() if state != "missing"}
    view = ClusterView(
        cluster_id="c",
        brokers={1: Broker(1, "h", 1)},
        leaders={(topic, 0): Leader(1, len(state)) for topic, state in there.items()},
        topic_ids=there,
        missing=frozenset(states) - there.keys(),
    )
    return ViewChanged(view, frozenset(states))


@given(VIEWS, VIEWS, st.frozensets(st.sampled_from("abcd")), st.frozensets(st.sampled_from("abcd")))
def test_a_completed_view_is_the_one_of_all_its_topics(
    old: dict[str, str], new: dict[str, str], added: frozenset[str], kept: frozenset[str]
) -> None:
    before, read = view_of(old), view_of({topic: new[topic] for topic in added})
    states = {topic: old[topic] for topic in kept} | {topic: new[topic] for topic in added}
    assert merged(before, read, kept=kept) == view_of(states)


def test_requests_without_a_pause_put_no_refresh_off(metadata_fixture: MetadataFixture) -> None:
    """A thousand partitions without a leader, each of which wants one ten times a second."""
    metadata = metadata_fixture.metadata
    metadata.close()

    class Endless:
        taken = 0

        def get(self, *, timeout: float) -> Callable[[], None] | None:
            self.taken += 1
            return metadata._hasten_refresh if self.taken < 100 else None

        def put(self, task: object) -> None: ...

    metadata._work = Endless()  # type: ignore[assignment]
    metadata._topics = frozenset({"t"})
    metadata._serve()
    assert metadata_fixture.next(ViewChanged)


def test_an_unreachable_cluster_is_reported(metadata_fixture: MetadataFixture) -> None:
    metadata_fixture.cluster.failures = 1
    metadata_fixture.metadata.cover(frozenset({"t"}))
    assert "does not respond" in metadata_fixture.next(ClusterUnreachable).reason
    metadata_fixture.next(ViewChanged)


def test_an_unreachable_broker_is_reported(metadata_fixture: MetadataFixture) -> None:
    metadata_fixture.metadata.connect(Broker(3, "127.0.0.1", 1))
    assert metadata_fixture.next(ConnectFailed).node_id == 3


def test_positions_do_not_pile_up_while_the_source_is_slow(
    metadata_fixture: MetadataFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, go_on = threading.Semaphore(0), threading.Event()
    published: list[Mapping[tuple[str, int], Position]] = []
    failures: queue.SimpleQueue[str] = queue.SimpleQueue()

    def publish(_client: object, _group: str, positions: Any) -> set[str]:
        published.append(positions)
        requested.release()
        go_on.wait(5.0)
        raise ClusterUnavailable("late")

    monkeypatch.setattr(metadata_module, "publish_positions", publish)
    metadata_fixture.metadata.publish("g", {("t", 0): Position(1)}, failed=failures.put)
    assert requested.acquire(timeout=30)
    for offset in range(2, 50):
        metadata_fixture.metadata.publish("g", {("t", 0): Position(offset)}, failed=failures.put)
    go_on.set()
    assert failures.get(timeout=30) == "late"
    metadata_fixture.metadata.publish("g", {("t", 0): Position(50)}, failed=failures.put)
    failures.get(timeout=30)
    assert published == [{("t", 0): Position(1)}, {("t", 0): Position(50)}]


def test_none_waits_for_another(
    metadata_fixture: MetadataFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader's move is seen, and its broker connected to, while all others are silent."""
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    def publish(_client: object, _group: str, _positions: object) -> set[str]:
        waiting.release()
        go_on.wait(30.0)
        return set()

    def connect(broker: Broker, **_options: object) -> socket.socket:
        if broker.node_id < CONNECTS_AT_ONCE:
            waiting.release()
            go_on.wait(30.0)
        raise ClusterUnavailable("refused")

    monkeypatch.setattr(metadata_module, "publish_positions", publish)
    monkeypatch.setattr(metadata_module, "connect", connect)
    metadata = metadata_fixture.metadata
    metadata.publish("g", {("t", 0): Position(1)}, failed=lambda reason: None)
    for node_id in range(1, CONNECTS_AT_ONCE):
        metadata.connect(Broker(node_id, "silent", 1))
    for _ in range(CONNECTS_AT_ONCE):
        assert waiting.acquire(timeout=30)
    metadata.cover(frozenset({"t"}))
    metadata_fixture.next(ViewChanged)
    metadata.connect(Broker(99, "well", 1))
    assert metadata_fixture.next(ConnectFailed).node_id == 99
    go_on.set()


def test_an_unexpected_error_is_reported(
    metadata_fixture: MetadataFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def view(_topics: object) -> ClusterView:
        raise ZeroDivisionError

    broken: Callable[[Any], ClusterView] = view
    monkeypatch.setattr(metadata_fixture.cluster, "view", broken)
    metadata_fixture.metadata.cover(frozenset({"t"}))
    assert isinstance(metadata_fixture.next(MetadataCrashed).error, ZeroDivisionError)


def test_an_unexpected_error_of_a_connect_is_reported(
    metadata_fixture: MetadataFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(_broker: Broker, **_options: object) -> socket.socket:
        raise ZeroDivisionError

    monkeypatch.setattr(metadata_module, "connect", connect)
    metadata_fixture.metadata.connect(Broker(1, "h", 1))
    assert isinstance(metadata_fixture.next(MetadataCrashed).error, ZeroDivisionError)


def test_refreshes_that_others_want_take_a_tenth_of_a_core_at_most() -> None:
    assert [rest_s(work_s) for work_s in (0.0, 0.005, 0.1, 60.0)] == [
        MIN_REFRESH_INTERVAL_S,
        MIN_REFRESH_INTERVAL_S,
        1.0,
        REFRESH_EVERY_S,
    ]
