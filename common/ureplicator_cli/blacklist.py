"""`ureplicator blacklist`: partitions and topics that are not copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.output import (
    ListByDefault,
    ask,
    client_options,
    confirm,
    print_json,
    print_table,
    route_options,
)


@click.group(cls=ListByDefault)
def blacklist() -> None:
    """Set topics and partitions aside; WHAT is a topic, or TOPIC/PARTITION."""


@blacklist.command("list")
@client_options
@route_options
def list_blacklist(url: str, as_json: bool, src: str, dst: str) -> None:
    """What is set aside."""
    body = ask("GET", url, "/blacklist", src=src, dst=dst)
    if as_json:
        print_json(body)
        return
    rows = [(each["route"], _name(each)) for each in (*body["topics"], *body["blacklist"])]
    print_table("blacklist", ("route", "not copied"), rows)


@blacklist.command("add")
@click.argument("what")
@client_options
@route_options
def add_to_blacklist(what: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Stop copying WHAT until it is taken back; positions stay."""
    body = ask("POST", url, "/blacklist", src=src, dst=dst, body=_wish(what, "blacklist"))
    confirm(body, as_json, f"{what}: is not copied any more on {{route}}")


@blacklist.command("remove")
@click.argument("what")
@client_options
@route_options
def remove_from_blacklist(what: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Take WHAT back."""
    body = ask("POST", url, "/blacklist", src=src, dst=dst, body=_wish(what, "whitelist"))
    confirm(body, as_json, f"{what}: is off the blacklist of {{route}}")


def _wish(what: str, option: str) -> dict[str, Any]:
    """`orders/3` is a partition: no topic's name has a slash."""
    topic, slash, partition = what.partition("/")
    return {"topic": topic, "opt": option} | ({"partition": partition} if slash else {})


def _name(entry: Mapping[str, Any]) -> str:
    number = entry.get("partition")
    return str(entry["topic"]) if number is None else f"{entry['topic']}/{number}"
