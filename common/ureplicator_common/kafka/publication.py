"""Publication of positions to an ordinary group at the source, for tools that show lag.

Plain commits without a guard: this product never reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import GROUP_COORDINATOR, ClusterClient
from ureplicator_common.kafka.errors import COORDINATOR_MOVED, ErrorCode, refusal
from ureplicator_common.kafka.transactions.position_rows import (
    TargetPartition,
    in_requests,
    rows_by_topic,
)


def publish_positions(
    client: ClusterClient, group: str, positions: Mapping[tuple[str, int], Position]
) -> set[str]:
    """Plain commit to an ordinary group (at the source, for lag tools). Returns names of errors.

    This product never reads them back. Raises ClusterUnavailable.
    """
    refused: set[str] = set()
    for batch in in_requests(positions):
        refused |= _publish_batch(client, group, batch)
    return refused


def _publish_batch(
    client: ClusterClient, group: str, positions: Mapping[TargetPartition, Position]
) -> set[str]:
    rows = OffsetCommitRequest.OffsetCommitRequestTopic
    request = OffsetCommitRequest(
        version=7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            rows(
                name=topic,
                partitions=[
                    rows.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=position.offset,
                        committed_leader_epoch=position.leader_epoch,
                        committed_metadata="",
                    )
                    for number, position in by_number.items()
                ],
            )
            for topic, by_number in rows_by_topic(positions).items()
        ],
    )
    response = client.call(
        client.coordinator(group, GROUP_COORDINATOR), request, OffsetCommitResponse
    )
    codes = {(topic.name, row.error_code) for topic in response.topics for row in topic.partitions}
    if {code for _, code in codes} & COORDINATOR_MOVED:
        client.forget_coordinator(group, GROUP_COORDINATOR)
    of_group = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return {
        refusal(
            code,
            f"READ on group {group}" if code == of_group else f"READ on topic {topic}",
            client.name,
        )
        for topic, code in codes
        if code
    }
