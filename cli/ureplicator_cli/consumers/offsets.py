"""`ureplicator offsets`: the same place at the other end of a route."""

from __future__ import annotations

import click

from ureplicator_cli.consumers.groups import group_path, print_group
from ureplicator_cli.consumers.same_offsets import same
from ureplicator_cli.options import client_options, route_options
from ureplicator_cli.output import end_if_json
from ureplicator_cli.rest_client import request


@click.group()
def offsets() -> None:
    """Translate offsets between source and target, or prove that they are the same."""


offsets.add_command(same)


@offsets.command("translate")
@click.option("--group", default=None, help="All offsets of this consumer group of the source.")
@click.option("--topic", default="", help="A source topic.")
@click.option("--partition", type=click.IntRange(0), default=None, help="Its partition.")
@click.option("--offset", type=click.IntRange(0), default=None, help="An offset of it.")
@click.option(
    "--to",
    type=click.Choice(["target", "source"]),
    default="target",
    show_default=True,
    help="The end that the result is for; the offset is one of the other end.",
)
@client_options
@route_options
def translate(
    group: str | None,
    topic: str,
    partition: int | None,
    offset: int | None,
    to: str,
    url: str,
    as_json: bool,
    src: str,
    dst: str,
) -> None:
    """Translate the offsets of a group, or one offset of a partition.

    Consumers that have read everything before the one have read everything before the other.
    """
    if (group is not None) is bool(topic):
        raise click.UsageError("give either --group, or --topic, --partition and --offset")
    if group is not None:
        body = request("GET", url, group_path(group), src=src, dst=dst)
        end_if_json(as_json, body)
        print_group(body)
        return
    if partition is None or offset is None:
        raise click.UsageError("--topic needs --partition and --offset")
    query = {"topic": topic, "partition": str(partition), "offset": str(offset), "to": to}
    body = request("GET", url, "/offsets/translate", src=src, dst=dst, query=query)
    end_if_json(as_json, body)
    click.echo(
        f"{body['topic']}/{partition} at {body['sourceOffset']} of the source is"
        f" {body['targetTopic']}/{partition} at {body['targetOffset']} of the target"
    )
