"""The one command, `ureplicator`: it starts the roles, and it speaks to REST for people.

    ureplicator controller CONFIG --id c1          exit codes  0  done
    ureplicator worker CONFIG --id w1                          1  refused, failed, or not there
    ureplicator check-config CONFIG                            2  wrong usage
    ureplicator topics | instances | status | export | import

A role is imported only when it is asked for: a controller's image has no Spark, a worker's no Flask.
Failures are one line on stderr that says what and, where known, the cure. Tables are for people;
`--json` prints what REST answered, for machines.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ureplicator_common import rest_client
from ureplicator_common._version import __version__
from ureplicator_common.cli_backup import export_fleet, import_fleet
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.logs import set_up
from ureplicator_common.rest_client import RestClient, RestFailure
from ureplicator_common.settings import Settings, load_settings

F = TypeVar("F", bound=Callable[..., Any])

_ID = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_PAGE_WIDTH = 160
"""Of a table that is not written to a terminal: nothing there is cut."""


def main() -> None:
    cli(prog_name="ureplicator")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ureplicator")
def cli() -> None:
    """Copy topics between Kafka clusters."""


# --- Roles


def _role_options(command: F) -> F:
    """What the commands that read a configuration share."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key, as in controller.port=9001; may be repeated.",
    )(command)
    return click.argument("config", type=click.Path(path_type=Path))(command)


def _legal_id(context: click.Context, parameter: click.Parameter, name: str) -> str:
    """An id is the name of a node in ZooKeeper and part of Kafka's transactional ids."""
    if not _ID.fullmatch(name) or name in (".", ".."):
        raise click.BadParameter("1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


def _process_options(command: F) -> F:
    command = click.option("--log-json", is_flag=True, help="Log one JSON object per line.")(
        command
    )
    return click.option(
        "--id",
        "name",
        default=socket.gethostname,
        show_default="host name",
        callback=_legal_id,
        help="Name of this process; no two that live at the same time may share it.",
    )(command)


@cli.command()
@_role_options
@_process_options
def controller(config: Path, overrides: tuple[str, ...], name: str, log_json: bool) -> None:
    """Run a controller: it serves REST, and one of all controllers leads."""
    settings = _load(config, overrides)
    set_up(as_json=log_json)
    from ureplicator_controller import daemon

    code = daemon.run(
        settings, id=name, config=config.resolve(), overrides=overrides, log_json=log_json
    )
    raise SystemExit(code)


@cli.command()
@_role_options
@_process_options
def worker(config: Path, overrides: tuple[str, ...], name: str, log_json: bool) -> None:
    """Run a worker: it copies what the leader assigns to it."""
    settings = _load(config, overrides)
    set_up(as_json=log_json)
    from ureplicator_worker import daemon

    raise SystemExit(daemon.run(settings, id=name))


@cli.command("check-config")
@_role_options
def check_config(config: Path, overrides: tuple[str, ...]) -> None:
    """Say every fault of a configuration, or that there is none."""
    settings = _load(config, overrides)
    routes = ", ".join(str(route.route) for route in settings.routes)
    click.echo(f"{config}: good (fleet {settings.fleet}, routes {routes})")


def _load(config: Path, overrides: tuple[str, ...]) -> Settings:
    try:
        return load_settings(config, environ=os.environ, overrides=overrides)
    except ConfigurationError as error:
        _fail(str(error))


# --- Client of REST


def _client_options(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="Print REST's answer.")(command)
    return click.option(
        "--url",
        envvar="UREPLICATOR_URL",
        default=rest_client.DEFAULT_URL,
        show_default=True,
        help="Any controller of the fleet; also UREPLICATOR_URL.",
    )(command)


def _route_options(command: F) -> F:
    command = click.option("--dst", default="", help="Target cluster, to choose a route.")(command)
    return click.option("--src", default="", help="Source cluster, to choose a route.")(command)


class _ListByDefault(click.Group):
    """`topics` alone, or with options only, is `topics list`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        bare = not args or (args[0].startswith("-") and args[0] not in context.help_option_names)
        return super().parse_args(context, ["list", *args] if bare else args)


@cli.group(cls=_ListByDefault)
def topics() -> None:
    """List, add, expand, pause and delete topics."""


@topics.command("list")
@_client_options
@_route_options
def list_topics(url: str, as_json: bool, src: str, dst: str) -> None:
    """What is copied."""
    body = _ask("GET", url, "/topics", src=src, dst=dst)
    if as_json:
        _print_json(body)
        return
    for name in body["topics"]:
        click.echo(name)


@topics.command("show")
@click.argument("topic")
@_client_options
@_route_options
def show_topic(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Who copies each partition of a topic, and how far it is."""
    body = _ask("GET", url, f"/topics/{rest_client.quoted(topic)}", src=src, dst=dst)
    if as_json:
        _print_json(body)
        return
    title = f"{body['topic']} on {body['route']} -> {body['targetTopic']}, {body['state']}"
    heads = ("partition", "should be", "is", "position", "lag", "behind", "why not")
    _print_table(title, heads, _rows(body))
    if body.get("positionsReason"):
        _fail_softly(f"no positions: {body['positionsReason']}")


@topics.command("add")
@click.argument("topic")
@click.option("--partitions", type=int, help="How many of the source's; all by default.")
@_client_options
@_route_options
def add_topic(
    topic: str, partitions: int | None, url: str, as_json: bool, src: str, dst: str
) -> None:
    """Whitelist a topic; it is made on the target if it is missing there."""
    wish = {"topic": topic} | ({} if partitions is None else {"numPartitions": partitions})
    body = _ask("POST", url, "/topics", src=src, dst=dst, body=wish)
    _confirm(body, as_json, "{topic}: {partitions} partitions are copied on {route}")


@topics.command("expand")
@click.argument("topic")
@click.argument("partitions", type=int)
@_client_options
@_route_options
def expand_topic(topic: str, partitions: int, url: str, as_json: bool, src: str, dst: str) -> None:
    """Copy more partitions of a topic; the target grows with it."""
    wish = {"topic": topic, "numPartitions": partitions}
    body = _ask("PUT", url, "/topics", src=src, dst=dst, body=wish)
    _confirm(body, as_json, "{topic}: {partitions} partitions are copied on {route}")


@topics.command("delete")
@click.argument("topic")
@_client_options
@_route_options
def delete_topic(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Stop copying a topic; the target and its data stay."""
    body = _ask("DELETE", url, f"/topics/{rest_client.quoted(topic)}", src=src, dst=dst)
    _confirm(body, as_json, "{topic}: is no longer copied on {route}")


@topics.command("pause")
@click.argument("topic")
@_client_options
@_route_options
def pause_topic(topic: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Stop copying a topic for now; its positions are kept."""
    body = _ask("POST", url, f"/topics/{rest_client.quoted(topic)}/pause", src=src, dst=dst)
    _confirm(body, as_json, "{topic}: is {state} on {route}")


@topics.command("resume")
@click.argument("topic")
@click.option("--anew", is_flag=True, help="Of a topic that was deleted or made anew: copy all.")
@_client_options
@_route_options
def resume_topic(topic: str, anew: bool, url: str, as_json: bool, src: str, dst: str) -> None:
    """Go on copying a topic that was paused, from where it was."""
    path = f"/topics/{rest_client.quoted(topic)}/resume"
    body = _ask("POST", url, path, src=src, dst=dst, body={"anew": True} if anew else None)
    _confirm(body, as_json, "{topic}: is {state} on {route}")


class _ShowByDefault(click.Group):
    """`instances`, also with a worker's name or options, is `instances show`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in context.help_option_names)
        return super().parse_args(context, args if named else ["show", *args])


@cli.group(cls=_ShowByDefault)
def instances() -> None:
    """Show, drain and restore workers; `instances WORKER` is `instances show WORKER`."""


@instances.command("drain")
@click.argument("worker_id", metavar="WORKER")
@_client_options
def drain_instance(worker_id: str, url: str, as_json: bool) -> None:
    """Empty a worker, and give it nothing more until it is restored."""
    body = _ask("DELETE", url, f"/instances/{rest_client.quoted(worker_id)}")
    _confirm(body, as_json, "{worker}: is being emptied, and is given nothing more")


@instances.command("restore")
@click.argument("worker_id", metavar="WORKER")
@_client_options
def restore_instance(worker_id: str, url: str, as_json: bool) -> None:
    """Let a drained worker take part again."""
    body = _ask("POST", url, f"/instances/{rest_client.quoted(worker_id)}")
    _confirm(body, as_json, "{worker}: takes part again")


@instances.command("show")
@click.argument("worker_id", metavar="[WORKER]", required=False)
@_client_options
def show_instances(worker_id: str | None, url: str, as_json: bool) -> None:
    """The workers, or what one of them holds."""
    path = f"/instances/{rest_client.quoted(worker_id)}" if worker_id else "/instances"
    body = _ask("GET", url, path)
    if as_json:
        _print_json(body)
    elif worker_id:
        held = body["workers"][worker_id]["partitions"]
        heads = ("route", "topic", "partition", "state", "reason")
        _print_table(worker_id, heads, [tuple(each[head] for head in heads) for each in held])
    else:
        _print_workers(body["workers"])


@cli.command()
@_client_options
def status(url: str, as_json: bool) -> None:
    """Leader, counts, and every partition that is not as it should be."""
    ready = _ask("GET", url, "/ready")
    counts = _ask("GET", url, "/validation")
    if as_json:
        _print_json(ready | counts)
        return
    click.echo(f"leader      {ready['leader'] or 'none'}")
    click.echo(f"controllers {', '.join(ready['controllers']) or 'none'}")
    click.echo(f"workers     {', '.join(counts['IdealState']) or 'none'}")
    click.echo(f"topics      {counts['numTopics']}")
    click.echo(
        f"partitions  {counts['numTopicPartitions']}:"
        f" {counts['numOnlineTopicPartitions']} online,"
        f" {counts['numOfflineTopicPartitions']} offline,"
        f" {counts['numErrorTopicPartitions']} in error"
    )
    if counts["mismatches"]:
        rows = [
            (f"{each['topic']}/{each['partition']}", *_sides(each), each["reason"])
            for each in counts["mismatches"]
        ]
        _print_table("not as it should be", ("partition", "should be", "is", "why"), rows)


cli.add_command(export_fleet)
cli.add_command(import_fleet)


def _ask(
    method: str,
    url: str,
    path: str,
    *,
    src: str = "",
    dst: str = "",
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    query = {name: text for name, text in (("src", src), ("dst", dst)) if text}
    try:
        return RestClient(url).call(method, path, query=query, body=body)
    except RestFailure as error:
        _fail(str(error))


# --- Printing


def _rows(body: Mapping[str, Any]) -> list[tuple[str, ...]]:
    reasons = {each["partition"]: each["reason"] for each in body["mismatches"]}
    numbers = {*map(int, body["idealState"]), *map(int, body["externalView"])}
    return [
        (
            str(number),
            _states(body["idealState"].get(str(number), {})),
            _states(body["externalView"].get(str(number), {})),
            *_progress(found := body["progress"].get(str(number), {})),
            "; ".join(filter(None, (reasons.get(number, ""), _worry(found)))),
        )
        for number in sorted(numbers)
    ]


def _progress(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Position, lag, and for how long the next record has waited; empty where not known."""
    position, lag = found.get("position"), found.get("lagRecords")
    return (
        "" if position is None else str(position),
        "" if lag is None else str(lag),
        _duration(found.get("lagSeconds")),
    )


def _worry(found: Mapping[str, Any]) -> str:
    """What is wrong with the figures, or will be."""
    left_s = found.get("retentionSeconds")
    if found.get("reason"):
        return str(found["reason"])
    return f"the source may delete it in {_duration(left_s)}" if left_s and left_s < 3_600 else ""


def _duration(seconds: float | None) -> str:
    """For people: two digits of it are enough."""
    if seconds is None:
        return ""
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _sides(mismatch: Mapping[str, Any]) -> tuple[str, str]:
    return _states(mismatch["ideal"]), _states(mismatch["actual"])


def _states(said: Mapping[str, str]) -> str:
    return ", ".join(f"{worker} {state}" for worker, state in said.items()) or "nobody"


def _print_workers(workers: Mapping[str, Mapping[str, Any]]) -> None:
    heads = ("worker", "address", "slots", "should hold", "holds", "online", "in error")
    rows = [
        (
            name if each["live"] else f"{name} (gone)",
            f"{each['host']}:{each['port']}" if each["live"] and each["host"] else "",
            str(each["slots"]),
            str(each["idealPartitions"]),
            str(each["heldPartitions"]),
            str(each["onlinePartitions"]),
            str(each["errorPartitions"]),
        )
        for name, each in workers.items()
    ]
    _print_table("workers", heads, rows)


def _print_table(title: str, heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console = Console()
    console = console if console.is_terminal else Console(width=_PAGE_WIDTH)
    console.print(table)


def _print_json(body: Mapping[str, Any]) -> None:
    click.echo(json.dumps(body, indent=2))


def _confirm(body: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        _print_json(body)
    else:
        click.echo(sentence.format(**body))


def _fail(message: str) -> NoReturn:
    _fail_softly(message)
    raise SystemExit(1)


def _fail_softly(message: str) -> None:
    click.echo(message, err=True)


if __name__ == "__main__":
    main()
