"""`ureplicator topics move`: a topic goes to another fleet."""

from __future__ import annotations

import click

from ureplicator_cli.fleets.moving import FleetEnd, TopicMove
from ureplicator_cli.hints import in_commands
from ureplicator_cli.options import route_options, url_option
from ureplicator_cli.output import fail
from ureplicator_cli.rest_client import RestClient, RestFailure


@click.command("move")
@click.argument("topic")
@click.option(
    "--to-fleet",
    "to_url",
    required=True,
    metavar="URL",
    help="REST address of any controller of the fleet that is to copy it.",
)
@click.option("--to-src", default="", help="Source cluster of the route there. Default: as --src.")
@click.option("--to-dst", default="", help="Target cluster of the route there. Default: as --dst.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="Seconds for each step that waits for a fleet.",
)
@url_option
@route_options
def move_topic(
    topic: str,
    to_url: str,
    to_src: str,
    to_dst: str,
    timeout_s: float,
    url: str,
    src: str,
    dst: str,
) -> None:
    """Move a topic to another fleet, with its positions.

    The other fleet goes on exactly where this one ended: nothing is lost or copied twice. Both fleets must
    mean the same clusters, whatever they call them; that is checked by the ids of the topics. After an
    interruption or a failure, run it again.
    """
    move = TopicMove(
        topic,
        giver=_end(url, src, dst),
        taker=_end(to_url, to_src or src, to_dst or dst),
        tell=click.echo,
        timeout_s=timeout_s,
    )
    try:
        move.run()
    except RestFailure as error:
        fail(in_commands(str(error)))


def _end(url: str, src: str, dst: str) -> FleetEnd:
    route = {name: text for name, text in (("src", src), ("dst", dst)) if text}
    return FleetEnd(RestClient(url), route)
