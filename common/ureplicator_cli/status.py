"""`ureplicator status` and `ureplicator instances`: how the fleet is, and its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.output import (
    ask,
    client_options,
    confirm,
    print_json,
    print_table,
    states,
    switch_states,
    worker_name,
)
from ureplicator_cli.rest_client import quoted


class _ShowByDefault(click.Group):
    """`instances`, also with a worker's name or options, is `instances show`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in context.help_option_names)
        return super().parse_args(context, args if named else ["show", *args])


@click.group(cls=_ShowByDefault)
def instances() -> None:
    """Show, drain and restore workers; `instances WORKER` is `instances show WORKER`."""


@instances.command("drain")
@click.argument("worker_id", metavar="WORKER")
@client_options
def drain_instance(worker_id: str, url: str, as_json: bool) -> None:
    """Empty a worker, and give it nothing more until it is restored."""
    body = ask("DELETE", url, f"/instances/{quoted(worker_id)}")
    confirm(body, as_json, "{worker}: is being emptied, and is given nothing more")


@instances.command("restore")
@click.argument("worker_id", metavar="WORKER")
@client_options
def restore_instance(worker_id: str, url: str, as_json: bool) -> None:
    """Let a drained worker take part again."""
    body = ask("POST", url, f"/instances/{quoted(worker_id)}")
    confirm(body, as_json, "{worker}: takes part again")


@instances.command("show")
@click.argument("worker_id", metavar="[WORKER]", required=False)
@client_options
def show_instances(worker_id: str | None, url: str, as_json: bool) -> None:
    """The workers, or what one of them holds."""
    path = f"/instances/{quoted(worker_id)}" if worker_id else "/instances"
    body = ask("GET", url, path)
    if as_json:
        print_json(body)
    elif worker_id:
        shown = body["workers"][worker_id]
        heads = ("route", "topic", "partition", "state", "reason")
        rows = [tuple(each[head] for head in heads) for each in shown["partitions"]]
        print_table(worker_name(worker_id, shown), heads, rows)
    else:
        _print_workers(body["workers"])


@click.command()
@client_options
def status(url: str, as_json: bool) -> None:
    """Leader, switches, counts, and every partition that is not as it should be."""
    ready = ask("GET", url, "/ready")
    switches = ask("GET", url, "/admin/autobalancing_status") | ask("GET", url, "/admin/freeze")
    counts = ask("GET", url, "/validation")
    if as_json:
        print_json(ready | switches | counts)
        return
    shown = ask("GET", url, "/instances")["workers"]
    workers = [worker_name(name, shown.get(name)) for name in counts["IdealState"]]
    click.echo(f"leader      {ready['leader'] or 'none'}")
    click.echo(f"controllers {', '.join(ready['controllers']) or 'none'}")
    click.echo(f"workers     {', '.join(workers) or 'none'}")
    click.echo(f"switches    {switch_states(**switches)}")
    click.echo(f"topics      {counts['numTopics']}")
    click.echo(
        f"partitions  {counts['numTopicPartitions']}:"
        f" {counts['numOnlineTopicPartitions']} online,"
        f" {counts['numOfflineTopicPartitions']} offline{_at_rest(counts)},"
        f" {counts['numErrorTopicPartitions']} in error"
    )
    if counts["mismatches"]:
        rows = [
            (f"{each['topic']}/{each['partition']}", *_sides(each), each["reason"])
            for each in counts["mismatches"]
        ]
        print_table("not as it should be", ("partition", "should be", "is", "why"), rows)


def _at_rest(counts: Mapping[str, Any]) -> str:
    """What is offline because somebody, or the leader, wants it so."""
    told = [
        f"{counts[f'num{word.title()}TopicPartitions']} {word}"
        for word in ("paused", "blacklisted", "stopped")
        if counts[f"num{word.title()}TopicPartitions"]
    ]
    return f" ({', '.join(told)})" if told else ""


def _sides(mismatch: Mapping[str, Any]) -> tuple[str, str]:
    return states(mismatch["ideal"]), states(mismatch["actual"])


def _print_workers(workers: Mapping[str, Mapping[str, Any]]) -> None:
    heads = ("worker", "address", "slots", "should hold", "holds", "online", "in error")
    rows = [
        (
            worker_name(name, each),
            f"{each['host']}:{each['port']}" if each["live"] and each["host"] else "",
            str(each["slots"]),
            str(each["idealPartitions"]),
            str(each["heldPartitions"]),
            str(each["onlinePartitions"]),
            str(each["errorPartitions"]),
        )
        for name, each in workers.items()
    ]
    print_table("workers", heads, rows)
