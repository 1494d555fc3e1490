"""Prometheus metrics of the control loop, served at the daemon's own port.

The state of the fleet (partitions, mismatches, lag) is exported by REST, by every controller. These
metrics are about the loop itself, and about what only the leader observes.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

CYCLE_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ControlMetrics:
    """All of them, registered once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.leading = Gauge(
            "ureplicator_controller_leading",
            "1 while this controller is the leader.",
            registry=registry,
        )
        self.epoch = Gauge(
            "ureplicator_controller_epoch",
            "Epoch with which this controller was last elected leader.",
            registry=registry,
        )
        self.session_connected = Gauge(
            "ureplicator_controller_session_connected",
            "1 while the ZooKeeper session of the controller is connected.",
            registry=registry,
        )
        self.sessions_lost = Counter(
            "ureplicator_controller_sessions_lost",
            "ZooKeeper sessions of the controller that have expired.",
            registry=registry,
        )
        self.cycles = Counter(
            "ureplicator_controller_cycles",
            "Control cycles by outcome (quiet, done, conflict, unknown, violation, deposed, failed).",
            ["outcome"],
            registry=registry,
        )
        self.cycle_s = Histogram(
            "ureplicator_controller_cycle_seconds",
            "Duration of a control cycle, from the snapshot to the last write.",
            buckets=CYCLE_BOUNDS_S,
            registry=registry,
        )
        self.writes = Counter(
            "ureplicator_controller_writes",
            "Nodes written to ZooKeeper by this leader.",
            registry=registry,
        )
        self.violations = Counter(
            "ureplicator_controller_invariant_violations",
            "Invariant violations: steps refused, or state in ZooKeeper that violates one. Expected: 0.",
            registry=registry,
        )
        self.unreadable = Gauge(
            "ureplicator_controller_unreadable_nodes",
            "Nodes in ZooKeeper that cannot be decoded; the plan leaves what they concern unchanged.",
            registry=registry,
        )
        self.isolated = Gauge(
            "ureplicator_controller_isolated",
            "Topics and workers that the plan leaves alone, since a step for them cannot be written: its node"
            " is too big, or it would violate an invariant. Expected: 0.",
            registry=registry,
        )
        self.waiting = Gauge(
            "ureplicator_controller_waiting_partitions",
            "Partitions not assigned to their ideal owner because another worker still holds them.",
            registry=registry,
        )
        self.braked = Gauge(
            "ureplicator_controller_braked",
            "1 while the brake is held: so many workers are lost that nothing moves. Expected: 0.",
            registry=registry,
        )
        self._of_moves(registry)
        self._of_clusters(registry)
        self._of_groups(registry)
        self._of_syncs(registry)
        self._of_heartbeats(registry)

    def _of_moves(self, registry: CollectorRegistry) -> None:
        self.evictions = Counter(
            "ureplicator_controller_evictions",
            "Live workers evicted because they did not release a partition in time.",
            registry=registry,
        )
        self.moves = Counter(
            "ureplicator_controller_moves",
            "Changes of a partition's owner by cause (placed, excluded, lost, drained, leaves, no_capacity,"
            " no_progress, balanced).",
            ["cause"],
            registry=registry,
        )

    def _of_clusters(self, registry: CollectorRegistry) -> None:
        self.missing_topics = Gauge(
            "ureplicator_controller_missing_topics",
            "Whitelisted topics that do not exist at the source.",
            ["route"],
            registry=registry,
        )
        self.mismatched_topics = Gauge(
            "ureplicator_controller_mismatched_topics",
            "Whitelisted topics whose partition count differs at the source.",
            ["route"],
            registry=registry,
        )
        self.mismatched_partitions = Gauge(
            "ureplicator_controller_mismatched_topic_partitions",
            "Partitions by which the source and the whitelist differ.",
            ["route"],
            registry=registry,
        )
        self.stopped_topics = Gauge(
            "ureplicator_controller_stopped_topics",
            "Topics not copied because the source or target topic was deleted or recreated.",
            ["route"],
            registry=registry,
        )
        self.refused_topics = Gauge(
            "ureplicator_controller_refused_topics",
            "Topics that auto-whitelisting or auto-expansion could not whitelist or expand.",
            ["route"],
            registry=registry,
        )
        self.topic_changes = Counter(
            "ureplicator_controller_topic_changes",
            "Intents written by the leader (whitelisted, expanded, stopped, resumed, identified).",
            ["kind"],
            registry=registry,
        )
        self.topic_failures = Counter(
            "ureplicator_controller_topic_failures",
            "Failed attempts to create or expand a target topic; retried with backoff.",
            ["route"],
            registry=registry,
        )
        self.kafka_failures = Counter(
            "ureplicator_controller_kafka_failures",
            "Failed topic listings of a Kafka cluster.",
            ["cluster"],
            registry=registry,
        )

    def _of_groups(self, registry: CollectorRegistry) -> None:
        self.groups = Gauge(
            "ureplicator_controller_groups",
            "Consumer groups of the source by the state of their sync to the target; 0 while not leading.",
            ["route", "state"],
            registry=registry,
        )
        self.group_offsets = Counter(
            "ureplicator_controller_group_offsets_written",
            "Offsets of consumer groups written to the target.",
            ["route"],
            registry=registry,
        )
        self.group_deletions = Counter(
            "ureplicator_controller_groups_deleted",
            "Consumer groups whose offsets at the target were deleted, as they are gone at the source.",
            ["route"],
            registry=registry,
        )
        self.group_failures = Counter(
            "ureplicator_controller_group_sync_failures",
            "Rounds of the sync of consumer groups that failed; retried with backoff.",
            ["route"],
            registry=registry,
        )

    def _of_syncs(self, registry: CollectorRegistry) -> None:
        self.synced_topics = Gauge(
            "ureplicator_controller_followed_topics",
            "Topics by the state of their syncs (kind: configs, acls, claims); 0"
            " while not leading. Settings are compared on every route.",
            ["route", "kind", "state"],
            registry=registry,
        )
        self.sync_changes = Counter(
            "ureplicator_controller_follow_changes",
            "Settings or access rights of target topics that were changed.",
            ["route", "kind"],
            registry=registry,
        )
        self.sync_failures = Counter(
            "ureplicator_controller_follow_failures",
            "Rounds in which settings or access rights could not be compared; retried with backoff.",
            ["route", "kind"],
            registry=registry,
        )

    def _of_heartbeats(self, registry: CollectorRegistry) -> None:
        self.heartbeat_age = Gauge(
            "ureplicator_controller_heartbeat_age_seconds",
            "Age of the newest heartbeat at the target; it grows while the target does not respond.",
            ["route"],
            registry=registry,
        )
        self.heartbeat_failures = Counter(
            "ureplicator_controller_heartbeat_failures",
            "Heartbeats that could not be sent to the source or read at the target.",
            ["route"],
            registry=registry,
        )
