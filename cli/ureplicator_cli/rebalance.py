"""`ureplicator rebalance`, `balance`, `freeze`, `unfreeze`: when partitions may move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.options import client_options
from ureplicator_cli.output import confirm, print_json, print_table
from ureplicator_cli.rest_client import request


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show the moves and their reasons.")
@click.option("--confirm", "confirms", is_flag=True, help="Also if too many workers are lost.")
@click.option(
    "--plan", metavar="ID", default="", help="Apply exactly the plan of a dry run, or none."
)
@client_options
def rebalance(dry_run: bool, confirms: bool, plan: str, url: str, as_json: bool) -> None:
    """Rebalance now, without waiting for delays.

    Partitions of lost workers are reassigned, and new workers receive their share at once.
    """
    query = {
        "dry_run": "true" if dry_run else "",
        "confirm": "true" if confirms else "",
        "plan": plan,
    }
    body = request("POST", url, "/rebalance", query=query)
    if not dry_run:
        requested = "rebalance requested; see how far it is with ureplicator tasks show {request}"
        confirm(body, as_json, requested)
    elif as_json:
        print_json(body)
    else:
        _print_moves(body["moves"])
        if body["moves"]:
            click.echo(f"apply exactly these with ureplicator rebalance --plan {body['planId']}")
        for waiting in body["waiting"]:
            click.echo(f"{waiting['partition']} waits for {', '.join(waiting['for'])}")


def _print_moves(moves: list[Mapping[str, Any]]) -> None:
    rows = [
        (
            move["route"],
            f"{move['topic']}/{move['partition']}",
            move["from"] or "",
            move["to"] or "",
            move["reason"],
        )
        for move in moves
    ]
    print_table("moves", ("route", "partition", "from", "to", "reason"), rows)


@click.group()
def balance() -> None:
    """Turn automatic rebalancing on or off.

    With it, partitions of lost workers are reassigned, and new workers receive their share.
    """


@balance.command("on")
@client_options
def balance_on(url: str, as_json: bool) -> None:
    """Reassign partitions when workers join or are lost."""
    _confirm_balance(request("POST", url, "/admin/enable_autobalancing"), as_json)


@balance.command("off")
@client_options
def balance_off(url: str, as_json: bool) -> None:
    """Keep partitions where they are when workers join or are lost."""
    _confirm_balance(request("POST", url, "/admin/disable_autobalancing"), as_json)


@balance.command("status")
@client_options
def balance_status(url: str, as_json: bool) -> None:
    """Show whether balancing is on and whether the fleet is frozen."""
    body = request("GET", url, "/admin/autobalancing_status")
    body |= request("GET", url, "/admin/freeze")
    _confirm_balance(body, as_json)
    if not as_json and body["frozen"]:
        click.echo("the fleet is frozen: partitions move only when operators request it")


def _confirm_balance(body: Mapping[str, Any], as_json: bool) -> None:
    confirm(body, as_json, f"balancing is {'on' if body['auto_balancing'] else 'off'}")


@click.command()
@client_options
def freeze(url: str, as_json: bool) -> None:
    """Stop all automatic moves of partitions.

    Partitions then move only when operators request it.
    """
    confirm(request("POST", url, "/admin/freeze"), as_json, "the fleet is frozen")


@click.command()
@client_options
def unfreeze(url: str, as_json: bool) -> None:
    """Allow automatic moves again.

    That confirms a mass loss, too: partitions of the workers that are lost move.
    """
    confirm(request("POST", url, "/admin/unfreeze"), as_json, "the fleet is no longer frozen")
