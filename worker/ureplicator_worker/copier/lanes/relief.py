"""Relief of the buffers: partitions that stand still must not hold up the others.

A batch holds the whole response that it lies in, so a few that wait would hold all buffers. When a fetch
finds no room, partitions of which the target has taken nothing for a while give back what they can:

    slow    its bytes move, but slowly: its batches are copied out of the buffers, each once
    stuck   nothing moves (its broker is away, or refuses it): what was never sent, behind the first batch,
            is given up as well, and fetched again later

Nothing is done where all partitions stand still: there is none to make room for.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.model import Partition
from ureplicator_worker.copier.raw.partition import SendSide
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.record.partition import LanePartition

STALLED_AFTER_S = 1.0


def relieve(
    partitions: Mapping[Partition, LanePartition], *, source: Source, target: Target, now_s: float
) -> None:
    stalled = [send for send in target.active if now_s - send.moved_at_s > STALLED_AFTER_S]
    if len({send.partition for send in stalled}) == len(partitions):
        return
    for connection in target.connections.open:
        connection.detach()
    for send in stalled:
        send.window.detach()
        raw = partitions[send.partition]
        if raw.fetch.may_rewind and _is_stuck(send, target, now_s):
            place = raw.window.shed()
            if place is not None:
                source.rewind(raw.fetch, *place)


def _is_stuck(send: SendSide, target: Target, now_s: float) -> bool:
    if send.error or send.suspended or send.needs_producer:
        return True
    via = send.via(target.leader(send), now_s)
    connection = target.connections.connection_to(via, now_s)
    return connection is None or connection.silence_s(now_s) > STALLED_AFTER_S
