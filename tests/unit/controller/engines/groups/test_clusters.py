"""The engine of a route by its configuration."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from ureplicator_common.config.route import GroupPatterns, GroupSyncSettings, RouteConfig
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.groups.clusters import open_sync
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_reports import MemoryReports

NOWHERE = "127.0.0.1:1"


def test_nothing_is_connected_while_another_controller_leads() -> None:
    config = RouteConfig(
        source="a",
        target="b",
        offset_map=True,
        sync_group_offsets=GroupSyncSettings(
            enabled=True, groups=GroupPatterns(include=("app-.*",)), interval_s=2.0
        ),
    )
    metrics = ControlMetrics(CollectorRegistry())
    sync = open_sync(
        config=config,
        fleet="f",
        source=ClusterClient(NOWHERE),
        target=ClusterClient(NOWHERE),
        seen=lambda: None,
        clock=ManualClock(),
        metrics=metrics,
        reports=MemoryReports(),
    )
    assert sync.run_once() == 2.0
    name = "ureplicator_controller_group_sync_failures_total"
    assert metrics.registry.get_sample_value(name, {"route": "a.b"}) is None
    sync.close()
