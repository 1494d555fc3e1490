"""`ureplicator instances`: the workers, and taking one out of service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.options import ShowByDefault, client_options
from ureplicator_cli.output import confirm, end_if_json, print_table, worker_name
from ureplicator_cli.rest_client import quoted, request


@click.group(cls=ShowByDefault)
def instances() -> None:
    """List, drain, restore and forget workers.

    `instances` is `instances show`, and `instances WORKER` is `instances show WORKER`.
    """


@instances.command("show")
@click.argument("worker_id", metavar="[WORKER]", required=False)
@client_options
def show_instances(worker_id: str | None, url: str, as_json: bool) -> None:
    """List the workers, or the partitions of one."""
    path = f"/instances/{quoted(worker_id)}" if worker_id else "/instances"
    body = request("GET", url, path)
    end_if_json(as_json, body)
    if worker_id:
        _print_worker(worker_id, body["workers"][worker_id])
    else:
        _print_workers(body["workers"])


@instances.command("drain")
@click.argument("worker_id", metavar="WORKER")
@client_options
def drain_instance(worker_id: str, url: str, as_json: bool) -> None:
    """Move all partitions off a worker.

    It receives no partitions until `instances restore`.
    """
    body = request("DELETE", url, f"/instances/{quoted(worker_id)}")
    confirm(body, as_json, "{worker}: draining, receives no partitions until it is restored")


@instances.command("restore")
@click.argument("worker_id", metavar="WORKER")
@client_options
def restore_instance(worker_id: str, url: str, as_json: bool) -> None:
    """Let a drained worker receive partitions again."""
    body = request("POST", url, f"/instances/{quoted(worker_id)}")
    confirm(body, as_json, "{worker}: restored, receives partitions again")


@instances.command("forget")
@click.argument("worker_id", metavar="WORKER")
@client_options
def forget_instance(worker_id: str, url: str, as_json: bool) -> None:
    """Remove what the fleet remembers of a worker that is gone.

    It is refused while the worker lives, or may still commit a partition that no other has taken over.
    """
    body = request("POST", url, f"/instances/{quoted(worker_id)}/forget")
    confirm(body, as_json, "{worker}: forgotten")


def _print_worker(name: str, shown: Mapping[str, Any]) -> None:
    heads = ("route", "topic", "partition", "state", "reason")
    rows = [tuple(partition[head] for head in heads) for partition in shown["partitions"]]
    print_table(f"partitions of {worker_name(name, shown)}", heads, rows)


def _print_workers(workers: Mapping[str, Mapping[str, Any]]) -> None:
    heads = ("worker", "address", "slots", "tags", "zone", "ideal", "held", "online", "in error")
    rows = [
        (
            worker_name(name, worker),
            f"{worker['host']}:{worker['port']}" if worker["live"] and worker["host"] else "",
            str(worker["slots"]),
            ", ".join(worker["tags"]),
            worker["zone"],
            str(worker["idealPartitions"]),
            str(worker["heldPartitions"]),
            str(worker["onlinePartitions"]),
            str(worker["errorPartitions"]),
        )
        for name, worker in workers.items()
    ]
    print_table("workers", heads, rows)
