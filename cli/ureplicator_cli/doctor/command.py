"""`ureplicator doctor`: options, and one line for each finding."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ureplicator_cli.doctor.findings import (
    ClusterRole,
    Finding,
    Level,
    cluster_findings,
    host_findings,
    rest_findings,
    size_findings,
    zookeeper_findings,
)
from ureplicator_cli.doctor.host import read_host, read_rest
from ureplicator_cli.doctor.readings import read_clusters, read_zookeeper
from ureplicator_cli.options import config_file_options
from ureplicator_cli.output import fail, print_json
from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.coordination.tls import check_tls
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION, Delivery
from ureplicator_common.printable import printable


@click.command()
@config_file_options
@click.option(
    "--role",
    type=click.Choice(["controller", "worker", "all"]),
    default="all",
    show_default=True,
    help="What is to run on this machine.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 120),
    default=5.0,
    show_default=True,
    help="Seconds for a server to respond.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def doctor(
    config: Path, overrides: tuple[str, ...], role: str, timeout_s: float, as_json: bool
) -> None:
    """Check machine, ZooKeeper and clusters before the first start.

    Each line says ok, warning or failure, why, and what to do. Nothing is changed anywhere. Exit code 1
    if there is a failure.
    """
    try:
        settings = load_settings(config, environ=os.environ, overrides=overrides)
        settings.zookeeper.digest()
        check_tls(settings.zookeeper.tls)
        found = list(examine(settings, role=role, timeout_s=timeout_s))
    except ConfigurationError as error:
        fail(str(error))
    failed = any(finding.level is Level.FAILURE for finding in found)
    if as_json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found)
    raise SystemExit(1 if failed else 0)


def examine(settings: Settings, *, role: str, timeout_s: float) -> Iterator[Finding]:
    """All findings, of this machine first. Raises ConfigurationError."""
    slots = 0 if role == "controller" else settings.worker.slots
    yield from host_findings(read_host(), slots=slots, master=settings.worker.spark_master)
    if role != "worker":
        yield from rest_findings(read_rest(settings.controller))
    yield from zookeeper_findings(read_zookeeper(settings, timeout_s))
    clusters = read_clusters(settings, timeout_s)
    routes = [config.route for config in settings.routes]
    for name, facts in clusters.items():
        use = ClusterRole(
            name,
            is_source=any(route.source == name for route in routes),
            is_target=any(route.target == name for route in routes),
            replicas=max(
                (
                    route_config.replication_factor
                    for route_config in settings.routes
                    if route_config.target == name
                ),
                default=BROKER_DEFAULT_REPLICATION,
            ),
            is_counted=any(
                config.settings.delivery is Delivery.EXACTLY_ONCE
                for config in settings.routes
                if config.target == name
            ),
            is_filled=any(
                config.offsets.same for config in settings.routes if config.target == name
            ),
        )
        yield from cluster_findings(use, facts)
    for route in routes:
        ends = (clusters[route.source], clusters[route.target])
        yield from size_findings(route.source, route.target, ends)


def _print(found: Sequence[Finding]) -> None:
    for finding in found:
        do = f" -> {finding.do}" if finding.do else ""
        click.echo(printable(f"{finding.level:<8} {finding.subject}: {finding.reason}{do}"))
    counts = Counter(finding.level for finding in found)
    click.echo(", ".join(f"{counts[level]} {level}" for level in Level))
