"""`ureplicator topics`: the whitelist of topics that are copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.fleets.move import move_topic
from ureplicator_cli.options import ListByDefault, client_options, route_options
from ureplicator_cli.output import confirm, duration, end_if_json, owners, print_table, warn
from ureplicator_cli.rest_client import quoted, request

_HEADS = ("partition", "ideal", "actual", "position", "lag", "behind", "reason")
_WARN_RETENTION_S = 3_600
"""Within this time before the source deletes the next record, the topic's table warns of it."""


_TARGETS = {
    "created": ", target topic created",
    "existed": ", target topic existed",
    "raised": ", target topic existed and got partitions",
}
"""Texts for `target` of an added topic; controllers of other versions may not tell."""
_raising = click.option(
    "--raise-partitions",
    is_flag=True,
    help="Add partitions to a target topic that exists with fewer. It never gets fewer again.",
)


def _raised(raise_partitions: bool) -> dict[str, bool]:
    """Field of the request for this flag."""
    return {"raisePartitions": True} if raise_partitions else {}


@click.group(cls=ListByDefault)
def topics() -> None:
    """List, add, expand, pause and delete topics.

    Without a command, lists the topics that are copied.
    """


_STATES = ("active", "paused", "reversed", "deleting", "stopped", "blacklisted")


@topics.command("list")
@click.option(
    "--state", type=click.Choice(_STATES), default=None, help="Only topics in this state."
)
@click.option("--route", default="", help="Only topics of this route, as in west.east.")
@click.option("--match", default="", help="Only names that match a pattern, as in 'orders-*'.")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most this many names.")
@click.option(
    "--after", default="", help="Only names behind this one: the page before ended there."
)
@client_options
@route_options
def list_topics(
    url: str,
    as_json: bool,
    src: str,
    dst: str,
    state: str | None,
    limit: int | None,
    **filters: str,
) -> None:
    """List the topics that are copied, or those that the options select."""
    query = filters | {"state": state or "", "limit": str(limit or "")}
    body = request("GET", url, "/topics", src=src, dst=dst, query=query)
    end_if_json(as_json, body)
    for name in body["topics"]:
        click.echo(name)
    if not body["topics"]:
        warn("no topics")
    if body.get("next"):
        warn(f"there are more: --after {body['next']}")


@topics.command("show")
@click.argument("topic")
@client_options
@route_options
def show_topic(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Show owner, position and lag of each partition."""
    body = request("GET", url, f"/topics/{quoted(topic)}", src=src, dst=dst)
    end_if_json(as_json, body)
    lane = body.get("lane", "raw")
    title = f"{body['topic']} on {body['route']} -> {body['targetTopic']}, {body['effectiveState']}"
    title += "" if lane == "raw" else f", lane {lane}"
    heads: tuple[str, ...] = _HEADS
    rows = _rows(body)
    if offsets := body.get("offsets"):
        title += f", offsets {_offsets_of_topic(offsets, body['partitions'])}"
        heads += ("offsets",)
        rows = [(*row, _offsets(offsets.get(row[0]))) for row in rows]
    print_table(title, heads, rows)
    if body.get("positionsReason"):
        warn(f"no positions: {body['positionsReason']}")


@topics.command("add")
@click.argument("topic")
@click.option(
    "--partitions", type=int, metavar="COUNT", help="Copy only the first COUNT. Default: all."
)
@_raising
@client_options
@route_options
def add_topic(
    topic: str,
    partitions: int | None,
    raise_partitions: bool,
    url: str,
    as_json: bool,
    src: str,
    dst: str,
) -> None:
    """Whitelist a topic.

    It is created on the target if it does not exist there.
    """
    body: dict[str, Any] = {"topic": topic} | _raised(raise_partitions)
    body |= {} if partitions is None else {"numPartitions": partitions}
    added = request("POST", url, "/topics", src=src, dst=dst, body=body)
    target = _TARGETS.get(added.get("target", ""), "")
    confirm(added, as_json, "{topic}: copying {partitions} partitions on {route}" + target)
    if not as_json:
        for warning in added.get("warnings", ()):
            warn(f"warning: {warning}")


@topics.command("expand")
@click.argument("topic")
@click.argument("partitions", type=int)
@_raising
@client_options
@route_options
def expand_topic(
    topic: str,
    partitions: int,
    raise_partitions: bool,
    url: str,
    as_json: bool,
    src: str,
    dst: str,
) -> None:
    """Copy more partitions of a topic.

    PARTITIONS is the new total. The target topic is expanded with it.
    """
    body = {"topic": topic, "numPartitions": partitions} | _raised(raise_partitions)
    expanded = request("PUT", url, "/topics", src=src, dst=dst, body=body)
    confirm(expanded, as_json, "{topic}: copying {partitions} partitions on {route}")


@topics.command("delete")
@click.argument("topic")
@click.option(
    "--forget-positions",
    is_flag=True,
    help="Delete the positions too: added again, the topic is copied from the start.",
)
@client_options
@route_options
def delete_topic(
    topic: str, forget_positions: bool, url: str, as_json: bool, src: str, dst: str
) -> None:
    """Stop copying a topic for good.

    The target topic and its records are kept.
    """
    query = {"positions": "forget" if forget_positions else ""}
    body = request("DELETE", url, f"/topics/{quoted(topic)}", src=src, dst=dst, query=query)
    confirm(body, as_json, "{topic}: is no longer copied on {route}")


@topics.command("pause")
@click.argument("topic")
@client_options
@route_options
def pause_topic(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Stop copying a topic until it is resumed.

    Its positions are kept.
    """
    body = request("POST", url, f"/topics/{quoted(topic)}/pause", src=src, dst=dst)
    confirm(body, as_json, "{topic}: is {state} on {route}")


@topics.command("resume")
@click.argument("topic")
@click.option(
    "--restart",
    is_flag=True,
    help="Required for a stopped topic: copy the topic that exists now from its first record.",
)
@client_options
@route_options
def resume_topic(topic: str, restart: bool, url: str, as_json: bool, src: str, dst: str) -> None:
    """Resume a paused topic at its positions.

    A topic that was deleted or recreated on either cluster is stopped, and resumes only with
    --restart.
    """
    path = f"/topics/{quoted(topic)}/resume"
    body = {"restart": True} if restart else None
    resumed = request("POST", url, path, src=src, dst=dst, body=body)
    confirm(resumed, as_json, "{topic}: is {state} on {route}")


topics.add_command(move_topic)


@topics.command("validate")
@client_options
@route_options
def validate_topics(url: str, as_json: bool, src: str, dst: str) -> None:
    """Show what differs between source and target topics.

    That is partition counts and settings, and whether the controllers will change them.
    """
    body = request("GET", url, "/validation/topics", src=src, dst=dst)
    end_if_json(as_json, body)
    heads = ("topic", "target topic", "what", "source", "target", "will be")
    rows = [row for topic in body["topics"] for row in _differences(topic)]
    print_table("differences", heads, rows)
    for topic in body["topics"]:
        if topic["reason"]:
            warn(f"{topic['route']}/{topic['topic']} not compared: {topic['reason']}")


def _differences(topic: Mapping[str, Any]) -> list[tuple[str, ...]]:
    names = f"{topic['route']}/{topic['topic']}", topic["targetTopic"]
    found = [("partitions", pair) for pair in [topic["partitions"]] if pair is not None]
    found += [(pair["name"], pair) for pair in topic["settings"]]
    return [
        (*names, what, _shown(pair["source"]), _shown(pair["target"]), _will_be(pair))
        for what, pair in found
    ]


def _will_be(difference: Mapping[str, Any]) -> str:
    if not difference["willChange"]:
        return f"left: {difference['reason']}"
    wanted = difference["wanted"]
    return "the brokers' default" if wanted is None else str(wanted)


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _rows(body: Mapping[str, Any]) -> list[tuple[str, ...]]:
    reasons = _reasons(body)
    numbers = {*map(int, body["idealState"]), *map(int, body["externalView"])}
    return [
        (
            str(number),
            owners(body["idealState"].get(str(number), {})),
            owners(body["externalView"].get(str(number), {})),
            *_progress(found := body["progress"].get(str(number), {})),
            "; ".join(dict.fromkeys(filter(None, (reasons.get(number, ""), _warning(found))))),
        )
        for number in sorted(numbers)
    ]


def _offsets_of_topic(offsets: Mapping[str, Mapping[str, Any]], partitions: int) -> str:
    same = sum(not shift["shift"] for shift in offsets.values())
    return "same" if same == partitions else f"same in {same} of {partitions} partitions"


def _offsets(shift: Mapping[str, Any] | None) -> str:
    """`same since 100`, `shifted by 1 since 2,000 (reason)`; empty where unknown."""
    if shift is None:
        return ""
    if not shift["shift"]:
        return f"same since {shift['since']:,}"
    return f"shifted by {shift['shift']:,} since {shift['since']:,} ({shift['reason']})"


def _reasons(body: Mapping[str, Any]) -> dict[int, str]:
    """Reasons of mismatches and of exclusions, by partition."""
    reasons = {row["partition"]: row["reason"] for row in body["mismatches"]}
    for number, excluded in body["excluded"].items():
        mismatch = reasons.get(int(number), excluded)
        reasons[int(number)] = excluded if mismatch == excluded else f"{mismatch}; {excluded}"
    return reasons


def _progress(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Position, lag, and how long the next record has waited; empty where unknown."""
    position, lag = found.get("position"), found.get("lagRecords")
    return (
        "" if position is None else str(position),
        "" if lag is None else str(lag),
        duration(found.get("lagSeconds")),
    )


def _warning(found: Mapping[str, Any]) -> str:
    """Reason for missing figures, or a warning that the source soon deletes records not copied yet."""
    left_s = found.get("retentionSeconds")
    if found.get("reason"):
        return str(found["reason"])
    soon = left_s and left_s < _WARN_RETENTION_S
    return f"the source may delete it in {duration(left_s)}" if soon else ""
