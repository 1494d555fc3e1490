"""Contents of the nodes of workers: what they may do, and what they report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from ureplicator_common.model import Content, Partition, SessionId
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentState,
    KnownWorker,
    LiveWorker,
    PartitionLoad,
    PartitionText,
    SessionText,
    SlotShares,
    WorkerUsage,
)
from ureplicator_common.znodes.codec import Codec

MAX_ASSIGNED = 10_000
"""Partitions of one worker. An assignment takes 10 bytes per partition, 16 with four ids to fence, a
current state 12 with errors that differ."""


@dataclass(frozen=True, slots=True)
class _Registration(Content):
    session: SessionText


_assignment = Codec(TypeAdapter(dict[PartitionText, AssignmentEntry]))
_shares = Codec(TypeAdapter(SlotShares))
_current = Codec(TypeAdapter(CurrentState))
_loads = Codec(TypeAdapter(dict[PartitionText, PartitionLoad]))
_usage = Codec(TypeAdapter(WorkerUsage))
_live_worker = Codec(TypeAdapter(LiveWorker))
_known_worker = Codec(TypeAdapter(KnownWorker))
_registration = Codec(TypeAdapter(_Registration))

encode_usage, decode_usage = _usage.encode, _usage.decode
encode_live_worker, decode_live_worker = _live_worker.encode, _live_worker.decode
encode_known_worker, decode_known_worker = _known_worker.encode, _known_worker.decode
decode_loads = _loads.decode
decode_current = _current.decode
decode_shares = _shares.decode


def encode_assignment(assignment: Assignment) -> bytes:
    return _assignment.encode(dict(sorted(assignment.entries.items())))


def decode_assignment(data: bytes) -> Assignment:
    return Assignment(_assignment.decode(data))


def encode_shares(shares: SlotShares) -> bytes:
    return _shares.encode(dict(sorted(shares.items())))


def encode_current(current: CurrentState) -> bytes:
    entries = dict(sorted(current.entries.items()))
    return _current.encode(CurrentState(current.seen_zxid, entries))


def encode_loads(loads: Mapping[Partition, PartitionLoad]) -> bytes:
    """Encode loads, rounded: a worker of many partitions writes this every few seconds."""
    return _loads.encode(dict(sorted(loads.items())))


def encode_registration(session: SessionId) -> bytes:
    return _registration.encode(_Registration(session))


def decode_registration(data: bytes) -> SessionId:
    return _registration.decode(data).session
