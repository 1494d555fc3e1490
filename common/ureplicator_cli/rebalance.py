"""`ureplicator balance`, `freeze`, `unfreeze`, `rebalance`, `history`: how partitions move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.output import (
    ask,
    client_options,
    print_json,
    print_table,
    route_options,
)


@click.group()
def balance() -> None:
    """Whether lost and new workers move partitions by themselves."""


@balance.command("on")
@client_options
def balance_on(url: str, as_json: bool) -> None:
    """Partitions of lost workers are given to others, and new workers get their share."""
    _tell_balance(ask("POST", url, "/admin/enable_autobalancing"), as_json)


@balance.command("off")
@client_options
def balance_off(url: str, as_json: bool) -> None:
    """What has an owner stays with it, whoever joins or is lost."""
    _tell_balance(ask("POST", url, "/admin/disable_autobalancing"), as_json)


@balance.command("status")
@client_options
def balance_status(url: str, as_json: bool) -> None:
    """Whether balancing is on, and whether the fleet is held still."""
    body = ask("GET", url, "/admin/autobalancing_status") | ask("GET", url, "/admin/freeze")
    _tell_balance(body, as_json)
    if not as_json and body["frozen"]:
        click.echo("the fleet is frozen: nothing moves but what operators ask for")


@click.command()
@client_options
def freeze(url: str, as_json: bool) -> None:
    """Hold the fleet still: nothing moves but what operators ask for."""
    body = ask("POST", url, "/admin/freeze")
    _tell(body, as_json, "the fleet is frozen")


@click.command()
@client_options
def unfreeze(url: str, as_json: bool) -> None:
    """Let the fleet move again."""
    body = ask("POST", url, "/admin/unfreeze")
    _tell(body, as_json, "the fleet moves again")


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would move, and why.")
@client_options
def rebalance(dry_run: bool, url: str, as_json: bool) -> None:
    """Rebalance now, without waiting for delays."""
    body = ask("POST", url, "/rebalance", query={"dryRun": "true" if dry_run else ""})
    if as_json:
        print_json(body)
    elif not dry_run:
        click.echo(f"asked for (request {body['request']}); ureplicator history shows the moves")
    else:
        _print_moves("would move", body["moves"])
        for each in body["waiting"]:
            click.echo(f"{each['partition']} waits for {', '.join(each['for'])}")


@click.command()
@click.option("--topic", default="", help="Moves of one topic only.")
@click.option("--worker", default="", help="Events of one worker only.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True)
@client_options
@route_options
def history(
    topic: str, worker: str, limit: int, url: str, as_json: bool, src: str, dst: str
) -> None:
    """What happened last, newest first: moves, workers, leaders, switches."""
    query = {"topic": topic, "worker": worker, "limit": str(limit)}
    body = ask("GET", url, "/history", src=src, dst=dst, query=query)
    if as_json:
        print_json(body)
        return
    heads = ("time", "what", "from", "to", "why", "took")
    rows = [
        (
            each["time"],
            f"{each['topic']}/{each['partition']}" if "topic" in each else each["kind"],
            each.get("from") or "",
            each.get("to") or each.get("worker") or "",
            each["reason"],
            "" if each.get("tookMs") is None else f"{each['tookMs'] / 1_000:.1f} s",
        )
        for each in body["history"]
    ]
    print_table("history", heads, rows)


def _print_moves(title: str, moves: list[Mapping[str, Any]]) -> None:
    rows = [
        (
            f"{each['topic']}/{each['partition']}",
            each["from"] or "",
            each["to"] or "",
            each["reason"],
        )
        for each in moves
    ]
    print_table(title, ("partition", "from", "to", "why"), rows)


def _tell_balance(body: Mapping[str, Any], as_json: bool) -> None:
    _tell(body, as_json, f"balancing is {'on' if body['auto_balancing'] else 'off'}")


def _tell(body: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(body)
    else:
        click.echo(sentence)
