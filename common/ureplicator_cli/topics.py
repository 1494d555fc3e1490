"""`ureplicator topics`: what is copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.output import (
    ListByDefault,
    ask,
    client_options,
    confirm,
    fail_softly,
    print_json,
    print_table,
    route_options,
    states,
)
from ureplicator_cli.rest_client import quoted


@click.group(cls=ListByDefault)
def topics() -> None:
    """List, add, expand, pause and delete topics."""


@topics.command("list")
@client_options
@route_options
def list_topics(url: str, as_json: bool, src: str, dst: str) -> None:
    """What is copied."""
    body = ask("GET", url, "/topics", src=src, dst=dst)
    if as_json:
        print_json(body)
        return
    for name in body["topics"]:
        click.echo(name)
    if not body["topics"]:
        fail_softly("nothing")


@topics.command("show")
@click.argument("topic")
@client_options
@route_options
def show_topic(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Who copies each partition of a topic, and how far it is."""
    body = ask("GET", url, f"/topics/{quoted(topic)}", src=src, dst=dst)
    if as_json:
        print_json(body)
        return
    title = f"{body['topic']} on {body['route']} -> {body['targetTopic']}, {body['effectiveState']}"
    heads = ("partition", "should be", "is", "position", "lag", "behind", "why not")
    print_table(title, heads, _rows(body))
    if body.get("positionsReason"):
        fail_softly(f"no positions: {body['positionsReason']}")


@topics.command("add")
@click.argument("topic")
@click.option("--partitions", type=int, help="How many of the source's; all by default.")
@client_options
@route_options
def add_topic(
    topic: str, partitions: int | None, url: str, as_json: bool, src: str, dst: str
) -> None:
    """Whitelist a topic; it is made on the target if it is missing there."""
    wish = {"topic": topic} | ({} if partitions is None else {"numPartitions": partitions})
    body = ask("POST", url, "/topics", src=src, dst=dst, body=wish)
    confirm(body, as_json, "{topic}: {partitions} partitions are copied on {route}")


@topics.command("expand")
@click.argument("topic")
@click.argument("partitions", type=int)
@client_options
@route_options
def expand_topic(topic: str, partitions: int, url: str, as_json: bool, src: str, dst: str) -> None:
    """Copy more partitions of a topic; the target grows with it."""
    wish = {"topic": topic, "numPartitions": partitions}
    body = ask("PUT", url, "/topics", src=src, dst=dst, body=wish)
    confirm(body, as_json, "{topic}: {partitions} partitions are copied on {route}")


@topics.command("delete")
@click.argument("topic")
@click.option(
    "--forget-positions", is_flag=True, help="Added again, it is copied from the start again."
)
@client_options
@route_options
def delete_topic(
    topic: str, forget_positions: bool, url: str, as_json: bool, src: str, dst: str
) -> None:
    """Stop copying a topic; the target and its data stay."""
    positions = "forget" if forget_positions else ""
    path = f"/topics/{quoted(topic)}"
    body = ask("DELETE", url, path, src=src, dst=dst, query={"positions": positions})
    confirm(body, as_json, "{topic}: is no longer copied on {route}")


@topics.command("pause")
@click.argument("topic")
@client_options
@route_options
def pause_topic(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Stop copying a topic for now; its positions are kept."""
    body = ask("POST", url, f"/topics/{quoted(topic)}/pause", src=src, dst=dst)
    confirm(body, as_json, "{topic}: is {state} on {route}")


@topics.command("resume")
@click.argument("topic")
@click.option("--restart", is_flag=True, help="Of a topic that was deleted or recreated: copy all.")
@client_options
@route_options
def resume_topic(topic: str, restart: bool, url: str, as_json: bool, src: str, dst: str) -> None:
    """Go on copying a topic that was paused, from where it was."""
    path = f"/topics/{quoted(topic)}/resume"
    body = ask("POST", url, path, src=src, dst=dst, body={"restart": True} if restart else None)
    confirm(body, as_json, "{topic}: is {state} on {route}")


def _rows(body: Mapping[str, Any]) -> list[tuple[str, ...]]:
    whys = _whys(body)
    numbers = {*map(int, body["idealState"]), *map(int, body["externalView"])}
    return [
        (
            str(number),
            states(body["idealState"].get(str(number), {})),
            states(body["externalView"].get(str(number), {})),
            *_progress(found := body["progress"].get(str(number), {})),
            "; ".join(filter(None, (whys.get(number, ""), _worry(found)))),
        )
        for number in sorted(numbers)
    ]


def _whys(body: Mapping[str, Any]) -> dict[int, str]:
    """Why a partition is not copied, or not as it should be: also where that is intended."""
    whys = {each["partition"]: each["reason"] for each in body["mismatches"]}
    for number, why in body["excluded"].items():
        told = whys.get(int(number), why)
        whys[int(number)] = why if told == why else f"{told}; {why}"
    return whys


def _progress(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Position, lag, and for how long the next record has waited; empty where not known."""
    position, lag = found.get("position"), found.get("lagRecords")
    return (
        "" if position is None else str(position),
        "" if lag is None else str(lag),
        duration(found.get("lagSeconds")),
    )


def _worry(found: Mapping[str, Any]) -> str:
    """What is wrong with the figures, or will be."""
    left_s = found.get("retentionSeconds")
    if found.get("reason"):
        return str(found["reason"])
    return f"the source may delete it in {duration(left_s)}" if left_s and left_s < 3_600 else ""


def duration(seconds: float | None) -> str:
    """For people: two digits of it are enough."""
    if seconds is None:
        return ""
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"
