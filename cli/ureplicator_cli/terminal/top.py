"""`ureplicator top`: routes, workers, topics that are behind and mismatches, live."""

from __future__ import annotations

import click

from ureplicator_cli.options import url_option
from ureplicator_cli.terminal.live import INTERVAL_S, watch


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3_600),
    default=INTERVAL_S,
    show_default=True,
    help="Seconds between two pictures.",
)
@click.option(
    "--count",
    type=click.IntRange(0),
    default=0,
    help="End after so many pictures.  [default: at Ctrl-C]",
)
@url_option
def top(interval_s: float, count: int, url: str) -> None:
    """Show the fleet live: routes, workers, lag, mismatches.

    Bytes are means over the last minutes: they fall slowly when copying ends. A pipe gets plain lines.
    While no controller responds, the last picture stays, with its age.
    """
    watch(url, interval_s=interval_s, count=count, whole=True)
