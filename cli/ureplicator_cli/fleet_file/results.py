"""Results of the items of a file, as text: what `import` and `apply` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from ureplicator_cli.export_file import InvalidExport

REFUSED = "refused"
_NOT_DONE = (REFUSED, "failed")
_PARTLY_REFUSED = "partly refused"


def refuse_other_fleet(exported: str, present: str) -> None:
    if exported != present:
        raise InvalidExport(
            f"fleet: the file is of fleet {exported}, this is fleet {present}, which has other"
            " positions (change the name in the file to import it anyway)"
        )


def is_refused(result: Mapping[str, Any]) -> bool:
    """True if the item was refused, wholly or in part, or failed."""
    return result["result"] in _NOT_DONE or bool(result["refused"])


def print_result(result: Mapping[str, Any]) -> None:
    changes = "; ".join(result["changes"])
    is_done = result["result"] not in _NOT_DONE
    separator = ": " if is_done else "."
    text = f"{result['key']}{separator}{changes}" if changes else result["key"]
    click.echo(f"{result['result']:<9} {text}", err=not is_done)
    for refusal in result["refused"]:
        reason = f"{refusal['field']}: {refusal['detail']} ({refusal['hint']})"
        click.echo(f"{REFUSED:<9} {result['key']}.{reason}", err=True)
    for warning in result.get("warnings", ()):
        click.echo(f"{'warning':<9} {result['key']}: {warning}", err=True)


def print_counts(results: list[dict[str, Any]], *, dry_run: bool) -> None:
    counts = Counter(result["result"] for result in results)
    if partly := sum(bool(result["refused"]) for result in results):
        counts[_PARTLY_REFUSED] = partly
    text = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    click.echo(f"{text or 'no items'}{' (dry run: nothing was written)' if dry_run else ''}")
