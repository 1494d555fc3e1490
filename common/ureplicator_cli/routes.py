"""`ureplicator routes`: the routes, and pausing a whole one."""

from __future__ import annotations

import click

from ureplicator_cli.options import ListByDefault, client_options
from ureplicator_cli.output import confirm, print_json, print_table
from ureplicator_cli.rest_client import quoted, request


@click.group(cls=ListByDefault)
def routes() -> None:
    """List, pause and resume routes.

    Without a command, lists the routes.
    """


@routes.command("list")
@client_options
def list_routes(url: str, as_json: bool) -> None:
    """List the routes, with their state."""
    body = request("GET", url, "/routes")
    if as_json:
        print_json(body)
        return
    rows = [
        (name, "paused" if each["paused"] else "active", each["topics"], each["partitions"])
        for name, each in body["routes"].items()
    ]
    print_table("routes", ("route", "state", "topics", "partitions"), rows)


@routes.command("pause")
@click.argument("route")
@client_options
def pause_route(route: str, url: str, as_json: bool) -> None:
    """Stop copying all topics of ROUTE until it is resumed.

    ROUTE is SOURCE.TARGET. Positions are kept; topics that are added meanwhile wait too.
    """
    body = request("POST", url, f"/routes/{quoted(route)}/pause")
    confirm(body, as_json, "{route}: is paused")


@routes.command("resume")
@click.argument("route")
@client_options
def resume_route(route: str, url: str, as_json: bool) -> None:
    """Resume a paused ROUTE at its positions.

    Topics that were paused themselves stay paused.
    """
    body = request("POST", url, f"/routes/{quoted(route)}/resume")
    confirm(body, as_json, "{route}: is active")
