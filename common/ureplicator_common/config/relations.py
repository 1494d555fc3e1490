"""Checks across sections: routes against clusters and each other, delays against timeouts.

A section or a cluster that is invalid in itself is passed as None, and its relations are not checked. The
name of such a cluster is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ureplicator_common.config.clusters import ClusterSettings, ZookeeperSettings
from ureplicator_common.config.roles import ControllerSettings, WorkerSettings
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.section import Fault
from ureplicator_common.config.spark import spark_faults
from ureplicator_common.model import Route
from ureplicator_common.printable import did_you_mean

_CLUSTER_NAME = re.compile(r"[a-z0-9-]+")


def relation_faults(
    *,
    zookeeper: ZookeeperSettings | None,
    clusters: Mapping[str, ClusterSettings | None] | None,
    routes: Sequence[RouteConfig] | None,
    controller: ControllerSettings | None,
    worker: WorkerSettings | None,
) -> Iterator[Fault]:
    """Every fault that no section shows alone."""
    for name in clusters or ():
        if not _CLUSTER_NAME.fullmatch(name):
            yield Fault(f"clusters.{name}", "a cluster name may only contain a-z, 0-9 and -")
    if routes is not None:
        if not routes:
            yield Fault("routes", "at least one is required")
        yield from route_faults(clusters, routes)
    if zookeeper and controller:
        yield from _delay_faults(zookeeper, controller)
    if worker and worker.watchdog_s <= worker.commit_interval_s:
        yield Fault("worker.watchdog_s", "must be above worker.commit_interval_s")
    if worker:
        yield from spark_faults(worker, routes or ())


def _delay_faults(zookeeper: ZookeeperSettings, controller: ControllerSettings) -> Iterator[Fault]:
    delay_s, timeout_s = controller.rebalance_delay_s, zookeeper.session_timeout_s
    if 0 < delay_s < timeout_s:
        yield Fault(
            "controller.rebalance_delay_s",
            f"{delay_s:g} is below zookeeper.session_timeout_s ({timeout_s:g}): a worker that is"
            " only slow would lose its partitions; use 0 to move them at once",
        )


def route_faults(
    clusters: Mapping[str, ClusterSettings | None] | None, routes: Sequence[RouteConfig]
) -> Iterator[Fault]:
    """Faults of routes beside each other and the clusters."""
    yield from _each_route_s_faults(clusters, routes)
    yield from _target_topic_faults(routes)


def _each_route_s_faults(
    clusters: Mapping[str, ClusterSettings | None] | None, routes: Sequence[RouteConfig]
) -> Iterator[Fault]:
    seen: set[Route] = set()
    for number, config in enumerate(routes):
        key = f"routes.{number}"
        if clusters is not None:
            yield from _unknown_clusters(key, config, clusters)
        if config.source == config.target:
            yield Fault(f"{key}.target", "is the same cluster as the source")
        elif clusters and _is_loop(config, clusters):
            yield Fault(
                f"{key}.target",
                "has the same bootstrap.servers as the source and no naming.prefix: a loop",
            )
        elif config.auto_whitelist.enabled and _returns_to_source(config, routes):
            yield Fault(
                f"{key}.auto_whitelist",
                f"topics would be copied back to {config.source} under their own names: set"
                " naming.prefix on one of the routes in the cycle",
            )
        if config.route in seen:
            yield Fault(key, f"duplicate route {config.route}")
        seen.add(config.route)


def _unknown_clusters(
    key: str, config: RouteConfig, clusters: Mapping[str, ClusterSettings | None]
) -> Iterator[Fault]:
    for end in ("source", "target"):
        name = getattr(config, end)
        if name not in clusters:
            known = ", ".join(sorted(clusters)) or "none"
            similar = did_you_mean(name, clusters)
            yield Fault(f"{key}.{end}", f"unknown cluster {name!r}; known are: {known}{similar}")


def _returns_to_source(config: RouteConfig, routes: Sequence[RouteConfig]) -> bool:
    """True if routes without a prefix lead from this route's target back to its source."""
    if config.naming.prefix:
        return False
    reached, added = set[str](), {config.target}
    while added:
        reached |= added
        added = {
            route.target for route in routes if route.source in added and not route.naming.prefix
        } - reached
    return config.source in reached


def _is_loop(config: RouteConfig, clusters: Mapping[str, ClusterSettings | None]) -> bool:
    """True if both ends are the same cluster under two names, and topics keep their names."""
    source, target = clusters.get(config.source), clusters.get(config.target)
    same = source and target and source.bootstrap & target.bootstrap
    return bool(same) and not config.naming.prefix and not config.naming.rename


def _target_topic_faults(routes: Sequence[RouteConfig]) -> Iterator[Fault]:
    """Two source topics, of any routes, that would be mixed into one target topic."""
    taken: dict[tuple[str, str], str] = {}
    for number, config in enumerate(routes):
        for source, target in config.naming.rename.items():
            origin = taken.setdefault((config.target, target), f"{config.route}/{source}")
            if origin != f"{config.route}/{source}":
                yield Fault(
                    f"routes.{number}.naming.rename.{source}",
                    f"{target!r} is already the target of {origin}",
                )
