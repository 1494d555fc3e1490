r"""A partition whose records go through a handler or a query: one fetch side, and several send sides.

FetchSide --> RecordWindow --> handler --> SendSide of its own target partition
                                      \--> SendSide of each other target partition that an output names
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ureplicator_common.model import HandlerSettings, Partition, RouteSettings, Transform
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw.partition import (
    FetchSide,
    RawPartition,
    SendSide,
    TopicPartition,
)
from ureplicator_worker.copier.record.window import (
    CHUNK_BYTES,
    QUERY_CHUNK_BYTES,
    RecordWindow,
)
from ureplicator_worker.lifeline.messages import Grant
from ureplicator_worker.wire.topic_keys import TopicKeys


@dataclass(frozen=True, slots=True, eq=False)
class RecordPartition:
    """`send`: to the partition's own target partition. `topic_ids`: of the target topics in use."""

    partition: Partition
    beginning: StartPosition
    fetch: FetchSide
    send: SendSide
    window: RecordWindow
    transform: Transform
    outputs: dict[TopicPartition, SendSide]
    topic_ids: dict[str, str]

    @classmethod
    def begin(
        cls, partition: Partition, grant: Grant, beginning: StartPosition, transform: Transform
    ) -> RecordPartition:
        handler = isinstance(transform, HandlerSettings)
        window = RecordWindow(
            position=beginning.position,
            leader_epoch=beginning.leader_epoch,
            target_end=beginning.target_end,
            chunk_bytes=CHUNK_BYTES if handler else QUERY_CHUNK_BYTES,
        )
        window.own.markers = beginning.markers
        fetch = FetchSide.begin(partition, grant, beginning, window)
        send = SendSide.begin(partition, grant, beginning, window.own)
        send.outputs[send.topic_partition] = send
        return cls(
            partition,
            beginning,
            fetch,
            send,
            window,
            transform,
            outputs=send.outputs,
            topic_ids={send.topic_partition[0]: beginning.target_topic_id},
        )

    @property
    def assignment(self) -> dict[str, Any]:
        """Fields of the message that assigns it to its process."""
        known = {"offset": self.window.position}
        if isinstance(self.transform, HandlerSettings):
            return known
        limits = {"maxRows": self.transform.max_rows, "maxBytes": self.transform.max_bytes}
        return {**known, "query": self.transform.query, **limits}

    @property
    def sends(self) -> list[SendSide]:
        return list(self.outputs.values())

    def send_to(self, target: TopicPartition, topic_id: str) -> SendSide:
        """A side for another target partition, of the topic with this id."""
        topic, number = target
        known_id = self.topic_ids.setdefault(topic, topic_id)
        send = self.outputs[target] = SendSide(
            partition=self.partition,
            topic_partition=target,
            keys=TopicKeys.of(topic, known_id, number),
            abort_on_send_failure=self.send.abort_on_send_failure,
            window=self.window.output(),
            suspended=self.send.suspended,
            outputs=self.outputs,
            transactional=self.send.transactional,
        )
        return send

    def finish(self) -> None:
        self.window.finish()


LanePartition = RawPartition | RecordPartition


def change_settings(raw: LanePartition, settings: RouteSettings) -> None:
    """Change the settings of what is fetched and sent from now on."""
    raw.fetch.verify_crc = settings.verify_crc
    raw.send.window.offsets.mapped = settings.offset_map
    for send in raw.sends:
        send.abort_on_send_failure = settings.abort_on_send_failure


def begin(partition: Partition, grant: Grant, beginning: StartPosition) -> LanePartition:
    """Begin a partition in the raw lane as it is, unless a handler or a query is configured for its
    topic."""
    transform = grant.settings.transform(partition.topic)
    raw: LanePartition
    if transform is None:
        raw = RawPartition.begin(partition, grant, beginning)
    else:
        raw = RecordPartition.begin(partition, grant, beginning, transform)
    raw.send.window.offsets.mapped = grant.settings.offset_map
    return raw
