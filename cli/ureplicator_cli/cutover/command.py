"""`ureplicator cutover`: plans, rehearsals, starts, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import click

from ureplicator_cli.cutover import picture
from ureplicator_cli.cutover.following import (
    Body,
    followed,
    is_idle,
    is_moved,
    is_rehearsed,
    readings,
)
from ureplicator_cli.cutover.options import ManyValues, patterns
from ureplicator_cli.options import ListByDefault, client_options, route_options
from ureplicator_cli.output import confirm, end_if_json, fail, print_json
from ureplicator_cli.rest_client import quoted, request
from ureplicator_common.printable import printable

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=ListByDefault)
def cutover() -> None:
    """Move the clients of topics to the other cluster of a route, with a way back.

    A cutover has a name. `plan` says what could go wrong, `rehearse` how long it takes, `start` does it.
    Until clients are at the target, `abort` leaves everything as it was; from then on, `back` moves them
    back.
    """


_MANY = "several words, by commas, or repeated"
_OF_A_PLAN = (
    click.option(
        "--topics",
        multiple=True,
        required=True,
        metavar="PATTERN...",
        callback=patterns,
        help=f"Regular expressions for whole names of source topics: {_MANY}.",
    ),
    click.option(
        "--groups",
        multiple=True,
        metavar="PATTERN...",
        callback=patterns,
        help="Regular expressions for whole names of consumer groups.  [default: none]",
    ),
    click.option(
        "--fence",
        type=click.Choice(["acl", "command", "none"]),
        help="What keeps producers from writing at the source: access rights, a program, or nothing, as they"
        " stand still.  [default: none; with --fence-command: command]",
    ),
    click.option(
        "--fence-command",
        metavar="PROGRAM",
        help="Program in the controllers' folder of fence programs.",
    ),
    click.option(
        "--principal",
        metavar="TYPE:NAME",
        help="The fleet's at the source, for --fence acl.  [default: of its login there]",
    ),
    click.option("--no-way-back", is_flag=True, help="Copy nothing back to the old cluster."),
    click.option(
        "--wait-for-groups", is_flag=True, help="Wait until groups have no members at the source."
    ),
    click.option(
        "--abort-transactions", is_flag=True, help="Abort transactions that the fence finds open."
    ),
    click.option("--verify", is_flag=True, help="Wait until an auditor has compared everything."),
    click.option(
        "--limit",
        "limit_s",
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        default=60.0,
        show_default=True,
        help="Seconds from the fence after which it is aborted if it is not open.",
    ),
    click.option("--dry-run", is_flag=True, help="Only show the plan, without storing it."),
)


def _plan_options(command: F) -> F:
    for option in reversed(_OF_A_PLAN):
        command = option(command)
    return command


@cutover.command("plan", cls=ManyValues)
@click.argument("name")
@_plan_options
@client_options
@route_options
def plan(
    name: str, url: str, as_json: bool, src: str, dst: str, dry_run: bool, **wish: Any
) -> None:
    """Plan a cutover, and show what could go wrong. Touches neither cluster.

    Exits with 1 if a finding blocks it.
    """
    query = {"dry_run": "true" if dry_run else ""}
    body = request("POST", url, _path(name), src=src, dst=dst, query=query, body=_wanted(**wish))
    if as_json:
        print_json(body)
    else:
        picture.print_plan(body)
        if not body["blocked"] and not dry_run:
            id = body["plan"]["id"]
            click.echo(f"carry out exactly this with ureplicator cutover start {name} --plan {id}")
    if body["blocked"]:
        raise SystemExit(1)


def _wanted(
    *,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    fence: str | None,
    fence_command: str | None,
    principal: str | None,
    no_way_back: bool,
    wait_for_groups: bool,
    abort_transactions: bool,
    verify: bool,
    limit_s: float,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "topics": list(topics),
        "groups": list(groups),
        "fence": fence or ("command" if fence_command else "none"),
        "wayBack": not no_way_back,
        "waitForGroups": wait_for_groups,
        "abortTransactions": abort_transactions,
        "verify": verify,
        "limitSeconds": limit_s,
    }
    given = {"fenceCommand": fence_command, "principal": principal}
    return body | {field: text for field, text in given.items() if text}


def _wait_options(command: F) -> F:
    command = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        show_default=True,
        help="Seconds to wait.",
    )(command)
    return click.option("--wait", "waits", is_flag=True, help="Wait, and show each change.")(
        command
    )


@cutover.command("rehearse")
@click.argument("name")
@_wait_options
@client_options
def rehearse(name: str, waits: bool, timeout_s: float, url: str, as_json: bool) -> None:
    """Do all but the fence and the opening, against the live clusters, to see how long each step takes.

    With --wait, exits with 1 if something would keep the cutover from its end.
    """
    body = request("POST", url, _path(name, "rehearse"))
    if not waits:
        _say_requested(name, "rehearsal", body, as_json)
        return
    last = _follow(name, url, until=is_rehearsed(body["request"]), timeout_s=timeout_s)
    _print_status(last, as_json)
    if last["reason"]:
        fail(f"{name}: {last['reason']}")


@cutover.command("start")
@click.argument("name")
@click.option("--plan", metavar="ID", default="", help="Carry out exactly this plan, or nothing.")
@_wait_options
@client_options
def start(name: str, plan: str, waits: bool, timeout_s: float, url: str, as_json: bool) -> None:
    """Carry out the plan that is stored: producers are kept out from now on, until clients can go on at the
    target.

    It is refused, with what has changed, if the plan is not the same any more. With --wait, exits with 1 if
    it is aborted.
    """
    query = {"plan": plan, "confirm": "" if plan else "true"}
    body = request("POST", url, _path(name, "start"), query=query)
    _end(name, "start", body, waits=waits, timeout_s=timeout_s, url=url, as_json=as_json)


@cutover.command("back")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only show the plan of the way back.")
@_wait_options
@client_options
def back(name: str, dry_run: bool, waits: bool, timeout_s: float, url: str, as_json: bool) -> None:
    """Move the clients of a cutover back: the same topics and groups, with both clusters changed over.

    With --wait, exits with 1 if it is aborted.
    """
    query = {"dry_run": "true"} if dry_run else {"confirm": "true"}
    body = request("POST", url, _path(name, "back"), query=query)
    if not dry_run:
        _end(name, "way back", body, waits=waits, timeout_s=timeout_s, url=url, as_json=as_json)
        return
    end_if_json(as_json, body)
    picture.print_plan(body)
    if body["blocked"]:
        raise SystemExit(1)


@cutover.command("abort")
@click.argument("name")
@client_options
def abort(name: str, url: str, as_json: bool) -> None:
    """Undo a cutover that is not open yet: rights and offsets become what they were."""
    body = request("POST", url, _path(name, "abort"))
    confirm(body, as_json, "{name}: abort requested; see ureplicator cutover status {name}")


@cutover.command("status")
@click.argument("name")
@click.option(
    "--watch", "watches", is_flag=True, help="Show each change until nothing is under way."
)
@client_options
def status(name: str, watches: bool, url: str, as_json: bool) -> None:
    """Show the steps of a cutover and the seconds of each, what it waits for, and who is in its way."""
    if not watches:
        _print_status(request("GET", url, _path(name)), as_json)
        return
    with suppress(KeyboardInterrupt):
        for body in followed(readings(url, name), until=is_idle):
            click.echo(json.dumps(body) if as_json else printable(picture.line(body)))


@cutover.command("list")
@client_options
def list_cutovers(url: str, as_json: bool) -> None:
    """List the cutovers that are planned, under way or done."""
    body = request("GET", url, "/cutovers")
    end_if_json(as_json, body)
    picture.print_list(body["cutovers"])


def _end(
    name: str,
    what: str,
    body: Mapping[str, Any],
    *,
    waits: bool,
    timeout_s: float,
    url: str,
    as_json: bool,
) -> None:
    """The end of a command by which clients move."""
    if not waits:
        _say_requested(name, what, body, as_json)
        return
    run = body["request"]
    last = _follow(name, url, until=is_moved(run), timeout_s=timeout_s, shows=not as_json)
    _print_status(last, as_json)
    if last["run"] != run:
        fail(f"{name}: another request came before its end")
    if last["state"] == "ABORTED":
        fail(f"{name} was aborted: {last['reason']}")


def _follow(
    name: str, url: str, *, until: Callable[[Body], bool], timeout_s: float, shows: bool = False
) -> Body:
    """The last reading."""
    last: Body = {}
    for last in followed(readings(url, name, timeout_s=timeout_s), until=until):
        if shows:
            click.echo(printable(picture.line(last)))
    return last


def _say_requested(name: str, what: str, body: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(body)
    else:
        see = f"ureplicator cutover status {name} --watch"
        click.echo(f"{name}: {what} requested; see how far it is with {see}")


def _print_status(body: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(body)
    else:
        picture.print_status(body)


def _path(name: str, verb: str = "") -> str:
    return f"/cutovers/{quoted(name)}" + (f"/{verb}" if verb else "")
