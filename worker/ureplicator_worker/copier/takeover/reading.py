"""Reading of many logs at once, each until what is looked for is found. Blocking.

One request goes to each leader, for all of its logs that are not done, without a fetch session. A response
without a batch shows nothing: the control record may be on its way, or the broker reads from tiered storage.
A broker writes the control records of a fence into a thousand logs one after the other, so there are pauses,
which grow, while it has nothing for those that are not done: else it would look at all of them all the time.
A broker that is silent is not asked again: the logs of the others would wait for it each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from kafka.protocol.consumer import FetchResponse

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.client import (
    EARLIEST,
    READ_UNCOMMITTED,
    ClusterClient,
    ClusterView,
)
from ureplicator_common.kafka.errors import ErrorCode, error_name, refusal
from ureplicator_common.kafka.list_offsets import (
    TopicPartition,
    by_leader,
    healthy_first,
    offsets_at,
)
from ureplicator_common.kafka.log_offsets import fetch_request
from ureplicator_common.kafka.positions import COMMAND_S
from ureplicator_worker.batches.header import CorruptBatch

FETCH_BYTES = 1 << 20
RESPONSE_BYTES = 16 << 20
PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1
SILENT_S = 1.0
"""A broker that failed after so long was silent; one that refuses connections fails at once, and others
lead its logs soon."""


class Unreadable(OperatingError):
    """A log could not be read to what was looked for."""

    def __init__(self, reason: str, *, temporary: bool) -> None:
        super().__init__(reason)
        self.temporary = temporary


class Reading(Protocol):
    """`offset`: to be fetched next. `add` raises CorruptBatch and OperatingErrors, `out_of_range` these."""

    offset: int

    @property
    def done(self) -> bool: ...

    def add(self, records: bytes, row: Any) -> None: ...

    def out_of_range(self, log_start: int) -> None: ...


def read_logs(
    client: ClusterClient,
    view: ClusterView,
    readings: Mapping[TopicPartition, Reading],
    *,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, OperatingError]:
    """Read until each is done; the errors of those that are not: they did not move for COMMAND_S, or
    the client's own limit is over (`within`). Raises ClusterUnavailable."""
    errors: dict[TopicPartition, OperatingError] = {}
    reasons: dict[TopicPartition, str] = {}
    due_s = dict.fromkeys(readings, client.deadline_s(COMMAND_S))
    pause_s = PAUSE_S
    while waiting := [
        key for key, reading in readings.items() if key not in errors and not reading.done
    ]:
        before = {key: readings[key].offset for key in waiting}
        out: list[TopicPartition] = []
        silent: dict[TopicPartition, OperatingError] = {}
        for key, row in _rows(client, view, before, isolation, reasons, silent):
            try:
                _take(readings[key], row, key, client.name)
            except OperatingError as error:
                errors[key] = error
            except _OutOfRange:
                out.append(key)
            except _NotNow as error:
                reasons[key] = str(error)
        moved = [key for key in waiting if readings[key].offset != before[key]]
        renewed = waiting if silent else moved
        due_s |= dict.fromkeys(renewed, client.deadline_s(COMMAND_S))
        errors |= silent
        errors |= dict(_go_on_in_range(client, view, {key: readings[key] for key in out}))
        now_s = client.now_s()
        for key in waiting:
            if now_s > due_s[key] and key not in errors and not readings[key].done:
                errors[key] = _late(key, reasons)
        if any(not readings[key].done for key in moved):
            pause_s = PAUSE_S
        elif any(not readings[key].done and key not in errors for key in waiting):
            client.pause(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        if not moved:
            view = client.view(sorted({topic for topic, _ in waiting}))
    return errors


class _NotNow(Exception):
    """Not in this response: the next one may have it."""


class _OutOfRange(Exception):
    """The log has no such offset. The response does not say where it begins: its log start is -1."""


def _late(key: TopicPartition, reasons: Mapping[TopicPartition, str]) -> Unreadable:
    return _unread(key, reasons.get(key, "its end is not there yet"), f" in {COMMAND_S:.0f} s")


def _unread(key: TopicPartition, reason: str, within: str = "") -> Unreadable:
    return Unreadable(f"{key[0]}/{key[1]} not read{within}: {reason}", temporary=True)


def _rows(
    client: ClusterClient,
    view: ClusterView,
    offsets: Mapping[TopicPartition, int],
    isolation: int,
    reasons: dict[TopicPartition, str],
    silent: dict[TopicPartition, OperatingError],
) -> Iterator[tuple[TopicPartition, Any]]:
    """The responses; why others have none, and errors of those whose broker was silent."""
    for broker, keys in healthy_first(client, by_leader(view, offsets)).items():
        request = fetch_request(
            {key: offsets[key] for key in keys},
            max_bytes_each=FETCH_BYTES,
            max_bytes=RESPONSE_BYTES,
            isolation=isolation,
        )
        asked_s = client.now_s()
        try:
            response = client.call(broker, request, FetchResponse)
        except ClusterUnavailable as error:
            reasons |= dict.fromkeys(keys, str(error))
            if client.now_s() - asked_s > SILENT_S:
                silent |= {key: _unread(key, str(error)) for key in keys}
            continue
        for topic in response.responses:
            for row in topic.partitions:
                key = topic.topic, row.partition_index
                if key in offsets:
                    yield key, row


def _take(reading: Reading, row: Any, key: TopicPartition, cluster: str) -> None:
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise _OutOfRange
    if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        reason = refusal(row.error_code, f"READ on topic {key[0]}", cluster)
        raise Unreadable(f"{key[0]}/{key[1]}: {reason}", temporary=True)
    if row.error_code:
        raise _NotNow(error_name(row.error_code))
    try:
        reading.add(bytes(row.records or b""), row)
    except CorruptBatch as error:
        raise Unreadable(f"{key[0]}/{key[1]}: {error}", temporary=True) from error


def _go_on_in_range(
    client: ClusterClient, view: ClusterView, readings: Mapping[TopicPartition, Reading]
) -> Iterator[tuple[TopicPartition, OperatingError]]:
    """Tell each where its log begins; the errors of those that end there."""
    starts = dict.fromkeys(readings, EARLIEST)
    for portion in offsets_at(client, view, starts, isolation=READ_UNCOMMITTED):
        for key, start in portion.items():
            if isinstance(start, PartitionUnavailable):
                continue  # the next response says the same
            try:
                readings[key].out_of_range(start)
            except OperatingError as error:
                yield key, error
