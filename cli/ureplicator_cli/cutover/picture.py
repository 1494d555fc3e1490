"""Plans and states of cutovers as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from ureplicator_cli.output import print_table
from ureplicator_common.clock import utc_text
from ureplicator_common.printable import printable

Body = Mapping[str, Any]


def print_plan(body: Body) -> None:
    plan = body["plan"]
    way = "and a way back" if plan["wayBack"] else "without a way back"
    _echo(f"{body['name']}: {_moved(plan)}, fence {plan['fence']}, {way}")
    print_findings(body["findings"])


def print_findings(findings: Sequence[Body]) -> None:
    rows = [
        (each["level"], each["check"], each["subject"], each["text"], each["advice"])
        for each in findings
    ]
    print_table("findings", ("level", "check", "subject", "finding", "advice"), rows)


def print_list(cutovers: Sequence[Body]) -> None:
    rows = [
        (
            each["name"],
            each["route"],
            each["state"],
            each["wanted"],
            each["topics"],
            each["groups"],
            _seconds(each["blockedSeconds"]),
            each["reason"],
        )
        for each in cutovers
    ]
    heads = ("name", "route", "state", "wanted", "topics", "groups", "blocked", "reason")
    print_table("cutovers", heads, rows)


def print_status(body: Body) -> None:
    _echo(line(body))
    _echo(f"plan {body['plan']['id']}: {_moved(body['plan'])}, fence {body['plan']['fence']}")
    if body["former"]:
        _echo(f"the run before was {body['former']['state']} on {body['former']['route']}")
    names = dict.fromkeys([*(step["state"] for step in body["steps"]), *body["rehearsal"]])
    took = {step["state"]: step for step in body["steps"]}
    rows = [
        (
            name,
            utc_text(took[name]["at"]) if name in took else "",
            _seconds(took[name]["seconds"]) if name in took else "",
            _seconds(body["rehearsal"].get(name)),
        )
        for name in names
    ]
    print_table("steps", ("step", "at", "took", "rehearsed"), rows)
    for text in body["waits"]:
        _echo(f"waits: {text}")
    for write in body["late"]:
        _echo(_late(write))
    if body["groups"]:
        print_table("groups", ("group", "outcome"), list(body["groups"].items()))
    if body["verified"]:
        _echo(f"verified: {body['verified']}")


def line(body: Body) -> str:
    """The state of a cutover in one line."""
    blocked = body["blockedSeconds"]
    parts = (
        f"{body['name']} {body['state']}" + ("" if not body["reason"] else f": {body['reason']}"),
        "" if blocked is None else f"writes blocked for {_seconds(blocked)}",
        f"{body['lateOffsets']} offsets written past the fence" if body["lateOffsets"] else "",
        f"waits: {body['waits'][0]}" if body["waits"] else "",
    )
    return ", ".join(filter(None, parts))


def _moved(plan: Body) -> str:
    source, _, target = plan["route"].partition(".")
    return f"{len(plan['topics'])} topics, {len(plan['groups'])} groups from {source} to {target}"


def _late(write: Body) -> str:
    producers = ", ".join(map(str, write["producers"])) or "not known"
    what = "ALARM: written after the opening" if write["alarm"] else "written past the fence"
    place = f"{write['topic']}/{write['partition']}"
    offsets = f"offsets {write['firstOffset']} to {write['nextOffset'] - 1}"
    return f"{what}: {place} {offsets}, producers {producers}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def _echo(text: str) -> None:
    click.echo(printable(text))


def blocking(findings: Sequence[Body]) -> Iterator[str]:
    """Findings that block, each in one line."""
    for each in findings:
        if each["level"] == "blocks":
            yield f"{each['subject']}: {each['text']}"
