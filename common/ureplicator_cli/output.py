"""What the commands that speak to REST share: options, the call, and how its answer is shown.

Failures are one line on stderr that says what and, where known, the hint, and exit code 1. Tables are for
people; `--json` prints what REST answered, for machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ureplicator_cli import rest_client
from ureplicator_cli.hints import in_commands
from ureplicator_cli.rest_client import RestClient, RestFailure

F = TypeVar("F", bound=Callable[..., Any])

_PAGE_WIDTH = 160
"""Of a table that is not written to a terminal: nothing there is cut."""


def client_options(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="Print REST's answer.")(command)
    return click.option(
        "--url",
        envvar="UREPLICATOR_URL",
        default=rest_client.DEFAULT_URL,
        show_default=True,
        help="Any controller of the fleet; also UREPLICATOR_URL.",
    )(command)


def route_options(command: F) -> F:
    command = click.option("--dst", default="", help="Target cluster, to choose a route.")(command)
    return click.option("--src", default="", help="Source cluster, to choose a route.")(command)


class ListByDefault(click.Group):
    """`GROUP` alone, or with options only, is `GROUP list`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        bare = not args or (args[0].startswith("-") and args[0] not in context.help_option_names)
        return super().parse_args(context, ["list", *args] if bare else args)


def ask(
    method: str,
    url: str,
    path: str,
    *,
    src: str = "",
    dst: str = "",
    body: Mapping[str, Any] | None = None,
    query: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """REST's answer; what is "" in the query is left out. Ends the process if there is none."""
    asked = {name: text for name, text in {"src": src, "dst": dst, **(query or {})}.items() if text}
    try:
        return RestClient(url).call(method, path, query=asked, body=body)
    except RestFailure as error:
        fail(in_commands(str(error)))


def states(said: Mapping[str, str]) -> str:
    return ", ".join(f"{worker} {state}" for worker, state in said.items()) or "nobody"


def worker_name(name: str, shown: Mapping[str, Any] | None) -> str:
    """With what is special about it, in the words that the dashboard uses too. None: not known."""
    if shown is None:
        return f"{name} (gone)"
    gone = "" if shown["live"] else "evicted" if shown["evicted"] else "gone"
    drained = "drained" if shown["blacklisted"] or shown["draining"] else ""
    special = ", ".join(filter(None, (gone, drained)))
    return f"{name} ({special})" if special else name


def switch_states(auto_balancing: bool, frozen: bool) -> str:
    balancing = f"balancing {'on' if auto_balancing else 'off'}"
    return f"frozen, {balancing}" if frozen else balancing


def print_table(title: str, heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if not rows:
        click.echo(f"{title}: nothing")
        return
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console = Console()
    console = console if console.is_terminal else Console(width=_PAGE_WIDTH)
    console.print(table)


def print_json(body: Mapping[str, Any]) -> None:
    click.echo(json.dumps(body, indent=2))


def confirm(body: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(body)
    else:
        click.echo(sentence.format(**body))


def fail(message: str) -> NoReturn:
    fail_softly(message)
    raise SystemExit(1)


def fail_softly(message: str) -> None:
    click.echo(message, err=True)
