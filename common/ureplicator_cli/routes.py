"""`ureplicator routes` and `ureplicator limits`: pausing a whole route, and limiting how fast is copied."""

from __future__ import annotations

import re

import click

from ureplicator_cli.options import ListByDefault, client_options, route_options
from ureplicator_cli.output import confirm, print_json, print_table, warn
from ureplicator_cli.rest_client import quoted, request
from ureplicator_common.clock import utc_text


@click.group(cls=ListByDefault)
def routes() -> None:
    """List, pause and resume routes.

    Without a command, lists the routes.
    """


@routes.command("list")
@client_options
def list_routes(url: str, as_json: bool) -> None:
    """List the routes, with their state."""
    body = request("GET", url, "/routes")
    if as_json:
        print_json(body)
        return
    rows = [
        (name, "paused" if each["paused"] else "active", each["topics"], each["partitions"])
        for name, each in body["routes"].items()
    ]
    print_table("routes", ("route", "state", "topics", "partitions"), rows)


@routes.command("principals")
@client_options
@route_options
def list_principals(url: str, as_json: bool, src: str, dst: str) -> None:
    """List quotas and SCRAM users of the source that do not follow to the target."""
    body = request("GET", url, "/validation/principals", src=src, dst=dst)
    if as_json:
        print_json(body)
        return
    rows = [
        (each["route"], each["kind"], each["name"], each["source"], each["target"] or "none")
        for each in body["principals"]
    ]
    heads = ("route", "kind", "name", "source", "target")
    print_table("quotas and SCRAM users that differ", heads, rows)
    for each in body["notRead"]:
        warn(f"{each['kind']}s of {each['cluster']} are not known: {each['reason']}")


@routes.command("usage")
@client_options
@route_options
def list_usage(url: str, as_json: bool, src: str, dst: str) -> None:
    """List what was copied in the last day, and what it cost.

    As far as the controller that is asked has seen it.
    """
    body = request("GET", url, "/usage", src=src, dst=dst)
    if as_json:
        print_json(body)
        return
    rows = [
        (
            each["route"],
            f"{each['bytes'] / 1e9:.3f}",
            each["records"],
            f"{each['cpuSeconds'] / 3_600:.3f}",
            "" if each["coreHoursPerTb"] is None else f"{each['coreHoursPerTb']:.2f}",
            utc_text(each["since"]),
        )
        for each in body["usage"]
    ]
    heads = ("route", "GB", "records", "core-hours", "core-hours/TB", "since")
    print_table("copied in the last day", heads, rows)


@routes.command("pause")
@click.argument("route")
@client_options
def pause_route(route: str, url: str, as_json: bool) -> None:
    """Stop copying all topics of ROUTE until it is resumed.

    ROUTE is SOURCE.TARGET. Positions are kept; topics that are added meanwhile wait too.
    """
    body = request("POST", url, f"/routes/{quoted(route)}/pause")
    confirm(body, as_json, "{route}: is paused")


@routes.command("resume")
@click.argument("route")
@client_options
def resume_route(route: str, url: str, as_json: bool) -> None:
    """Resume a paused ROUTE at its positions.

    Topics that were paused themselves stay paused.
    """
    body = request("POST", url, f"/routes/{quoted(route)}/resume")
    confirm(body, as_json, "{route}: is active")


_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMG]?)(?:B(?:/s)?)?")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_KINDS = ("route", "topic", "worker")


def _rate(context: click.Context, parameter: click.Parameter, text: str) -> int:
    """`2.5MB/s` -> 2500000."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise click.BadParameter("bytes per second, as in 500kB/s, 2.5MB/s or 1G")
    return round(float(found[1]) * _FACTORS[found[2]])


def _shown_rate(rate: int) -> str:
    """2500000 -> `2.5 MB/s`."""
    unit = next((unit for unit in "GMk" if rate >= _FACTORS[unit]), "")
    return f"{rate / _FACTORS[unit]:.4g} {unit}B/s"


@click.group(cls=ListByDefault)
def limits() -> None:
    """List, set and clear byte limits of routes, topics and workers.

    Without a command, lists the limits.
    """


@limits.command("list")
@client_options
def list_limits(url: str, as_json: bool) -> None:
    """List the limits, with what is copied now."""
    body = request("GET", url, "/limits")
    if as_json:
        print_json(body)
        return
    rows = [
        (
            each["kind"],
            each["name"],
            _shown_rate(each["bytesPerSecond"]),
            _shown_rate(each["measuredBytesPerSecond"]),
        )
        for each in body["limits"]
    ]
    print_table("limits", ("kind", "name", "limit", "measured"), rows)


@limits.command("set")
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("name")
@click.argument("rate", callback=_rate)
@client_options
@route_options
def set_limit(kind: str, name: str, rate: int, url: str, as_json: bool, src: str, dst: str) -> None:
    """Limit the bytes per second that are fetched.

    NAME is of a route (SOURCE.TARGET), a topic or a worker. RATE is as in 500kB/s, 2.5MB/s or 1G. It
    counts at once, for what is copied already too.
    """
    body = {"bytesPerSecond": rate}
    changed = request("PUT", url, f"/limits/{kind}s/{quoted(name)}", src=src, dst=dst, body=body)
    confirm(changed, as_json, f"{{kind}} {{name}}: at most {_shown_rate(rate)}")


@limits.command("clear")
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("name")
@client_options
@route_options
def clear_limit(kind: str, name: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Remove a limit."""
    changed = request("DELETE", url, f"/limits/{kind}s/{quoted(name)}", src=src, dst=dst)
    confirm(changed, as_json, "{kind} {name}: is not limited")
