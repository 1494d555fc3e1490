"""`ureplicator audit`: compare a topic with its copy, record by record.

It reads both clusters itself, so it needs the configuration, ZooKeeper and Java, and no controller.

    exit code 0  equal
    exit code 1  records differ
    exit code 2  not verified: could not be compared, or not to the end
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ureplicator_cli.audit_run import (
    end_with,
    find_route,
    read_copied_as,
    read_settings,
    refuse,
    run,
)
from ureplicator_cli.options import audit_options, config_options
from ureplicator_cli.output import print_json, print_table

if TYPE_CHECKING:
    from ureplicator_worker.audit.offset_map import Mapped
    from ureplicator_worker.audit.prepare import Bound
    from ureplicator_worker.audit.repair import Repaired
    from ureplicator_worker.audit.result import AuditResult
    from ureplicator_worker.auditor.command import Done

SHOWN = 20


@click.command()
@config_options
@click.option("--topic", required=True, help="Topic of the source.")
@click.option(
    "--from",
    "first",
    default="",
    help="Begin, inclusive: source offset, or time (2026-01-31T12:00Z).",
)
@click.option("--to", "end", default="", help="End, exclusive: the same; at most the position.")
@click.option("--result", "folder", type=click.Path(path_type=Path), help="Folder of the result.")
@click.option("--resume", is_flag=True, help="Go on from the result in --result.")
@click.option("--repair", is_flag=True, help="Copy missing records again where no order is broken.")
@click.option(
    "--offset-map",
    "offset_map",
    is_flag=True,
    help="Add what was copied before the route's offset map to it.",
)
@click.option("--max-findings", type=click.IntRange(0), default=10_000, show_default=True)
@audit_options
def audit(
    config: Path,
    topic: str,
    route_name: str,
    numbers: tuple[int, ...],
    first: str,
    end: str,
    folder: Path | None,
    resume: bool,
    rate: int,
    repair: bool,
    offset_map: bool,
    max_findings: int,
    master: str,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare a topic with its copy, record by record.

    Reads both clusters with other code than the workers, up to the committed position, and names each
    missing, repeated, altered, reordered, foreign or shifted record. CONFIG is the file of the fleet, and the
    settings of the route are read in ZooKeeper; no controller is needed. Exit code 0: equal,
    1: different, 2: could not be compared.
    """
    if not topic:
        raise click.UsageError("--topic is empty: name a topic of the source")
    if resume and folder is None:
        raise click.UsageError("--resume needs --result")
    if resume and first:
        raise click.UsageError("--resume goes on where the result ends: leave --from out")
    if resume and offset_map:
        raise click.UsageError("--offset-map needs all records: leave --resume out")
    settings = read_settings(config, overrides)
    route = find_route(settings, route_name)
    bounds = _bounds(first, end)
    copied = read_copied_as(settings, route, topic)
    if offset_map and not copied.settings.offset_map:
        refuse(f"--offset-map: the route {route.route} has no map: set offset_map: true for it")
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
        first=bounds[0],
        end=bounds[1],
    )
    options = AuditOptions(rate_bytes_per_s=rate, max_findings=max_findings, segments=offset_map)
    command = Command(
        wanted,
        options,
        folder,
        resume=resume,
        repair=repair,
        offset_map=offset_map,
        spark={"spark.master": master},
    )
    done = run(settings, command, quiet=as_json)
    _print(done, folder, as_json)
    end_with(done.result)


def _bounds(first: str, end: str) -> tuple[Bound | None, Bound | None]:
    """Begin and end; an offset and a time are not compared."""
    bounds = begin, until = _bound(first, "--from"), _bound(end, "--to")
    if begin is not None and until is not None:
        alike = (begin.offset < 0) is (until.offset < 0)
        if alike and (begin.offset, begin.timestamp_ms) >= (until.offset, until.timestamp_ms):
            raise click.UsageError(f"--from: {first} is not before --to {end}")
    return bounds


def _bound(text: str, option: str) -> Bound | None:
    from ureplicator_worker.audit.prepare import Bound

    if not text:
        return None
    if text.isdecimal():
        return Bound(offset=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{option}: {text!r} is neither an offset nor a time") from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Bound(timestamp_ms=max(0, round(aware.timestamp() * 1_000)))


def _print(done: Done, folder: Path | None, as_json: bool) -> None:
    from ureplicator_worker.audit.result import FindingKind

    result = done.result
    if as_json:
        print_json(
            {
                **result.to_json(),
                "repaired": [_shown_repair(repair) for repair in done.repaired],
                "offsetMap": [_shown_map(mapped) for mapped in done.mapped],
            }
        )
        return
    heads = ("partition", "verified", "equal", *(kind.value for kind in FindingKind), "notes")
    rows = [
        (
            partition.partition,
            f"{partition.verified_from} to {partition.verified_to}"
            if partition.verified_to >= 0
            else "nothing",
            *(f"{getattr(partition, name):,}" for name in ("compared", *heads[3:-1])),
            "; ".join(partition.notes),
        )
        for partition in result.partitions
    ]
    title = f"{result.topic} on {result.route} -> {result.target_topic}: {result.state}"
    print_table(title, heads, rows)
    _print_findings(result)
    for repair in done.repaired:
        _print_repaired(repair)
    for mapped in done.mapped:
        click.echo(f"partition {mapped.partition}: offset map: {_map_text(mapped)}")
    for line in (*result.notes, *(f"next: {step}" for step in result.next_steps)):
        click.echo(line)
    if folder is not None:
        click.echo(f"result: {folder}")


def _print_findings(result: AuditResult) -> None:
    if result.findings:
        heads = ("partition", "what", "source offset", "target offset", "detail")
        rows: list[tuple[Any, ...]] = [
            (
                finding.partition,
                finding.kind.value,
                *("" if n < 0 else n for n in (finding.source_offset, finding.target_offset)),
                finding.detail,
            )
            for finding in result.findings[:SHOWN]
        ]
        more = len(result.findings) - SHOWN
        print_table(f"findings{f', {more:,} more are in the result' * (more > 0)}", heads, rows)


def _print_repaired(each: Repaired) -> None:
    click.echo(f"partition {each.partition}: {len(each.copied):,} missing records copied again")
    reasons: dict[str, int] = {}
    for why in each.refused.values():
        reason = why.partition(", at offset")[0]
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        click.echo(f"partition {each.partition}: {count:,} not copied: {reason}")


def _shown_repair(each: Repaired) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "copied": list(each.copied),
        "refused": {str(offset): why for offset, why in each.refused.items()},
    }


def _shown_map(each: Mapped) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "segments": len(each.segments),
        "from": each.first if each.segments else None,
        "to": each.end if each.segments else None,
        "reason": each.reason,
    }


def _map_text(each: Mapped) -> str:
    if not each.segments:
        return f"nothing added: {each.reason}"
    count = len(each.segments)
    return f"source offsets {each.first} to {each.end} added, {count:,} segment{'s' * (count > 1)}"
