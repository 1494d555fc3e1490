"""`ureplicator status`: the condition of the fleet on one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from ureplicator_cli.audits import summary
from ureplicator_cli.options import client_options
from ureplicator_cli.output import (
    end_if_json,
    owners,
    print_table,
    switch_states,
    sync_text,
    worker_name,
)
from ureplicator_cli.rest_client import request
from ureplicator_cli.terminal.live import INTERVAL_S, watch
from ureplicator_common.model import EventKind


@click.command()
@click.option(
    "--watch",
    "interval_s",
    type=click.FloatRange(0.1, 3_600),
    is_flag=False,
    flag_value=INTERVAL_S,
    metavar="[SECONDS]",
    help=f"Show counts and mismatches again and again.  [default: every {INTERVAL_S:g} s]",
)
@click.option("--count", type=click.IntRange(0), default=0, hidden=True)
@client_options
def status(url: str, as_json: bool, interval_s: float | None, count: int) -> None:
    """Show leader, workers, counts, audits, gaps and mismatches.

    A mismatch is a partition whose external view differs from its ideal state, whose records a transaction
    at the source holds back, or whose target topic's settings refuse, change or delete records.
    """
    if interval_s is not None:
        if as_json:
            raise click.UsageError("--watch and --json exclude each other")
        watch(url, interval_s=interval_s, count=count, whole=False)
        return
    ready = request("GET", url, "/ready")
    switches = request("GET", url, "/admin/autobalancing_status")
    switches |= request("GET", url, "/admin/freeze")
    validation = request("GET", url, "/validation")
    routes = request("GET", url, "/routes")
    audits = request("GET", url, "/audits")
    end_if_json(as_json, ready | switches | routes | validation | audits)
    controllers = request("GET", url, "/controllers")["controllers"]
    shown = request("GET", url, "/instances")["workers"]
    workers = [worker_name(name, shown.get(name)) for name in validation["IdealState"]]
    click.echo(f"leader      {ready['leader'] or 'none'}")
    click.echo(f"controllers {', '.join(_controllers(controllers)) or 'none'}")
    click.echo(f"workers     {', '.join(workers) or 'none'}")
    click.echo(f"switches    {switch_states(**switches)}")
    for condition in validation["conditions"]:
        click.echo(f"condition   {condition}")
    paused = [name for name, route in routes["routes"].items() if route["paused"]]
    if paused:
        click.echo(f"paused      {', '.join(paused)}")
    limits = request("GET", url, "/limits")["limits"]
    if limits:
        click.echo(f"limits      {len(limits)}: ureplicator limits")
    click.echo(f"topics      {validation['numTopics']}")
    click.echo(f"partitions  {_partition_counts(validation)}")
    if audits["audits"]:
        click.echo(f"audits      {summary(audits)}")
    for line in _syncs(routes["routes"]):
        click.echo(line)
    gaps = len(request("GET", url, "/history", query={"kind": EventKind.GAP})["history"])
    if gaps:
        click.echo(f"gaps        {gaps} passed over lately: ureplicator history --kind gap")
    if validation["isolated"]:
        rows = list(validation["isolated"].items())
        print_table("left alone, since a step cannot be written", ("what", "reason"), rows)
    if validation["mismatches"]:
        _print_mismatches(validation["mismatches"])


def _controllers(controllers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, controller in controllers.items():
        address = f"{controller['host']}:{controller['port']}, metrics {controller['metricsPort']}"
        yield f"{name} ({address})" if controller["host"] else name


def _syncs(routes: Mapping[str, Any]) -> Iterator[str]:
    for name, route in routes.items():
        for sync in route["syncs"]:
            yield f"sync        {name} {sync['kind']}: {sync_text(sync)}"


def _partition_counts(validation: Mapping[str, Any]) -> str:
    return (
        f"{validation['numTopicPartitions']}:"
        f" {validation['numOnlineTopicPartitions']} online,"
        f" {validation['numOfflineTopicPartitions']} offline{_excluded(validation)},"
        f" {validation['numErrorTopicPartitions']} in error"
    )


def _excluded(validation: Mapping[str, Any]) -> str:
    """The part of the offline partitions that operators or the leader excluded."""
    counts = [
        f"{validation[f'num{state.title()}TopicPartitions']} {state}"
        for state in ("paused", "reversed", "blacklisted", "stopped")
        if validation[f"num{state.title()}TopicPartitions"]
    ]
    return f" ({', '.join(counts)})" if counts else ""


def _print_mismatches(mismatches: list[Mapping[str, Any]]) -> None:
    rows = [
        (
            mismatch["route"],
            f"{mismatch['topic']}/{mismatch['partition']}",
            owners(mismatch["ideal"]),
            owners(mismatch["actual"]),
            mismatch["reason"],
        )
        for mismatch in mismatches
    ]
    print_table("mismatches", ("route", "partition", "ideal", "actual", "reason"), rows)
