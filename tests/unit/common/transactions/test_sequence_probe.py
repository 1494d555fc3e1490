"""Trial of a target for exactly once without transactions, at brokers that keep producers and at others."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable, TopicRefused
from ureplicator_common.kafka.client import ClusterView, Leader
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.probe_topic import is_probe_topic, probe_topic
from ureplicator_common.kafka.transactions.sequence_probe import probe_sequences
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.kafka.coordinator import HERE, LOST, Coordinator
from ureplicator_testkit.records.batches import CONTROL, field, marker

TOPIC = probe_topic("f")


class Probed(Coordinator):
    """Keeps producers as a broker does. `late`: batches that are taken before the control record of a fence.
    `forgets`, `gaps`, `unfenced`: what it gets wrong."""

    def __init__(
        self,
        *,
        late: int = 0,
        forgets: bool = False,
        gaps: bool = False,
        unfenced: bool = False,
        **scripts: list[Any],
    ) -> None:
        super().__init__(**scripts)
        self.log = BatchLog()
        self.late, self.forgets, self.gaps, self.unfenced = late, forgets, gaps, unfenced
        self.epoch = -1
        self._markers: list[bytes] = []
        leaders = {(TOPIC, 0): Leader(HERE.node_id, 0)}
        self.view_found = ClusterView("c", {HERE.node_id: HERE}, leaders, {TOPIC: "id"})

    def _InitProducerId(self, request: Any, response: Any, code: int) -> Any:
        self.epoch += 1
        return response(version=4, error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _EndTxn(self, request: Any, response: Any, code: int) -> Any:
        if not self.unfenced:
            self._markers.append(
                marker(base_offset=0, producer_id=7, producer_epoch=self.epoch, commit=False)
            )
        return super()._EndTxn(request, response, code)

    def _Produce(self, request: Any, response: Any, code: int) -> Any:
        reply = super()._Produce(request, response, code)
        if not code:
            ((row,),) = (topic.partition_responses for topic in reply.responses)
            row.error_code, row.base_offset = self._taken(self.produced[-1])
        return reply

    def _taken(self, batch: bytes) -> tuple[int, int]:
        if self._markers and not self.late:
            self.log.put(self._markers.pop())
        elif self._markers:
            self.late -= 1
        sequence = field(batch, "base_sequence")
        if self.forgets or (self.gaps and sequence > 1):
            self.log.forget_producers()
        return self.log.produce(batch)


def probe(client: Probed) -> str:
    return probe_sequences(client, topic=TOPIC, transactional_id="f.a.b.w.0.probe.1", time_ms=5)


@pytest.mark.parametrize("late", [0, 3])
def test_brokers_that_keep_producers(late: int) -> None:
    client = Probed(late=late)
    assert probe(client) == ""
    controls = [bool(field(batch, "attributes") & CONTROL) for batch in client.log.taken]
    assert controls == [False] * (1 + late) + [True]
    assert client.ends == [False]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (
            Probed(forgets=True),
            "a batch that is sent again is not recognised: appended at offset 1",
        ),
        (Probed(gaps=True), "a batch behind a gap is taken: appended at offset 1"),
        (Probed(unfenced=True), "a producer that was fenced goes on"),
    ],
)
def test_what_a_target_lacks_is_said(target: Probed, reason: str) -> None:
    assert probe(target) == reason


def test_a_duplicate_may_be_said_to_be_one() -> None:
    assert probe(Probed(Produce=[0, int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)])) == ""


def test_a_topic_that_is_missing_is_created() -> None:
    client = Probed(Produce=[int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    there, client.view_found = (
        client.view_found,
        ClusterView("c", {1: HERE}, {}, {}, frozenset({TOPIC})),
    )
    create = client._CreateTopics

    def created(request: Any, response: Any, code: int) -> Any:
        client.view_found = there
        return create(request, response, code)

    client._CreateTopics = created  # type: ignore[method-assign]
    assert probe(client) == ""
    assert client.created == [(TOPIC, -1)]


def test_a_right_that_is_missing_says_nothing_of_the_target() -> None:
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicRefused, match=f"lacks WRITE on topic {TOPIC}"):
        probe(Probed(Produce=[denied]))
    with pytest.raises(TopicRefused, match=f"lacks WRITE on topic {TOPIC}"):
        probe(Probed(AddPartitionsToTxn=[denied]))
    with pytest.raises(ClusterUnavailable, match="WRITE on transactional id"):
        probe(Probed(InitProducerId=[int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]))


@pytest.mark.parametrize("step", range(4))
def test_an_error_that_may_pass_says_nothing_of_the_target(step: int) -> None:
    busy = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert probe(Probed(Produce=[0] * step + [busy] * 2)) == ""
    with pytest.raises(ClusterUnavailable, match="NOT_ENOUGH_REPLICAS"):
        probe(Probed(Produce=[0] * min(step, 1) + [busy] * 1_000))
    with pytest.raises(ClusterUnavailable, match="broken"):
        probe(Probed(Produce=[LOST]))


def test_an_error_that_is_not_expected_says_nothing_of_the_target() -> None:
    with pytest.raises(TopicRefused, match="INVALID_TIMESTAMP"):
        probe(Probed(Produce=[int(ErrorCode.INVALID_TIMESTAMP)]))


def test_trials_are_not_copied() -> None:
    assert is_probe_topic(probe_topic("east"))
    assert not is_probe_topic("orders-probe")
