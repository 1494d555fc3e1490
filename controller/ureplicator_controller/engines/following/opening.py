"""The threads of a route by its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import TopicAdmin
from ureplicator_controller.engines.following.configs import ConfigWork
from ureplicator_controller.engines.following.follower import Follower, Seen
from ureplicator_controller.engines.metrics import ControlMetrics


def open_followers(
    *,
    config: RouteConfig,
    admins: Callable[[str], TopicAdmin],
    seen: Seen,
    clock: Clock,
    metrics: ControlMetrics,
) -> Iterator[Follower]:
    """Those that the route has enabled. Nothing is connected before this process leads."""
    if config.sync_topic_configs.enabled:
        work = ConfigWork(
            config=config,
            source=lambda: admins(config.source),
            target=lambda: admins(config.target),
        )
        yield Follower(
            route=config.route,
            work=work,
            seen=seen,
            interval_s=config.sync_topic_configs.interval_s,
            clock=clock,
            metrics=metrics,
        )
