"""`ureplicator audits`: what was verified, and requests that auditors carry out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from ureplicator_cli.options import ListByDefault, Rate, client_options, route_options
from ureplicator_cli.output import confirm, duration, end_if_json, print_table, warn
from ureplicator_cli.rest_client import quoted, request

NO_AUDITOR = "no auditor runs: start one with ureplicator auditor, the request waits for it"


@click.group(cls=ListByDefault)
def audits() -> None:
    """Show what of each topic was verified, and request audits.

    An audit compares source and target record by record. Auditors (ureplicator auditor) carry requests
    out.
    """


@audits.command("list")
@client_options
@route_options
def list_audits(url: str, as_json: bool, src: str, dst: str) -> None:
    """List the topics: never verified, verified, stale, or differences found."""
    body = request("GET", url, "/audits", src=src, dst=dst)
    end_if_json(as_json, body)
    heads = ("topic", "route", "state", "verified", "behind", "differences", "audit", "reason")
    rows = [_shown(audit) for audit in body["audits"]]
    print_table("audits", heads, rows)


@audits.command("show")
@click.argument("topic")
@client_options
@route_options
def show_audit(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Show the verified range of each partition, the first differences and the last audit."""
    body = request("GET", url, _path(topic), src=src, dst=dst)
    end_if_json(as_json, body)
    title = f"{body['topic']} on {body['route']}: {body['state']}"
    click.echo(f"{title} ({body['reason']})" if body["reason"] else title)
    heads = ("partition", "verified from", "to", "position", "time", "differences")
    print_table("verified", heads, [_verified(row) for row in body["verified"]])
    if body["findings"]:
        of_findings = ("partition", "kind", "source offset", "target offset")
        print_table("first differences", of_findings, [_finding(row) for row in body["findings"]])
    if body["last"]:
        click.echo(f"last audit  {_past(body['last'])}")
    if _under_way(body):
        click.echo(f"now         {_under_way(body)}")


@audits.command("request")
@click.argument("topic")
@click.option("--from", "start", default="", help="Begin, inclusive: source offset, or time.")
@click.option("--to", "end", default="", help="End, exclusive: source offset, or time.")
@click.option("--partition", "partitions", type=int, multiple=True, help="Repeatable.")
@click.option("--bytes-per-second", type=Rate(), help="Most that is read from each cluster: 20M.")
@click.option("--dry-run", is_flag=True, help="Only show what would be compared.")
@client_options
@route_options
def request_audit(
    topic: str,
    start: str,
    end: str,
    partitions: tuple[int, ...],
    bytes_per_second: int | None,
    dry_run: bool,
    url: str,
    as_json: bool,
    src: str,
    dst: str,
) -> None:
    """Request an audit of TOPIC: of all that was copied, or of a range.

    A time is written 2026-01-31T12:00:00Z. See the result with ureplicator audits show.
    """
    given = {
        "from": start,
        "to": end,
        "partitions": list(partitions),
        "bytesPerSecond": bytes_per_second,
    }
    wanted = {name: value for name, value in given.items() if value}
    query = {"dry_run": "true" if dry_run else ""}
    body = request("POST", url, _path(topic), src=src, dst=dst, query=query, body=wanted)
    end_if_json(as_json, body)
    rows = [(row["partition"], row["from"], row["to"]) for row in body["ranges"]]
    print_table(f"{body['topic']} on {body['route']}", ("partition", "from", "to"), rows)
    if body["request"]:
        click.echo(f"requested ({body['request']}): {body['offsets']:,} offsets")
        if not body["auditors"]:
            warn(NO_AUDITOR)


@audits.command("cancel")
@click.argument("topic")
@client_options
@route_options
def cancel_audit(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Cancel the audit of TOPIC that is requested, whether it runs or waits."""
    body = request("DELETE", url, _path(topic), src=src, dst=dst)
    confirm(body, as_json, "{topic} on {route}: audit {request} is cancelled")


def summary(body: Mapping[str, Any]) -> str:
    """Counts of `GET /audits` on one line: `5 verified, 1 stale, 2 never verified`."""
    counts: dict[str, int] = {}
    for audit in body["audits"]:
        counts[audit["state"]] = counts.get(audit["state"], 0) + 1
    running = sum(audit["running"] is not None for audit in body["audits"])
    states = [f"{count} {state}" for state, count in sorted(counts.items())]
    return ", ".join([*states, *([f"{running} running"] if running else [])])


def _path(topic: str) -> str:
    return f"/audits/{quoted(topic)}"


def _shown(each: Mapping[str, Any]) -> tuple[str, ...]:
    age = duration(each["secondsSinceVerified"])
    return (
        each["topic"],
        each["route"],
        each["state"],
        f"{age} ago" if age else "",
        "" if each["behindOffsets"] is None else f"{each['behindOffsets']:,}",
        _counts(each["differences"]),
        _under_way(each),
        each["reason"],
    )


def _under_way(each: Mapping[str, Any]) -> str:
    running, requested = each["running"], each["requested"]
    if running:
        share = running["compared"] / running["offsets"] if running["offsets"] else 0.0
        return f"running on {running['auditor']}: {share:.0%}"
    if requested and requested["attempts"]:
        return f"requested, begun {requested['attempts']} times"
    return "requested" if requested else ""


def _verified(each: Mapping[str, Any]) -> tuple[str, ...]:
    position = each["position"]
    return (
        str(each["partition"]),
        str(each["from"]),
        str(each["to"]),
        "" if position is None else str(position),
        _time(each["verifiedAt"]),
        _counts(each["differences"]),
    )


def _finding(each: Mapping[str, Any]) -> tuple[str, ...]:
    offsets = (each["sourceOffset"], each["targetOffset"])
    shown = ("" if offset is None else str(offset) for offset in offsets)
    return (str(each["partition"]), each["kind"], *shown)


def _past(last: Mapping[str, Any]) -> str:
    found = _counts(last["differences"]) or "no difference"
    report = f"; result in {last['report']}" if last["report"] else ""
    return (
        f"{_time(last['ended'])}, {last['outcome']}: {last['records']:,} records compared,"
        f" {found}{report}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).isoformat(timespec="seconds")
