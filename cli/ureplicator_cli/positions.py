"""`ureplicator positions`: where copying goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.options import client_options, route_options
from ureplicator_cli.output import end_if_json, print_table
from ureplicator_cli.rest_client import quoted, request

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only show what would be repeated or skipped."
)


@click.group()
def positions() -> None:
    """Show and change the positions of partitions: the next offsets to copy.

    WHAT is a topic (orders) or a partition (orders/3).
    """


@positions.command("show")
@click.argument("what")
@client_options
@route_options
def show_positions(what: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Show position, log and holder of each partition, and the last change."""
    topic, partition = _parts(what)
    query = {"partition": partition}
    body = request("GET", url, _path(topic), src=src, dst=dst, query=query)
    end_if_json(as_json, body)
    heads = ("partition", "position", "log", "lag", "writer", "held by", "change", "reason")
    title = f"{body['topic']} on {body['route']} -> {body['targetTopic']}"
    print_table(title, heads, [_shown(row) for row in body["partitions"]])


@positions.command("set")
@click.argument("what")
@click.argument("to")
@dry_run_option
@client_options
@route_options
def set_positions(
    what: str, to: str, dry_run: bool, url: str, as_json: bool, src: str, dst: str
) -> None:
    """Copy on from TO: earliest, latest, an offset, or a time (2026-01-31T12:00:00Z).

    The partition is taken from its worker for the moment. A position further back repeats records,
    one further ahead skips them.
    """
    _change("POST", what, url, as_json, src, dst, dry_run=dry_run, body=_wanted(to))


@positions.command("seed")
@click.argument("what")
@click.argument("group")
@dry_run_option
@client_options
@route_options
def seed_positions(
    what: str, group: str, dry_run: bool, url: str, as_json: bool, src: str, dst: str
) -> None:
    """Copy on from the offsets of GROUP, a consumer group of the source cluster."""
    _change("POST", what, url, as_json, src, dst, dry_run=dry_run, body={"group": group})


@positions.command("forget")
@click.argument("what")
@dry_run_option
@client_options
@route_options
def forget_positions(what: str, dry_run: bool, url: str, as_json: bool, src: str, dst: str) -> None:
    """Forget the positions of WHAT: copying begins at the route's start.

    Partitions that were added to the topic later begin at their first record.
    """
    _change("DELETE", what, url, as_json, src, dst, dry_run=dry_run, body=None)


def _change(
    method: str,
    what: str,
    url: str,
    as_json: bool,
    src: str,
    dst: str,
    *,
    dry_run: bool,
    body: Mapping[str, Any] | None,
) -> None:
    topic, partition = _parts(what)
    query = {"dry_run": "true" if dry_run else ""}
    if body is None:
        query["partition"] = partition
    elif partition:
        body = {**body, "partition": partition}
    planned = request(method, url, _path(topic), src=src, dst=dst, query=query, body=body)
    end_if_json(as_json, planned)
    title = f"{planned['topic']} on {planned['route']}"
    heads = (
        "partition",
        "from",
        "to",
        "repeated",
        "skipped",
        "lost at source",
        "held by",
        "refused",
    )
    print_table(title, heads, [_planned(row) for row in planned["partitions"]])
    if not dry_run:
        click.echo(
            f"requested ({planned['request']}); see the outcome with ureplicator positions show {what}"
        )


def _wanted(to: str) -> dict[str, Any]:
    if to in ("earliest", "latest"):
        return {"to": to}
    return {"offset": int(to)} if to.lstrip("-").isdecimal() else {"time": to}


def _parts(what: str) -> tuple[str, str]:
    """Topic and partition; no topic name contains a slash."""
    topic, slash, partition = what.partition("/")
    if slash and not partition:
        raise click.BadParameter(f"{what}: a partition is missing behind the slash")
    return topic, partition


def _path(topic: str) -> str:
    return f"/positions/{quoted(topic)}"


def _shown(each: Mapping[str, Any]) -> tuple[str, ...]:
    start, end = each["logStart"], each["logEnd"]
    return (
        str(each["partition"]),
        _text(each["position"], "none"),
        "" if start is None else f"{start} to {end}",
        _text(each["lagRecords"]),
        each["writer"] or "",
        ", ".join(each["heldBy"]),
        _change_text(each["change"]),
        each.get("reason", ""),
    )


def _change_text(change: Mapping[str, Any] | None) -> str:
    if change is None:
        return ""
    position = change["position"]
    what = "forget" if position is None else f"set to {position}"
    return f"{what}: {change['outcome']}"


def _planned(each: Mapping[str, Any]) -> tuple[str, ...]:
    to = f"none, begins at {each['beginsAt']}" if each["to"] is None else str(each["to"])
    return (
        str(each["partition"]),
        _text(each["from"], "none"),
        to,
        *(_text(each[name]) for name in ("repeated", "skipped", "lost")),
        ", ".join(each["heldBy"]),
        each.get("refused", ""),
    )


def _text(number: int | None, missing: str = "") -> str:
    return missing if number is None else str(number)
