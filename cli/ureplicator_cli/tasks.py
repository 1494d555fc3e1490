"""`ureplicator tasks`: requests that take a while, and how far they are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.options import ShowByDefault, client_options
from ureplicator_cli.output import confirm, end_if_json, print_json, print_table
from ureplicator_cli.rest_client import quoted, request

POLL_S = 0.5
OPEN_STATES = ("waiting", "running")


@click.group(cls=ShowByDefault)
def tasks() -> None:
    """Show, await and cancel requests that move partitions.

    `tasks` is `tasks show`, and `tasks TASK` is `tasks show TASK`. The id of a task is that of its request.
    """


@tasks.command("show")
@click.argument("task", metavar="[TASK]", required=False)
@client_options
def show_tasks(task: str | None, url: str, as_json: bool) -> None:
    """List the tasks that are remembered, newest first, or show how far one is."""
    body = request("GET", url, f"/tasks/{quoted(task)}" if task else "/tasks")
    end_if_json(as_json, body)
    if task:
        _print(body)
    else:
        rows = [
            (entry["task"], entry["state"], f"{entry['moved']} of {entry['moves']}", entry["what"])
            for entry in body["tasks"]
        ]
        print_table("tasks", ("task", "state", "moved", "what"), rows)


@tasks.command("wait")
@click.argument("task", metavar="TASK")
@click.option("--timeout", "timeout_s", default=600.0, show_default=True, help="Seconds.")
@client_options
def wait_task(task: str, timeout_s: float, url: str, as_json: bool) -> None:
    """Wait until a task is done.

    The exit code is 1 if it is cancelled or refused, or takes longer than the time limit.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        shown = request("GET", url, f"/tasks/{quoted(task)}")
        if shown["state"] not in OPEN_STATES or time.monotonic() > until_s:
            break
        time.sleep(POLL_S)
    if as_json:
        print_json(shown)
    else:
        _print(shown)
    if shown["state"] != "done":
        raise SystemExit(1)


@tasks.command("cancel")
@click.argument("task", metavar="TASK")
@client_options
def cancel_task(task: str, url: str, as_json: bool) -> None:
    """End a task before it is done; what has moved stays where it is."""
    confirm(request("DELETE", url, f"/tasks/{quoted(task)}"), as_json, "{task}: cancelled")


def _print(shown: Mapping[str, Any]) -> None:
    outcome = f": {shown['outcome']}" if shown["outcome"] else ""
    by = f" by {shown['by']}" if shown["by"] else ""
    click.echo(f"{shown['what']}{by}: {shown['state']}{outcome}")
    click.echo(f"{shown['moved']} of {shown['moves']} partitions moved")
