"""`ureplicator fleets`: several fleets on one page, and what they should not share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from ureplicator_cli.fleets.overlaps import Copy, copies, loops, shared_targets
from ureplicator_cli.fleets.reading import Reading, read_fleets
from ureplicator_cli.options import json_option, login_options
from ureplicator_cli.output import fail, print_json, print_table, warn
from ureplicator_common.printable import printable

_HEADS = ("fleet", "leader", "workers", "topics", "online", "offline", "error", "mismatches")
_COUNTS = (
    "numTopics",
    "numOnlineTopicPartitions",
    "numOfflineTopicPartitions",
    "numErrorTopicPartitions",
)


@click.command()
@click.argument("urls", nargs=-1, required=True, envvar="UREPLICATOR_FLEETS", metavar="URL...")
@json_option
@login_options
def fleets(urls: tuple[str, ...], as_json: bool) -> None:
    """Show several fleets, and topics that two of them write.

    URL is the REST address of any controller of each fleet; UREPLICATOR_FLEETS may have them instead. Nothing
    is changed. Topics are compared by the ids that Kafka gives them, so the fleets may name clusters as they
    like.

    Exit code 1: a fleet does not respond, several fleets write to one topic, or copies go in a circle.
    """
    readings = read_fleets(urls)
    _refuse_same(readings)
    found = [
        copy for each in readings if each.responses for copy in copies(each.responses["/export"])
    ]
    shared, circles = shared_targets(found), loops(found)
    if as_json:
        print_json(_as_json(readings, shared, circles))
    else:
        _print(readings, shared, circles)
    if shared or circles or any(each.failure for each in readings):
        raise SystemExit(1)


def _refuse_same(readings: Sequence[Reading]) -> None:
    """Two addresses of one fleet would share all topics."""
    names = Counter(each.name for each in readings)
    for name, number in names.items():
        if number > 1:
            urls = ", ".join(each.url for each in readings if each.name == name)
            fail(f"{urls} are of the same fleet, {name}: give one address of each fleet")


def _print(
    readings: Sequence[Reading],
    shared: Sequence[tuple[Copy, ...]],
    circles: Sequence[tuple[Copy, ...]],
) -> None:
    print_table("Fleets", _HEADS, [_row(each) for each in readings])
    for each in readings:
        for condition in each.responses.get("/validation", {}).get("conditions", ()):
            click.echo(printable(f"{each.name}: {condition}"))
    for each in readings:
        if each.failure:
            warn(f"{each.url}: {each.failure}")
    for line in _findings(shared, circles):
        warn(line)


def _findings(
    shared: Sequence[tuple[Copy, ...]], circles: Sequence[tuple[Copy, ...]]
) -> Iterator[str]:
    for each in shared:
        writers = " and ".join(str(copy) for copy in each)
        yield f"one target topic, {each[0].target_topic}, is written by {writers}"
    for each in circles:
        yield f"records go in a circle: {' -> '.join(str(copy) for copy in each)}"


def _row(reading: Reading) -> tuple[Any, ...]:
    if reading.failure:
        return reading.url, "no response", *[""] * (len(_HEADS) - 2)
    ready, counts = reading.responses["/ready"], reading.responses["/validation"]
    return (
        reading.name,
        ready["leader"] or "none",
        len(counts["IdealState"]),
        *(counts[name] for name in _COUNTS),
        len(counts["mismatches"]),
    )


def _as_json(
    readings: Sequence[Reading],
    shared: Sequence[tuple[Copy, ...]],
    circles: Sequence[tuple[Copy, ...]],
) -> dict[str, Any]:
    return {
        "fleets": [
            {"url": each.url, "fleet": "", "failure": each.failure}
            if each.failure
            else {
                "url": each.url,
                "fleet": each.name,
                "failure": "",
                "leader": each.responses["/ready"]["leader"],
                **{name: each.responses["/validation"][name] for name in (*_COUNTS, "conditions")},
                "numMismatches": len(each.responses["/validation"]["mismatches"]),
            }
            for each in readings
        ],
        "sharedTargets": [[asdict(copy) for copy in each] for each in shared],
        "loops": [[asdict(copy) for copy in each] for each in circles],
    }
