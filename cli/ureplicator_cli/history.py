"""`ureplicator history`: the last events of the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.options import client_options, route_options
from ureplicator_cli.output import end_if_json, print_table
from ureplicator_cli.rest_client import request
from ureplicator_common.model import EventKind


@click.command()
@click.option("--topic", default="", help="Only events of this topic.")
@click.option("--worker", default="", help="Only events of this worker.")
@click.option(
    "--kind",
    type=click.Choice([event.value for event in EventKind]),
    help="Only events of this kind.",
)
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
    topic: str,
    worker: str,
    kind: str | None,
    limit: int,
    url: str,
    as_json: bool,
    src: str,
    dst: str,
) -> None:
    """Show the last events, newest first.

    Events are moves of partitions, changed positions, gaps that were passed over, audits and what they
    found, workers that joined or left, new leaders and changed switches.
    """
    query = {"topic": topic, "worker": worker, "kind": kind or "", "limit": str(limit)}
    body = request("GET", url, "/history", src=src, dst=dst, query=query)
    end_if_json(as_json, body)
    heads = ("time", "event", "from", "to", "reason", "by", "duration")
    rows = [
        (
            event["time"],
            f"{event['topic']}/{event['partition']}" if "topic" in event else event["kind"],
            *_from_and_to(event),
            event["reason"],
            event.get("by", ""),
            "" if event.get("tookMs") is None else f"{event['tookMs'] / 1_000:.1f} s",
        )
        for event in body["history"]
    ]
    print_table("history", heads, rows)


def _from_and_to(event: Mapping[str, Any]) -> tuple[str, str]:
    """Workers of a move, offsets of a gap and of a write that nothing copies."""
    if "firstOffset" in event:
        return f"offset {event['firstOffset']:,}", f"offset {event['nextOffset']:,}"
    return event.get("from") or "", event.get("to") or event.get("worker") or ""
