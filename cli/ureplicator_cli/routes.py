"""`ureplicator routes` and `ureplicator limits`: pausing a whole route, and limiting how fast is copied."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import click
import yaml

from ureplicator_cli.options import ListByDefault, client_options, route_options
from ureplicator_cli.output import confirm, end_if_json, print_table, warn
from ureplicator_cli.rest_client import quoted, request
from ureplicator_common.clock import utc_text
from ureplicator_common.printable import printable


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
    end_if_json(as_json, body)
    rows = [
        (name, "paused" if route["paused"] else "active", route["topics"], route["partitions"])
        for name, route in body["routes"].items()
    ]
    print_table("routes", ("route", "state", "topics", "partitions"), rows)


@routes.command("principals")
@client_options
@route_options
def list_principals(url: str, as_json: bool, src: str, dst: str) -> None:
    """List quotas and SCRAM users of the source that do not follow to the target."""
    body = request("GET", url, "/validation/principals", src=src, dst=dst)
    end_if_json(as_json, body)
    rows = [
        (row["route"], row["kind"], row["name"], row["source"], row["target"] or "none")
        for row in body["principals"]
    ]
    heads = ("route", "kind", "name", "source", "target")
    print_table("quotas and SCRAM users that differ", heads, rows)
    for row in body["notRead"]:
        warn(f"{row['kind']}s of {row['cluster']} are not known: {row['reason']}")


@routes.command("usage")
@client_options
@route_options
def list_usage(url: str, as_json: bool, src: str, dst: str) -> None:
    """List what was copied in the last day, and what it cost.

    As far as the controller that is asked has seen it.
    """
    body = request("GET", url, "/usage", src=src, dst=dst)
    end_if_json(as_json, body)
    rows = [
        (
            usage["route"],
            f"{usage['bytes'] / 1e9:.3f}",
            usage["records"],
            f"{usage['cpuSeconds'] / 3_600:.3f}",
            "" if usage["coreHoursPerTb"] is None else f"{usage['coreHoursPerTb']:.2f}",
            utc_text(usage["since"]),
        )
        for usage in body["usage"]
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


@routes.command("settings")
@client_options
@route_options
def list_settings(url: str, as_json: bool, src: str, dst: str) -> None:
    """List the settings of routes that can be changed while the fleet runs.

    They count for the whole fleet, in place of those of the controllers' files.
    """
    body = request("GET", url, "/routes", src=src, dst=dst)
    kept = ("settings", "changes", "refusal")
    shown = {
        route: {key: details[key] for key in kept} for route, details in body["routes"].items()
    }
    end_if_json(as_json, shown)
    rows = [
        (route, key, json.dumps(value), "changed" if key in details["changes"] else "")
        for route, details in body["routes"].items()
        for key, value in details["settings"].items()
    ]
    print_table("settings", ("route", "setting", "value", ""), rows)
    for route, details in body["routes"].items():
        if details["refusal"]:
            warn(f"{route}: the changes do not count: {details['refusal']}")


@routes.command("set")
@click.argument("route")
@click.argument("assignments", nargs=-1, required=True, metavar="SETTING=VALUE...")
@click.option("--dry-run", is_flag=True, help="Check the settings, and change nothing.")
@client_options
def set_settings(
    route: str, assignments: tuple[str, ...], dry_run: bool, url: str, as_json: bool
) -> None:
    """Change settings of ROUTE for the whole fleet.

    SETTING is as in the file, and VALUE is YAML: delivery=exactly_once, naming.prefix=west.,
    'auto_whitelist.include=[orders, clicks-.*]'. Partitions that run follow as after a change of the file.
    """
    _change(route, _assigned(assignments), url, as_json, dry_run=dry_run)


@routes.command("unset")
@click.argument("route")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING...")
@click.option("--dry-run", is_flag=True, help="Check the settings, and change nothing.")
@client_options
def unset_settings(
    route: str, settings: tuple[str, ...], dry_run: bool, url: str, as_json: bool
) -> None:
    """Let settings of ROUTE be as in the controllers' files again."""
    _change(route, _assigned([f"{name}=null" for name in settings]), url, as_json, dry_run=dry_run)


def _change(
    route: str, settings: Mapping[str, Any], url: str, as_json: bool, *, dry_run: bool
) -> None:
    path, query = f"/routes/{quoted(route)}/settings", {"dry_run": "true" if dry_run else ""}
    body = request("PUT", url, path, body={"settings": settings}, query=query)
    end_if_json(as_json, body)
    changes = json.dumps(body["changes"], sort_keys=True)
    text = changes if body["changes"] else "all settings are those of the file"
    click.echo(printable(f"{route}: {text}{' (dry run)' if dry_run else ''}"))


def _assigned(assignments: Iterable[str]) -> dict[str, Any]:
    """`naming.prefix=west.` -> `{"naming": {"prefix": "west."}}`."""
    found: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        section, dot, key = name.partition(".")
        if not equals or not section:
            raise click.BadParameter(f"{assignment!r} is not of the form SETTING=VALUE")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise click.BadParameter(f"{assignment!r}: the value is not YAML") from error
        if isinstance(value, date):
            value = text
        if not dot:
            found[section] = value
            continue
        within = found.setdefault(section, {})
        if not isinstance(within, dict):
            raise click.BadParameter(f"{section} is given as a whole and in part")
        within[key] = value
    return found


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
    end_if_json(as_json, body)
    rows = [
        (
            limit["kind"],
            limit["name"],
            _shown_rate(limit["bytesPerSecond"]),
            _shown_rate(limit["measuredBytesPerSecond"]),
        )
        for limit in body["limits"]
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
