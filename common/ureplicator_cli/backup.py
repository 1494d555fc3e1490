"""`ureplicator export` and `ureplicator import`: what operators asked of a fleet, as a file.

Both speak to REST alone, so no access to ZooKeeper is needed. An import goes on after what is refused:
each item is told, also what of it could not be done, and the exit code is 1 if there was anything.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ureplicator_cli import backup_file, rest_client
from ureplicator_cli.backup_file import BadBackup, Item
from ureplicator_cli.rest_client import RestClient, RestFailure

_REFUSED = "refused"
_IN_PART = "refused in part"
_url_option = click.option(
    "--url",
    envvar="UREPLICATOR_URL",
    default=rest_client.DEFAULT_URL,
    show_default=True,
    help="Any controller of the fleet; also UREPLICATOR_URL.",
)


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@_url_option
def export_fleet(file: Path | None, url: str) -> None:
    """Write topics, blacklists, switches and workers set aside to FILE, or to standard output."""
    try:
        text = backup_file.to_yaml(RestClient(url).call("GET", "/export"))
        if file is None:
            click.echo(text, nl=False)
        else:
            file.write_text(text, encoding="utf-8")
    except RestFailure as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{file} cannot be written: {error.strerror} (name a file in a folder that is there)")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for machines.")
@_url_option
def import_fleet(file: Path, dry_run: bool, as_json: bool, url: str) -> None:
    """Bring a fleet to what FILE says; what FILE does not name is left alone. Safe to repeat."""
    client = RestClient(url)
    results = []
    try:
        document = backup_file.read(file)
        wanted = list(backup_file.items(document))
        _refuse_other_fleet(document["fleet"], client.call("GET", "/export")["fleet"])
        for item in wanted:
            results.append(_restore(client, item, dry_run=dry_run))
            if not as_json:
                _print(results[-1])
    except (BadBackup, RestFailure) as error:
        _fail(str(error))
    counts = Counter(result["result"] for result in results)
    if in_part := sum(bool(result["refused"]) for result in results):
        counts[_IN_PART] = in_part
    if as_json:
        click.echo(json.dumps({"dryRun": dry_run, "items": results}, indent=2))
    else:
        told = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
        click.echo(f"{told or 'nothing'}{' (dry run: nothing was done)' if dry_run else ''}")
    sys.exit(1 if counts[_REFUSED] or counts[_IN_PART] else 0)


def _refuse_other_fleet(wanted: str, there: str) -> None:
    if wanted != there:
        raise BadBackup(
            f"fleet: the file is of fleet {wanted}, this is {there}, which has other positions"
            " (change the name in the file if you mean it)"
        )


def _restore(client: RestClient, item: Item, *, dry_run: bool) -> dict[str, Any]:
    """Key, result and changes of one item. Raises RestFailure if nobody could judge it."""
    path = "/import/" + "/".join(rest_client.quoted(part) for part in item.path)
    query = {"dryRun": "true" if dry_run else "false"}
    if item.route is not None:
        query |= {"src": item.route.source, "dst": item.route.target}
    if item.listed is not None:
        query["listed"] = "true" if item.listed else "false"
    try:
        answer = client.call("PUT", path, query=query, body=item.body)
    except RestFailure as error:
        if not error.refused:
            raise
        return {"key": item.key, "result": _REFUSED, "changes": [str(error)], "refused": []}
    return {"key": item.key} | {name: answer[name] for name in ("result", "changes", "refused")}


def _print(result: Mapping[str, Any]) -> None:
    changes = "; ".join(result["changes"])
    separator = "." if result["result"] == _REFUSED else ": "
    told = f"{result['key']}{separator}{changes}" if changes else result["key"]
    click.echo(f"{result['result']:<9} {told}", err=result["result"] == _REFUSED)
    for each in result["refused"]:
        why = f"{each['field']}: {each['detail']} ({each['hint']})"
        click.echo(f"{_REFUSED:<9} {result['key']}.{why}", err=True)


def _fail(message: str) -> None:
    click.echo(message, err=True)
    sys.exit(1)
