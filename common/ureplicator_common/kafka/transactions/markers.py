"""Markers of a transaction, which its coordinator writes after its response to EndTxn.

    PREPARE_COMMIT    in the coordinator's log: the response, a success
          |           markers at the leaders of the partitions: readers of committed records see them
    COMPLETE_COMMIT   the next transaction of the id may have partitions

That takes 1 to 4 ms with brokers that are near. A batch that comes before holds up its partition for longer:
the broker asks the coordinator again after 20 ms (`add.partitions.to.txn.retry.backoff.ms`), and with the
older protocol we do. So a copier with more to send asks each millisecond (DescribeTransactions, KIP-664).
"""

from __future__ import annotations

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

from ureplicator_common.kafka.client import TRANSACTION_COORDINATOR, ClusterClient

LOOK_EVERY_S = 0.001
WORTH_S = 0.02
"""Delay of the broker for which a look is worth it: over a line on which one takes as long, it gains
nothing."""
LONGEST_S = 0.1
"""Markers that take longer wait for a leader; the broker does not try for longer either."""
UNDECIDED = ("PrepareCommit", "PrepareAbort")


def wait_for_markers(client: ClusterClient, transactional_id: str, *, round_trip_s: float) -> None:
    """Return when they are written, or when it is not worth waiting. Raises ClusterUnavailable.

    `round_trip_s`: time that the response to EndTxn took.
    """
    began_s = looked_s = client.now_s()
    while round_trip_s < WORTH_S and looked_s - began_s < LONGEST_S:
        if transaction_state(client, transactional_id) not in UNDECIDED:
            return
        round_trip_s = client.now_s() - looked_s
        client.pause(LOOK_EVERY_S)
        looked_s = client.now_s()


def transaction_state(client: ClusterClient, transactional_id: str) -> str:
    """State in the coordinator's words; "" if it refuses to say. Raises ClusterUnavailable."""
    response = client.call(
        client.coordinator(transactional_id, TRANSACTION_COORDINATOR),
        DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
    )
    (found,) = response.transaction_states
    return "" if found.error_code else str(found.transaction_state)
