"""Prometheus metrics of the control loop, served at the daemon's own port.

The state of the fleet (partitions, mismatches, lag) is exported by REST, by every controller. These
metrics are about the loop itself, and about what only the leader observes.
"""

from __future__ import annotations

from typing import Annotated, get_type_hints

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

CYCLE_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ControlMetrics:
    """All of them, registered once per process: name after `ureplicator_controller_`, kind, help, labels."""

    leading: Annotated[Gauge, "1 while this controller is the leader."]
    epoch: Annotated[Gauge, "Epoch with which this controller was last elected leader."]
    session_connected: Annotated[
        Gauge, "1 while the ZooKeeper session of the controller is connected."
    ]
    sessions_lost: Annotated[Counter, "ZooKeeper sessions of the controller that have expired."]
    cycles: Annotated[
        Counter,
        "Control cycles by outcome (quiet, done, conflict, unknown, violation, deposed, failed).",
        "outcome",
    ]
    cycle_seconds: Annotated[
        Histogram, "Duration of a control cycle, from the snapshot to the last write."
    ]
    writes: Annotated[Counter, "Nodes written to ZooKeeper by this leader."]
    invariant_violations: Annotated[
        Counter,
        "Invariant violations: steps refused, or state in ZooKeeper that violates one. Expected: 0.",
    ]
    unreadable_nodes: Annotated[
        Gauge,
        "Nodes in ZooKeeper that cannot be decoded; the plan leaves what they concern unchanged.",
    ]
    isolated: Annotated[
        Gauge,
        "Topics and workers that the plan leaves alone, since a step for them cannot be written: "
        "its node is too big, or it would violate an invariant. Expected: 0.",
    ]
    waiting_partitions: Annotated[
        Gauge,
        "Partitions not assigned to their ideal owner because another worker still holds them.",
    ]
    braked: Annotated[
        Gauge,
        "1 while the brake is held: so many workers are lost that nothing moves. Expected: 0.",
    ]
    evictions: Annotated[
        Counter, "Live workers evicted because they did not release a partition in time."
    ]
    moves: Annotated[
        Counter,
        "Changes of a partition's owner by cause (placed, excluded, lost, drained, leaves, "
        "no_capacity, no_progress, balanced).",
        "cause",
    ]
    missing_topics: Annotated[Gauge, "Whitelisted topics that do not exist at the source.", "route"]
    mismatched_topics: Annotated[
        Gauge, "Whitelisted topics whose partition count differs at the source.", "route"
    ]
    mismatched_topic_partitions: Annotated[
        Gauge, "Partitions by which the source and the whitelist differ.", "route"
    ]
    stopped_topics: Annotated[
        Gauge,
        "Topics not copied because the source or target topic was deleted or recreated.",
        "route",
    ]
    refused_topics: Annotated[
        Gauge,
        "Topics that auto-whitelisting or auto-expansion could not whitelist or expand.",
        "route",
    ]
    topic_changes: Annotated[
        Counter,
        "Intents written by the leader (whitelisted, expanded, stopped, resumed, identified).",
        "kind",
    ]
    topic_failures: Annotated[
        Counter,
        "Failed attempts to create or expand a target topic; retried with backoff.",
        "route",
    ]
    kafka_failures: Annotated[Counter, "Failed topic listings of a Kafka cluster.", "cluster"]
    groups: Annotated[
        Gauge,
        "Consumer groups of the source by the state of their sync to the target; 0 while not "
        "leading.",
        "route",
        "state",
    ]
    group_offsets_written: Annotated[
        Counter, "Offsets of consumer groups written to the target.", "route"
    ]
    groups_deleted: Annotated[
        Counter,
        "Consumer groups whose offsets at the target were deleted, as they are gone at the source.",
        "route",
    ]
    group_sync_failures: Annotated[
        Counter, "Rounds of the sync of consumer groups that failed; retried with backoff.", "route"
    ]
    followed_topics: Annotated[
        Gauge,
        "Topics by the state of their syncs (kind: configs, acls, claims); 0 while not leading. "
        "Settings are compared on every route.",
        "route",
        "kind",
        "state",
    ]
    follow_changes: Annotated[
        Counter, "Settings or access rights of target topics that were changed.", "route", "kind"
    ]
    follow_failures: Annotated[
        Counter,
        "Rounds in which settings or access rights could not be compared; retried with backoff.",
        "route",
        "kind",
    ]
    heartbeat_age_seconds: Annotated[
        Gauge,
        "Age of the newest heartbeat at the target; it grows while the target does not respond.",
        "route",
    ]
    heartbeat_failures: Annotated[
        Counter, "Heartbeats that could not be sent to the source or read at the target.", "route"
    ]

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        for name, row in get_type_hints(type(self), include_extras=True).items():
            kind, (help, *labels) = row.__origin__, row.__metadata__
            options = {"buckets": CYCLE_BOUNDS_S} if kind is Histogram else {}
            made = kind(
                f"ureplicator_controller_{name}", help, labels, registry=registry, **options
            )
            setattr(self, name, made)
