"""First and last offsets of partitions, and offsets of times, for planning ranges.

The last offset is the last stable one: what is behind it, in open transactions, cannot be read yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing

from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.client import EARLIEST, ClusterClient, open_client
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_worker.records.errors import RangeUnavailable
from ureplicator_worker.records.fetch_connection import CLIENT_ID

TIMEOUT_S = 60.0
RETRY_S = 0.2

TopicPartition = tuple[str, int]


def earliest(
    *,
    cluster: Mapping[str, str],
    partitions: Iterable[TopicPartition],
    timeout_s: float = TIMEOUT_S,
) -> dict[TopicPartition, int]:
    """Offset of the first record in each log. Raises RangeUnavailable, ClusterUnavailable."""
    with closing(open_client("", cluster, client_id=CLIENT_ID)) as client:
        return offsets_of(client, dict.fromkeys(partitions, EARLIEST), timeout_s=timeout_s)


def offsets_of(
    client: ClusterClient, times_ms: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
) -> dict[TopicPartition, int]:
    """Offset of the first record not older than the time; behind the last one where all are older.

    Times may be EARLIEST and LATEST. Partitions without a leader, or whose leader moves, are tried again.
    Raises RangeUnavailable, ClusterUnavailable.
    """
    reader = KafkaLogReader(client)
    deadline_s = client.deadline_s(timeout_s)
    found: dict[TopicPartition, int] = {}
    while True:
        missing = {key: times_ms[key] for key in times_ms if key not in found}
        failed: PartitionUnavailable | None = None
        for key, offset in (reader.offsets_at(missing) if missing else {}).items():
            if isinstance(offset, PartitionUnavailable):
                failed = offset
            else:
                found[key] = offset
        if failed is None:
            return {key: found[key] for key in times_ms}
        if client.now_s() >= deadline_s:
            raise RangeUnavailable(str(failed)) from failed
        client.pause(RETRY_S)
