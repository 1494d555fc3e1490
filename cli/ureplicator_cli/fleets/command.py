"""`ureplicator fleets`: several fleets on one page, and what they should not share."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

import click

from ureplicator_cli.fleets.page import FleetsPage
from ureplicator_cli.fleets.reading import Reading, read_fleets
from ureplicator_cli.fleets.rows import HEADS, Survey, row, survey
from ureplicator_cli.options import json_option, login_options
from ureplicator_cli.output import fail, print_json, print_table, warn
from ureplicator_common.clock import SystemClock
from ureplicator_common.errors import PermanentError
from ureplicator_common.printable import printable


@click.command()
@click.argument("urls", nargs=-1, required=True, envvar="UREPLICATOR_FLEETS", metavar="URL...")
@click.option(
    "--serve",
    "port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Serve a read-only page on this port of this machine, instead of printing once (0: any).",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.IntRange(1, 3_600),
    default=10,
    show_default=True,
    help="Seconds between two looks of the page.",
)
@json_option
@login_options
def fleets(urls: tuple[str, ...], port: int | None, interval_s: int, as_json: bool) -> None:
    """Show several fleets, and topics that two of them write.

    URL is the REST address of any controller of each fleet; UREPLICATOR_FLEETS may have them instead. Nothing
    is changed. Topics are compared by the ids that Kafka gives them, so the fleets may name clusters as they
    like.

    Exit code 1: a fleet does not respond, several fleets write to one topic, or copies go in a circle.
    """
    if port is not None:
        _serve(urls, port, interval_s)
        return
    readings = read_fleets(urls)
    _refuse_same(readings)
    found = survey(readings)
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)
    if found.findings:
        raise SystemExit(1)


def _serve(urls: Sequence[str], port: int, interval_s: int) -> None:
    try:
        page = FleetsPage(
            lambda: survey(read_fleets(urls)),
            port=port,
            interval_s=interval_s,
            clock=SystemClock(),
        )
    except PermanentError as error:
        fail(str(error))
    with closing(page):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: page.stop())
        click.echo(page.url)
        page.run()


def _refuse_same(readings: Sequence[Reading]) -> None:
    """Two addresses of one fleet would share all topics."""
    names = Counter(reading.name for reading in readings)
    for name, number in names.items():
        if number > 1:
            urls = ", ".join(reading.url for reading in readings if reading.name == name)
            fail(f"{urls} are of the same fleet, {name}: give one address of each fleet")


def _print(found: Survey) -> None:
    print_table("Fleets", HEADS, [row(reading) for reading in found.readings])
    for condition in found.conditions:
        click.echo(printable(condition))
    for line in found.findings:
        warn(line)
