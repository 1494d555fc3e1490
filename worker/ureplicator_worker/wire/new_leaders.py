"""New leaders that brokers name in responses to Fetch and Produce (KIP-951).

A former leader refuses a partition with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH. Newer brokers add
who leads it now and where that broker is, in tagged fields, so copying goes on there without a Metadata
request in between. Responses:

    of a partition, tag 0 (Produce 10+) or 1 (Fetch 12+, filled from 16 on): leader_id i32, epoch i32, T
    of the response, tag 0 (Produce 10+, Fetch 16+): C[ node_id i32, host Cstr, port i32, rack Cstr, T ]
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ureplicator_common.kafka.client import Broker, Leader
from ureplicator_worker.wire import varint

_LEADER = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_ENDPOINTS_TAG = 0

Bytes = bytearray | memoryview | bytes


def read_leader(buffer: Bytes, at: int) -> Leader | None:
    """The content of a partition's tag; None while the broker does not know the leader."""
    node_id, epoch = _LEADER.unpack_from(buffer, at)
    return Leader(node_id, epoch) if node_id >= 0 else None


def read_endpoints(buffer: Bytes, at: int) -> Mapping[int, Broker]:
    """Brokers in the tags at the end of a response, by node id."""
    tags, _end = varint.read_tags(buffer, at)
    return _endpoints(buffer, tags[_ENDPOINTS_TAG]) if _ENDPOINTS_TAG in tags else {}


def _endpoints(buffer: Bytes, at: int) -> dict[int, Broker]:
    brokers: dict[int, Broker] = {}
    count, at = varint.read(buffer, at)
    for _ in range(count - 1):
        (node_id,) = _INT32.unpack_from(buffer, at)
        host, at = varint.read_text(buffer, at + 4)
        (port,) = _INT32.unpack_from(buffer, at)
        _rack, at = varint.read_text(buffer, at + 4)
        at = varint.skip_tags(buffer, at)
        brokers[node_id] = Broker(node_id, host, port)
    return brokers
