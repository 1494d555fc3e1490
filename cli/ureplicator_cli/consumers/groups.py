"""`ureplicator groups`: how far the offsets of consumer groups have followed to the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from ureplicator_cli.options import ListByDefault, client_options, route_options
from ureplicator_cli.output import end_if_json, print_table, sync_text
from ureplicator_cli.rest_client import query_value, request
from ureplicator_common.printable import shown_name

_NO_MAP = "no map"
_MAP_HINT = (
    "set offset_map: true for the route; ureplicator audit --offset-map adds what was copied before"
)
HEADS = (
    "topic",
    "partition",
    "at the source",
    "translated",
    "at the target",
    "read again",
    "skipped",
    "state",
    "reason",
)


@click.group(cls=ListByDefault)
def groups() -> None:
    """Show consumer groups of the source, and their offsets at the target."""


@groups.command("list")
@client_options
@route_options
def list_groups(url: str, as_json: bool, src: str, dst: str) -> None:
    """List the groups with offsets on the routes, and how far each is synced."""
    body = request("GET", url, "/groups", src=src, dst=dst)
    end_if_json(as_json, body)
    rows = [
        (
            shown_name(group["group"]),
            group["route"],
            str(group["partitions"]),
            group["state"],
            group["reason"],
        )
        for group in body["groups"]
    ]
    print_table("consumer groups", ("group", "route", "partitions", "state", "reason"), rows)


@groups.command("show")
@click.argument("group")
@client_options
@route_options
def show_group(group: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Show the offsets of GROUP at both ends, and why one is not synced."""
    body = request("GET", url, group_path(group), src=src, dst=dst)
    end_if_json(as_json, body)
    print_group(body)
    if body["sync"] is None:
        click.echo("sync_group_offsets is not enabled: only a failover writes offsets")
    else:
        click.echo(f"sync of the route: {sync_text(body['sync'])}")


def group_path(group: str) -> str:
    """Path of the call that shows a group, whatever characters its name has."""
    return f"/group?name={query_value(group)}"


def print_group(shown: Mapping[str, Any]) -> None:
    reason = f" ({shown['reason']})" if shown["reason"] else ""
    title = f"{shown_name(shown['group'])} on {shown['route']}: {shown['state']}{reason}"
    print_table(title, HEADS, list(_rows(shown)))
    if any(row["state"] == _NO_MAP for row in shown["partitions"]):
        click.echo(f"{_NO_MAP}: {_MAP_HINT}")


def _rows(shown: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for row in shown["partitions"]:
        topic, target = row["topic"], row["targetTopic"]
        yield (
            topic if topic == target else f"{topic} -> {target}",
            str(row["partition"]),
            _committed(row["sourceOffset"]),
            _known(row["translated"]),
            _committed(row["targetOffset"]),
            _known(row["readAgain"]),
            _known(row["skipped"]),
            row["state"],
            row["reason"],
        )


def _committed(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _known(number: int | None) -> str:
    return "unknown" if number is None else str(number)
