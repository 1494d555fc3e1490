"""`ureplicator export` and `ureplicator import`: what operators requested of a fleet, as a file.

Both speak to REST alone, so they need no access to ZooKeeper. An import continues after a refusal: each
item is reported, with what of it was refused, and the exit code is 1 if anything was.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ureplicator_cli import export_file as export_file
from ureplicator_cli.export_file import InvalidExport, Item
from ureplicator_cli.fleet_file.results import (
    REFUSED,
    is_refused,
    print_counts,
    print_result,
    refuse_other_fleet,
)
from ureplicator_cli.options import url_option
from ureplicator_cli.output import fail, print_json
from ureplicator_cli.rest_client import RestClient, RestFailure, quoted


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@url_option
def export_fleet(file: Path | None, url: str) -> None:
    """Write the fleet's topics and settings to a file.

    FILE receives topics, blacklists, switches and drained workers as YAML; standard output without
    it. Positions are not part of it.
    """
    try:
        text = export_file.to_yaml(RestClient(url).call("GET", "/export"))
        if file is None:
            click.echo(text, nl=False)
        else:
            file.write_text(text, encoding="utf-8")
    except RestFailure as error:
        fail(str(error))
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror} (name a file in an existing directory)")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@url_option
def import_fleet(file: Path, dry_run: bool, as_json: bool, url: str) -> None:
    """Bring a fleet to what an exported file holds.

    What FILE names is created or changed; what FILE does not name is left alone. Safe to repeat.
    """
    client = RestClient(url)
    results = []
    try:
        document = export_file.read(file)
        items = list(export_file.items(document))
        refuse_other_fleet(document["fleet"], client.call("GET", "/export")["fleet"])
        for item in items:
            results.append(_import(client, item, dry_run=dry_run))
            if not as_json:
                print_result(results[-1])
    except (InvalidExport, RestFailure) as error:
        fail(str(error))
    if as_json:
        print_json({"dryRun": dry_run, "items": results})
    else:
        print_counts(results, dry_run=dry_run)
    sys.exit(1 if any(is_refused(result) for result in results) else 0)


def _import(client: RestClient, item: Item, *, dry_run: bool) -> dict[str, Any]:
    """Key, result and changes of one item. Raises RestFailure unless a controller judged it."""
    path = "/import/" + "/".join(quoted(part) for part in item.path)
    query = {"dry_run": "true" if dry_run else "false"}
    if item.route is not None:
        query |= {"src": item.route.source, "dst": item.route.target}
    if item.listed is not None:
        query["listed"] = "true" if item.listed else "false"
    try:
        response = client.call("PUT", path, query=query, body=item.body)
    except RestFailure as error:
        if not error.refused:
            raise
        return {"key": item.key, "result": REFUSED, "changes": [str(error)], "refused": []}
    shown = ("result", "changes", "refused", "warnings")
    return {"key": item.key} | {name: response[name] for name in shown if name in response}
