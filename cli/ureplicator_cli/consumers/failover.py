"""`ureplicator failover`: consumers go on at the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ureplicator_cli.consumers.groups import print_group
from ureplicator_cli.options import client_options, route_options
from ureplicator_cli.output import fail, print_json
from ureplicator_cli.rest_client import request
from ureplicator_common.printable import shown_name

READY = frozenset({"synced", "ahead on the target", "ahead on the source"})
"""States in which consumers go on where they were; with any other something is read again, or not known."""


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--back", is_flag=True, help="From the target back to the source of the route."
    )(command)
    command = click.option(
        "--topics", default="", help="Source topics, by commas: all groups with offsets on them."
    )(command)
    command = click.option(
        "--group", multiple=True, help="A consumer group, whatever its name; may be repeated."
    )(command)
    return click.option("--groups", default="", help="Consumer groups, by commas.")(command)


@click.group()
def failover() -> None:
    """Write the offsets of consumer groups to the other cluster once, so that consumers go on there.

    Stop the consumers of the groups first.
    """


@failover.command("plan")
@selection_options
@client_options
@route_options
def plan(**options: Any) -> None:
    """Show where consumers would go on, and which offsets they would read again. Writes nothing."""
    _request(**options, dry_run=True)


@failover.command("apply")
@selection_options
@client_options
@route_options
def apply(**options: Any) -> None:
    """Write the offsets, and show where consumers go on.

    Exits with 1 if some group is not ready to go on at the other cluster.
    """
    _request(**options, dry_run=False)


def _request(
    *,
    group: Sequence[str],
    groups: str,
    topics: str,
    back: bool,
    url: str,
    as_json: bool,
    src: str,
    dst: str,
    dry_run: bool,
) -> None:
    chosen = [*group, *_names(groups)]
    if bool(chosen) is bool(topics):
        raise click.UsageError("give either groups (--group, --groups) or --topics")
    body = {"groups": chosen} if chosen else {"topics": _names(topics)}
    query = {"dry_run": "true" if dry_run else "", "back": "true" if back else ""}
    found = request("POST", url, "/failover", src=src, dst=dst, query=query, body=body)
    if as_json:
        print_json(found)
    else:
        _print(found)
    waiting = [
        shown_name(entry["group"]) for entry in found["groups"] if entry["state"] not in READY
    ]
    if waiting and not dry_run:
        fail(f"not ready: {', '.join(waiting)}")


def _print(found: Mapping[str, Any]) -> None:
    if not found["groups"]:
        click.echo("no group has offsets on these topics")
    for group in found["groups"]:
        print_group(group)
    again = [
        partition["readAgain"] for group in found["groups"] for partition in group["partitions"]
    ]
    unknown = again.count(None)
    text = f"{sum(offsets or 0 for offsets in again)} offsets are read again"
    click.echo(text + (f", and unknown numbers of {unknown} partitions" if unknown else ""))
    held = {
        _place(partition): partition["held"] or 0
        for group in found["groups"]
        for partition in group["partitions"]
    }
    if any(held.values()):
        count = sum(offsets > 0 for offsets in held.values())
        click.echo(
            f"not all is copied: open transactions at the source hold {sum(held.values())} offsets of"
            f" {count} partitions back (ureplicator topics show names them)"
        )


def _place(partition: Mapping[str, Any]) -> tuple[str, int]:
    return partition["topic"], partition["partition"]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
