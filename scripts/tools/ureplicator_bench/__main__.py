"""`scripts/bench`: copy the same topics with this replicator and with MirrorMaker 2, and compare.

Both use the same brokers, the same full topic and an empty target topic with as many partitions, one after
the other. The first copies, on brokers that have just started, are shown as cold. Then each copies for the
same time unmeasured, since the brokers of a cluster in use have long compiled the code paths of both, and is
measured twice, in both orders; then once with a fresh topic, which nobody has read. All processes of either
count: here a controller with its REST server, a driver, its JVM and the copiers; there one JVM.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import click
from confluent_kafka import KafkaException

from ureplicator_bench import memory, page_cache, rows
from ureplicator_bench.comparison import BenchOptions, compare, contenders_of, lag_under_load
from ureplicator_bench.contenders import Contender, MirrorMaker, Ours
from ureplicator_bench.copying import Copying
from ureplicator_bench.fleets import idle
from ureplicator_bench.load import Profile
from ureplicator_bench.measurements import ALONE, COUNTED
from ureplicator_bench.report import CONSOLE, print_memory, print_progress, printed
from ureplicator_bench.same_offsets import costs
from ureplicator_bench.servers import Line, running
from ureplicator_cli.rest_client import RestFailure
from ureplicator_common.model import Delivery
from ureplicator_testkit.records.topics import CODECS
from ureplicator_testkit.servers.java import KAFKA_VERSION, NotSetUpError
from ureplicator_testkit.servers.processes import remove_folder, stop_guard
from ureplicator_testkit.servers.stack import LOCAL

FOLDER = LOCAL / "bench"
PROFILES = {
    profile.name: profile
    for profile in (
        Profile("1k", records=1_500_000, size=1_000),
        Profile("100b", records=6_000_000, size=100),
        Profile("10k", records=200_000, size=10_000),
        Profile("lz4", records=1_500_000, size=1_000, codec="lz4"),
    )
}
MEMORY = Profile("memory", records=5_000_000, size=1_000)
SAME = Profile("1k", records=6_000_000, size=1_000)
"""A copy takes ten seconds, so that two of them differ by little."""


def _count_option(
    flag: str, name: str, least: int, what: str, *, default: int = 0
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option with a number, which may be left out if there is a default."""
    if not default:
        return click.option(flag, name, type=click.IntRange(least), help=what)
    kind, text = click.IntRange(least), f"{what}; {default:,} without a number."
    return click.option(flag, name, type=kind, is_flag=False, flag_value=default, help=text)


@click.command(help=(__doc__ or "").partition("`: ")[2])
@click.option(
    "--profile",
    "names",
    type=click.Choice([*PROFILES]),
    multiple=True,
    help="May be repeated; default: 1k and 100b; of --spark and --sql: 1k.",
)
@click.option("--records", type=click.IntRange(10_000), help="Records, in place of the profile's.")
@click.option("--size", type=click.IntRange(10, 900_000), help="Bytes of a value.")
@click.option("--codec", type=click.Choice(CODECS))
@click.option("--partitions", type=click.IntRange(1, 1_000))
@click.option("--batch-bytes", type=click.IntRange(1_000), help="Most bytes of a batch.")
@click.option(
    "--mm2",
    type=click.Choice(["tuned", "default", "none"]),
    default="tuned",
    show_default=True,
    help="How MirrorMaker 2 is configured; none: leave it out.",
)
@click.option(
    "--delivery",
    "deliveries",
    type=click.Choice([delivery.value for delivery in Delivery]),
    multiple=True,
    help="Delivery of this replicator; may be repeated; default: at_least_once; of --sql: both.",
)
@click.option(
    "--handler",
    default="",
    metavar="MODULE:FACTORY",
    help="Have this replicator's records go through a handler.",
)
@click.option(
    "--latency-seconds", type=float, default=20.0, show_default=True, help="0: no latency."
)
@click.option(
    "--load",
    "load_seconds",
    type=float,
    default=0.0,
    help="Measure lag under 50 and 80 % of the capacity instead, so many seconds each; all deliveries of "
    "this replicator at the same rates, parts of the smallest capacity among them.",
)
@click.option(
    "--spark",
    is_flag=True,
    help="One slot here, one on a Spark cluster, and Structured Streaming instead.",
)
@click.option("--sql", is_flag=True, help="Have the records go through a filter of SQL instead.")
@click.option(
    "--same-offsets",
    "same",
    is_flag=True,
    help="What the same offsets cost beside mapped ones instead: without gaps, with gaps, and from an "
    "offset far up; exactly once, without MirrorMaker 2, 15 minutes. With --load: a route of this kind "
    "beside the others.",
)
@click.option(
    "--from-offset",
    type=click.IntRange(1_000),
    help="With --same-offsets: only the beginning of a log at this offset.",
)
@click.option("--tls", is_flag=True, help="Mutual TLS between the replicators and the brokers.")
@click.option(
    "--round-trip-ms",
    type=click.IntRange(0),
    default=0,
    help="Distance of the target; not with TLS.",
)
@click.option(
    "--deadline", type=float, default=300.0, show_default=True, help="Seconds for one copy."
)
@click.option("--memory", "only_memory", is_flag=True, help="Copy 5 GB and show memory instead.")
@click.option("--control", "only_control", is_flag=True, help="Measure the control plane instead.")
@click.option(
    "--handover", "only_handover", is_flag=True, help="Measure moves of partitions instead."
)
@click.option(
    "--members",
    "only_members",
    is_flag=True,
    help="Workers that join, leave, are replaced instead.",
)
@_count_option("--idle", "idle_count", 1_000, "Cost of so many idle partitions instead.")
@_count_option("--scale", "scaled", 1_000, "So many partitions on one worker instead.")
@_count_option("--takeover", "taken", 10, "Partitions of a killed copier instead", default=1_000)
@_count_option("--groups", "groups", 100, "Sync of so many groups instead", default=15_000)
@click.option(
    "--failover",
    "only_failover",
    is_flag=True,
    help="Records that consumers read again at the target instead, beside MirrorMaker 2.",
)
@click.option(
    "--audit",
    "only_audit",
    is_flag=True,
    help="Cost of an auditor behind the copy instead; five minutes.",
)
@click.option(
    "--merge", "only_merge", is_flag=True, help="Measure the merging of small batches instead."
)
@click.option(
    "--rows",
    "only_rows",
    is_flag=True,
    help="Sizes, codecs and counts of partitions in both delivery modes of both instead; 40 minutes; "
    "twice in 15 with --mm2 none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print figures for machines.")
def main(
    names: tuple[str, ...],
    records: int | None,
    size: int | None,
    codec: str | None,
    partitions: int | None,
    batch_bytes: int | None,
    mm2: str,
    deliveries: tuple[str, ...],
    handler: str,
    latency_seconds: float,
    load_seconds: float,
    spark: bool,
    sql: bool,
    same: bool,
    from_offset: int | None,
    tls: bool,
    round_trip_ms: int,
    deadline: float,
    only_memory: bool,
    only_control: bool,
    only_handover: bool,
    only_members: bool,
    idle_count: int | None,
    scaled: int | None,
    taken: int | None,
    groups: int | None,
    only_failover: bool,
    only_audit: bool,
    only_merge: bool,
    only_rows: bool,
    as_json: bool,
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    changes = {"records": records, "size": size, "codec": codec, "partitions": partitions}
    bases = [MEMORY] if only_memory else _bases(names, same=same, single=spark or sql)
    profiles = tuple(base.changed(changes | {"batch_bytes": batch_bytes}) for base in bases)
    delivered = tuple(map(Delivery, deliveries or ([*Delivery] if sql else [*Delivery][:1])))
    kinds = handler, spark, sql, same, from_offset or 0, Line(tls, round_trip_ms)
    wanted = BenchOptions(profiles, latency_seconds, deadline, mm2, load_seconds, delivered, *kinds)
    flags = {
        "failover": only_failover,
        "audit": only_audit,
        "control": only_control,
        "handover": only_handover,
        "members": only_members,
        "merge": only_merge,
    }
    counts = {"scale": scaled, "takeover": taken, "groups": groups}
    try:
        if idle_count is not None:
            good, figures = printed("idle", idle.figures(idle_count, progress=print_progress))
        elif only_rows:
            good, figures = _rows(deadline, beside_mm2=mm2 != "none")
        elif any(counts.values()):
            good, figures = _counted(next(kind for kind, count in counts.items() if count), counts)
        elif any(flags.values()):
            good, figures = _alone(next(kind for kind, is_set in flags.items() if is_set))
        else:
            good, figures = _run(wanted, only_memory=only_memory)
    except (AssertionError, RestFailure, KafkaException, NotSetUpError) as error:
        CONSOLE.print(f"[red]bench: {error}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        CONSOLE.print("bench: interrupted")
        sys.exit(130)
    if as_json:
        click.echo(json.dumps(_machine() | figures, indent=2))
    sys.exit(0 if good else 1)


def _bases(names: Sequence[str], *, same: bool, single: bool) -> Sequence[Profile]:
    """Profiles of these names; without one those of the measurement."""
    if same and not names:
        return [SAME]
    return [PROFILES[name] for name in names or (("1k",) if single else ("1k", "100b"))]


def _run(wanted: BenchOptions, *, only_memory: bool) -> tuple[bool, dict[str, Any]]:
    if wanted.same and not wanted.load_s:
        return _same_offsets(wanted)
    with _folder(), running(FOLDER, wanted.line) as servers, ExitStack() as more:
        page_cache.fill(FOLDER)
        if only_memory:
            ours = Ours(servers, FOLDER, delivery=wanted.deliveries[0])
            found = memory.measure(ours, servers, wanted.profiles[0], progress=print_progress)
            print_memory(CONSOLE, found)
            return found.good, {"memory": asdict(found)}
        contenders = [*contenders_of(wanted, servers, FOLDER, more)]
        if wanted.load_s:
            return lag_under_load(wanted, servers, contenders)
        return compare(wanted, servers, contenders)


def _same_offsets(wanted: BenchOptions) -> tuple[bool, dict[str, Any]]:
    with _folder(), running(FOLDER, wanted.line, more=costs.BROKERS) as servers:
        page_cache.fill(FOLDER)
        return costs.measure(wanted, servers, FOLDER)


def _rows(deadline_s: float, *, beside_mm2: bool) -> tuple[bool, dict[str, Any]]:
    """Each contender is warmed up alike; then it copies each row once, or twice without MirrorMaker 2."""
    found = []
    with _folder(), running(FOLDER) as servers:
        contenders: list[Contender] = [
            Ours(servers, FOLDER, delivery=delivery) for delivery in Delivery
        ]
        if beside_mm2:
            contenders += (
                MirrorMaker(servers, FOLDER, tuned=True, once=once) for once in (False, True)
            )
        copying = Copying(servers, deadline_s, print_progress)
        warm = PROFILES["1k"]
        with copying.filled(warm) as topic:
            copying.warm_up(contenders, topic, warm)
        for number, profile in enumerate(rows.profiles()):
            order = contenders if number % 2 == 0 else contenders[::-1]
            page_cache.fill(FOLDER)
            found.append(
                rows.copied(copying, profile, order if beside_mm2 else [*order, *order[::-1]])
            )
            print_progress(rows.summary(found[-1]))
    for line in rows.markdown(found):
        click.echo(line)
    good = all(result.finished for row in found for result in row.results.values())
    return good, {"rows": [asdict(row) for row in found]}


def _alone(kind: str) -> tuple[bool, dict[str, Any]]:
    with _folder():
        return printed(kind, ALONE[kind](FOLDER, print_progress))


def _counted(kind: str, counts: Mapping[str, int | None]) -> tuple[bool, dict[str, Any]]:
    with _folder():
        return printed(kind, COUNTED[kind](FOLDER, counts[kind], progress=print_progress))


@contextmanager
def _folder() -> Iterator[None]:
    """An empty folder during a measurement."""
    load = os.getloadavg()[0]
    if load > 0.5:
        CONSOLE.print(f"[yellow]this machine is not quiet (load {load:.1f}): figures will be low")
    remove_folder(FOLDER)
    FOLDER.mkdir(parents=True)
    try:
        yield
    finally:
        stop_guard()
        remove_folder(FOLDER)


def _machine() -> dict[str, Any]:
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "load": os.getloadavg(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "kafka": KAFKA_VERSION,
        }
    }


if __name__ == "__main__":
    main()
