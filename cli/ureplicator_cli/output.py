"""Output of the commands: tables for people, JSON for machines, one line on stderr per failure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ureplicator_common.clock import utc_text
from ureplicator_common.printable import printable

_PAGE_WIDTH = 160
"""Width of a table that is not written to a terminal."""


def print_table(title: str, heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if not rows:
        click.echo(f"{title}: none")
        return
    table = Table(title=escape(printable(title)), title_justify="left", title_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(escape(printable(str(cell))) for cell in row))
    console = Console()
    console = console if console.is_terminal else Console(width=_PAGE_WIDTH)
    console.print(table)


def print_json(body: Mapping[str, Any]) -> None:
    click.echo(json.dumps(body, indent=2))


def end_if_json(as_json: bool, body: Mapping[str, Any]) -> None:
    """Print the response and end the command if it was called with --json."""
    if as_json:
        print_json(body)
        raise SystemExit(0)


def confirm(body: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    """Print the response, or a sentence filled in from its fields; and its note, if it has one."""
    if as_json:
        print_json(body)
    else:
        click.echo(printable(sentence.format(**body)))
    if body.get("note"):
        warn(f"note: {body['note']}")


def warn(message: str) -> None:
    click.echo(printable(message), err=True)


def fail(message: str) -> NoReturn:
    warn(message)
    raise SystemExit(1)


def owners(states: Mapping[str, str]) -> str:
    """Workers and their states, of the ideal state or the external view of one partition."""
    return ", ".join(f"{worker} {state}" for worker, state in states.items()) or "none"


def worker_name(name: str, shown: Mapping[str, Any] | None) -> str:
    """Name of a worker with its condition, in the dashboard's terms; None: a worker not known."""
    if shown is None:
        return f"{name} (gone)"
    gone = "" if shown["live"] else "evicted" if shown["evicted"] else "gone"
    drained = "drained" if shown["blacklisted"] or shown["draining"] else ""
    no_capacity = "no capacity" if shown.get("noCapacity") else ""
    leaving = "leaving" if shown.get("leaving") else ""
    condition = ", ".join(filter(None, (gone, drained, leaving, no_capacity)))
    return f"{name} ({condition})" if condition else name


def switch_states(auto_balancing: bool, frozen: bool) -> str:
    balancing = f"balancing {'on' if auto_balancing else 'off'}"
    return f"frozen, {balancing}" if frozen else balancing


def duration(seconds: float | None) -> str:
    """A duration for people, to about two digits."""
    if seconds is None:
        return ""
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def sync_text(sync: Mapping[str, Any]) -> str:
    """Last passes of a sync: when, how many in which state, and the last error."""
    states = ", ".join(f"{count} {state}" for state, count in sync["states"].items()) or "nothing"
    passed = sync["lastPass"]
    texts = [f"{states} at {utc_text(passed)}" if passed else "no pass yet"]
    if sync["age"] is not None:
        texts.insert(0, f"newest at the target {sync['age']:.1f} s old")
    if sync["lastFailure"]:
        texts.append(f"failed at {utc_text(sync['lastFailure'])}")
    if sync["error"]:
        texts.append(sync["error"])
    return "; ".join(texts)
