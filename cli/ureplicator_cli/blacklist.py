"""`ureplicator blacklist`: topics and partitions that are not copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.options import ListByDefault, client_options, route_options
from ureplicator_cli.output import confirm, end_if_json, print_table
from ureplicator_cli.rest_client import request


@click.group(cls=ListByDefault)
def blacklist() -> None:
    """Exclude topics and partitions from copying.

    Without a command, lists the blacklist. WHAT is a topic (orders) or a partition (orders/3).
    """


@blacklist.command("list")
@client_options
@route_options
def list_blacklist(url: str, as_json: bool, src: str, dst: str) -> None:
    """List blacklisted topics and partitions."""
    body = request("GET", url, "/blacklist", src=src, dst=dst)
    end_if_json(as_json, body)
    rows = [(entry["route"], _name(entry)) for entry in (*body["topics"], *body["blacklist"])]
    print_table("blacklist", ("route", "not copied"), rows)


@blacklist.command("add")
@click.argument("what")
@client_options
@route_options
def add_to_blacklist(what: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Stop copying WHAT until it is removed.

    Positions are kept. WHAT is a topic (orders) or a partition (orders/3).
    """
    body = request("POST", url, "/blacklist", src=src, dst=dst, body=_entry(what, "blacklist"))
    confirm(body, as_json, f"{what}: blacklisted on {{route}}, no longer copied")


@blacklist.command("remove")
@click.argument("what")
@client_options
@route_options
def remove_from_blacklist(what: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Copy WHAT again, from its stored position."""
    body = request("POST", url, "/blacklist", src=src, dst=dst, body=_entry(what, "whitelist"))
    confirm(body, as_json, f"{what}: removed from the blacklist of {{route}}")


def _entry(what: str, option: str) -> dict[str, Any]:
    """Request body; `orders/3` is a partition, since no topic name contains a slash."""
    topic, slash, partition = what.partition("/")
    return {"topic": topic, "opt": option} | (
        {"partition": partition} if slash else {"scope": "topic"}
    )


def _name(entry: Mapping[str, Any]) -> str:
    number = entry.get("partition")
    return str(entry["topic"]) if number is None else f"{entry['topic']}/{number}"
