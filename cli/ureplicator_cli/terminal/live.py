"""A picture of the fleet that is read again and again: in place on a terminal, line by line in a pipe.

While no controller responds, the last picture stays, with its age and the reason.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.live import Live

from ureplicator_cli.rest_client import RestClient, RestFailure
from ureplicator_cli.terminal.picture import Bodies, Picture, picture_of, plain_lines, rendered

INTERVAL_S = 2.0
TIMEOUT_S = 5.0
"""Time for a controller to respond: a picture with its age is better than none."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The last picture that was read, its age, and why there is no newer one ("": there is)."""

    picture: Picture | None
    age_s: float
    failure: str


Show = Callable[[Shown], None]


def watch(url: str, *, interval_s: float, count: int, whole: bool) -> None:
    """Show pictures until Ctrl-C, or until there were `count` of them (0: without end): then the exit code is
    1 if the last one could not be read."""
    client = RestClient(url, timeout_s=TIMEOUT_S)
    console = Console()
    with suppress(KeyboardInterrupt), _display(console, whole=whole) as show:
        numbers = range(1, count + 1) if count else itertools.count(1)
        for number, shown in zip(numbers, pictures(lambda: read(client)), strict=False):
            show(shown)
            if number != count:
                time.sleep(interval_s)
            elif shown.failure:
                raise SystemExit(1)


def pictures(
    read: Callable[[], Picture], *, now_s: Callable[[], float] = time.monotonic
) -> Iterator[Shown]:
    """A reading for each that is taken."""
    picture, read_at_s = None, now_s()
    while True:
        failure = ""
        try:
            picture, read_at_s = read(), now_s()
        except RestFailure as error:
            failure = str(error)
        yield Shown(picture, now_s() - read_at_s, failure)


def read(client: RestClient) -> Picture:
    """Raises RestFailure. Load and lag are left out if they cannot be had."""
    validation = client.call("GET", "/validation")
    switches = client.call("GET", "/admin/autobalancing_status") | client.call(
        "GET", "/admin/freeze"
    )
    bodies = Bodies(
        ready=client.call("GET", "/ready"),
        switches=switches,
        validation=validation,
        routes=client.call("GET", "/routes")["routes"],
        workers=client.call("GET", "/instances")["workers"],
        load=_attempt(client, "/admin/workloadinfo"),
        lag=_attempt(client, "/offset"),
    )
    return picture_of(bodies)


def _attempt(client: RestClient, path: str) -> dict[str, object]:
    try:
        return client.call("GET", path)
    except RestFailure:
        return {}


@contextmanager
def _display(console: Console, *, whole: bool) -> Iterator[Show]:
    if not console.is_terminal:
        yield _print
        return
    with Live(console=console, screen=whole, auto_refresh=False) as live:

        def show(shown: Shown) -> None:
            picture = rendered(shown.picture, age_s=shown.age_s, failure=shown.failure, whole=whole)
            live.update(picture, refresh=True)

        yield show


def _print(shown: Shown) -> None:
    now = datetime.now(UTC).strftime("%H:%M:%SZ")
    lines = plain_lines(shown.picture, time=now, age_s=shown.age_s, failure=shown.failure)
    for line in lines:
        click.echo(line)
