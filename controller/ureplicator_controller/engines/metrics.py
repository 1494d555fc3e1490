"""What the control loop tells Prometheus, at the daemon's own port.

The state of the fleet (partitions, mismatches, lags) is REST's to tell: any controller can. These
are about the loop itself, and about what only the leader sees.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

CYCLE_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ControlMetrics:
    """All of them, registered once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.leading = Gauge(
            "ureplicator_controller_leading", "1 while this controller leads.", registry=registry
        )
        self.epoch = Gauge(
            "ureplicator_controller_epoch",
            "Leader epoch this controller was last elected with.",
            registry=registry,
        )
        self.cycles = Counter(
            "ureplicator_controller_cycles",
            "Cycles of the leader by outcome (quiet, done, conflict, unknown, violation, failed).",
            ["outcome"],
            registry=registry,
        )
        self.cycle_s = Histogram(
            "ureplicator_controller_cycle_seconds",
            "Duration of the leader's cycles, from snapshot to last write.",
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
            "Broken invariants: steps refused, or state found broken. Always a reason to look.",
            registry=registry,
        )
        self.unreadable = Gauge(
            "ureplicator_controller_unreadable_nodes",
            "Nodes that cannot be read; what they are about is left alone.",
            registry=registry,
        )
        self.waiting = Gauge(
            "ureplicator_controller_waiting_partitions",
            "Partitions not given to their owner because another worker still holds them.",
            registry=registry,
        )
        self.evictions = Counter(
            "ureplicator_controller_evictions",
            "Live workers that did not let go of a partition in time.",
            registry=registry,
        )
        self._of_clusters(registry)

    def _of_clusters(self, registry: CollectorRegistry) -> None:
        self.missing_topics = Gauge(
            "ureplicator_controller_missing_topics",
            "Whitelisted topics that the source does not have.",
            ["route"],
            registry=registry,
        )
        self.mismatched_topics = Gauge(
            "ureplicator_controller_mismatched_topics",
            "Whitelisted topics that have another number of partitions at the source.",
            ["route"],
            registry=registry,
        )
        self.mismatched_partitions = Gauge(
            "ureplicator_controller_mismatched_topic_partitions",
            "Partitions by which source and whitelist differ.",
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
            "Topics that should be whitelisted or grown, and cannot be.",
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
            "Target topics that could not be made or grown; tried again, each time later.",
            ["route"],
            registry=registry,
        )
        self.kafka_failures = Counter(
            "ureplicator_controller_kafka_failures",
            "Looks at a Kafka cluster that failed.",
            ["cluster"],
            registry=registry,
        )
