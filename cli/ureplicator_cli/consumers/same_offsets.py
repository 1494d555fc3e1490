"""`ureplicator offsets same`: an audit for which a record at another offset differs.

exit code 0  each record has the same offset on both sides
exit code 1  records differ, or their offsets
exit code 2  not proved: could not be compared, or not to the end
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ureplicator_cli.audit_run import end_with, find_route, read_copied_as, read_settings, run
from ureplicator_cli.options import audit_options, config_file_options
from ureplicator_cli.output import print_json
from ureplicator_common.printable import printable

if TYPE_CHECKING:
    from ureplicator_worker.audit.result import AuditResult, Finding, PartitionResult


@click.command("same")
@click.argument("topic")
@config_file_options
@audit_options
def same(
    topic: str,
    config: Path,
    overrides: tuple[str, ...],
    route_name: str,
    numbers: tuple[int, ...],
    rate: int,
    master: str,
    as_json: bool,
) -> None:
    """Prove that each record of a topic has the same offset at the target.

    Reads both logs, record by record, from the first offset that both still have to the committed position.
    It is an audit: CONFIG, ZooKeeper, Java and both clusters are at hand, and no controller is needed. Exit
    code 0: same, 1: different, 2: could not be compared.
    """
    settings = read_settings(config, overrides)
    route = find_route(settings, route_name)
    copied = read_copied_as(settings, route, topic)
    from ureplicator_worker.audit.prepare import Wanted
    from ureplicator_worker.audit.result import AuditOptions
    from ureplicator_worker.auditor.command import Command

    wanted = Wanted(
        fleet=settings.fleet,
        route=route.route,
        topic=topic,
        settings=copied.settings,
        target_topic=copied.target_topic,
        numbers=numbers,
    )
    options = AuditOptions(rate_bytes_per_s=rate, same_offsets=True)
    command = Command(wanted, options, spark={"spark.master": master})
    result = run(settings, command, quiet=as_json, recorded=False).result
    if as_json:
        print_json(result.to_json())
    else:
        _print(result)
    end_with(result)


def _print(result: AuditResult) -> None:
    click.echo(f"{result.topic} on {result.route} -> {result.target_topic}")
    for part in result.partitions:
        found = [finding for finding in result.findings if finding.partition == part.partition]
        click.echo(printable(f"partition {part.partition}: {'; '.join(_said(part, found))}"))
    for note in result.notes:
        click.echo(printable(note))


def _said(part: PartitionResult, findings: list[Finding]) -> Iterator[str]:
    compared = f"from {max(0, part.verified_from)} to {max(0, part.verified_to)}"
    same = f"{part.compared - part.shifted:,} records"
    if findings:
        yield f"different {compared} ({same} are the same): {_first(findings)}"
        yield ", ".join(_counts(part))
    elif part.uncompared or not part.complete:
        yield f"not compared to {part.end}"
    else:
        yield f"same {compared} ({same})"
    yield from filter(None, (part.uncompared, *part.notes))


def _counts(part: PartitionResult) -> Iterator[str]:
    for kind in ("shifted", "missing", "repeated", "altered", "reordered", "foreign"):
        if count := getattr(part, kind):
            yield f"{count:,} {kind}"


def _first(findings: list[Finding]) -> str:
    """First difference in the order of the logs."""
    first = min(findings, key=_place)
    here, there = first.source_offset, first.target_offset
    if there < 0:
        return f"{here} is not at the target"
    if here < 0:
        return f"{there} of the target is not at the source"
    moved = f", and is at {there} of the target" if here != there else ""
    if first.detail:
        return f"{here} has another {first.detail}{moved}"
    again = " again" if first.kind.value == "repeated" else ""
    return f"{here} is{again} at {there} of the target"


def _place(finding: Finding) -> int:
    known = [offset for offset in (finding.source_offset, finding.target_offset) if offset >= 0]
    return min(known, default=0)
