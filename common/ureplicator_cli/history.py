"""`ureplicator history`: the last events of the fleet."""

from __future__ import annotations

import click

from ureplicator_cli.options import client_options, route_options
from ureplicator_cli.output import print_json, print_table
from ureplicator_cli.rest_client import request


@click.command()
@click.option("--topic", default="", help="Only events of this topic.")
@click.option("--worker", default="", help="Only events of this worker.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of events.",
)
@client_options
@route_options
def history(
    topic: str, worker: str, limit: int, url: str, as_json: bool, src: str, dst: str
) -> None:
    """Show the last events, newest first.

    Events are moves of partitions, changed positions, workers that joined or left, new leaders and
    changed switches.
    """
    query = {"topic": topic, "worker": worker, "limit": str(limit)}
    body = request("GET", url, "/history", src=src, dst=dst, query=query)
    if as_json:
        print_json(body)
        return
    heads = ("time", "event", "from", "to", "reason", "duration")
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
