"""`ureplicator apply`: bring a fleet to what a file says, and change nothing else.

It speaks to REST alone, and goes on after a refusal: each item is reported, and the exit code is 1 if one
was refused or failed. Repeated, it does what is left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ureplicator_cli import export_file as export_file
from ureplicator_cli.export_file import InvalidExport
from ureplicator_cli.fleet_file.results import (
    REFUSED,
    is_refused,
    print_counts,
    print_result,
    refuse_other_fleet,
)
from ureplicator_cli.fleet_file.steps import Step, steps
from ureplicator_cli.options import url_option
from ureplicator_cli.output import fail, print_json
from ureplicator_cli.rest_client import RestClient, RestFailure, quoted

_UNCHANGED = "unchanged"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--prune",
    is_flag=True,
    help="Also remove what FILE does not name, of the sections and routes that it has.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@url_option
def apply(file: Path, prune: bool, dry_run: bool, as_json: bool, url: str) -> None:
    """Bring the fleet to what a file says.

    FILE has the form of an export; of a topic all fields may be left out. What is already as FILE says is
    not touched, so the command can be repeated.
    """
    client, results = RestClient(url), []
    try:
        document = export_file.read(file)
        present = client.call("GET", "/export")
        refuse_other_fleet(document["fleet"], present["fleet"])
        for step in list(steps(document, present, prune=prune)):
            for result in _results(client, step, dry_run=dry_run):
                results.append(result)
                if not as_json and _is_shown(result):
                    print_result(result)
    except (InvalidExport, RestFailure) as error:
        fail(str(error))
    if as_json:
        print_json({"dryRun": dry_run, "items": results})
    else:
        print_counts(results, dry_run=dry_run)
    sys.exit(1 if any(map(is_refused, results)) else 0)


def _is_shown(result: Mapping[str, Any]) -> bool:
    return result["result"] != _UNCHANGED or is_refused(result)


def _results(client: RestClient, step: Step, *, dry_run: bool) -> Iterator[dict[str, Any]]:
    """Results of the items of a step. Raises RestFailure unless a controller judged it."""
    if step.body is None:
        yield _result(step.key, _UNCHANGED)
    elif step.undoes and dry_run:
        yield _result(step.key, "changed", step.undoes)
    else:
        yield from _requested(client, step, dry_run=dry_run)


def _requested(client: RestClient, step: Step, *, dry_run: bool) -> Iterator[dict[str, Any]]:
    path = "/" + "/".join(quoted(part) for part in step.path)
    dry = {} if step.undoes else {"dry_run": "true" if dry_run else "false"}
    method = "POST" if step.undoes else "PUT"
    try:
        response = client.call(method, path, query={**step.query, **dry}, body=step.body)
    except RestFailure as error:
        if not error.refused:
            raise
        yield from (_result(key, REFUSED, str(error)) for key in _keys(step))
        return
    if step.is_of_topics:
        yield from (_of_topic(step, outcome) for outcome in response["topics"])
    elif step.undoes:
        yield _result(step.key, "changed", step.undoes)
    else:
        shown = ("result", "changes", "refused")
        yield {"key": step.key} | {name: response[name] for name in shown}


def _keys(step: Step) -> list[str]:
    if not step.is_of_topics:
        return [step.key]
    assert step.body is not None
    names = (*step.body.get("topics", ()), *step.body.get("remove", ()))
    return [f"{step.key}{topic}" for topic in names]


def _of_topic(step: Step, outcome: Mapping[str, Any]) -> dict[str, Any]:
    result = {"key": f"{step.key}{outcome['topic']}"} | dict(outcome)
    problem = outcome.get("problem")
    if problem:
        field = f"{problem['field']}: " if problem["field"] else ""
        hint = f" ({problem['hint']})" if problem["hint"] else ""
        result["changes"] = [f"{field}{problem['detail']}{hint}"]
    if outcome["result"] == "kept":
        result["changes"] = ["the route's patterns want it (put it on the blacklist instead)"]
    return result


def _result(key: str, result: str, *changes: str) -> dict[str, Any]:
    return {"key": key, "result": result, "changes": list(changes), "refused": []}
