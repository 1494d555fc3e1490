"""Comparison of contenders by the same topics: copies, latency, and lag under a steady load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ureplicator_bench import throughput
from ureplicator_bench.contenders import Contender, MirrorMaker, Ours
from ureplicator_bench.copying import Copying
from ureplicator_bench.delays import latency, open_loop
from ureplicator_bench.figures import Figure
from ureplicator_bench.load import Profile
from ureplicator_bench.report import (
    CONSOLE,
    print_latency,
    print_open_loop,
    print_progress,
    print_throughput,
    printed,
)
from ureplicator_bench.servers import Line, Servers
from ureplicator_bench.spark import aims, filter_query
from ureplicator_bench.spark.contenders import on_spark
from ureplicator_common.model import Delivery
from ureplicator_testkit.records.topics import create_topic, delete_topic


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Measurements to run."""

    profiles: tuple[Profile, ...]
    seconds: float
    deadline_s: float
    mm2: str
    load_s: float
    deliveries: tuple[Delivery, ...]
    handler: str
    spark: bool
    sql: bool
    same: bool
    from_offset: int
    line: Line

    def passing(self, profile: Profile) -> int:
        """Records that are copied."""
        return filter_query.passing(profile) if self.sql else profile.records


def contenders_of(
    wanted: BenchOptions, servers: Servers, folder: Path, more: ExitStack
) -> Iterator[Contender]:
    """`more`: ends what they need besides the servers."""
    if wanted.spark:
        yield from more.enter_context(on_spark(servers, folder, delivery=wanted.deliveries[0]))
        return
    handlers = {"handlers": [{"topics": ".*", "handler": wanted.handler}]}
    route = filter_query.ROUTE if wanted.sql else handlers if wanted.handler else {}
    kind = "sql" if wanted.sql else "handler" if wanted.handler else ""
    for delivery in wanted.deliveries:
        yield Ours(servers, folder, delivery=delivery, kind=kind, route=route)
    if wanted.same:
        once = Delivery.EXACTLY_ONCE
        yield Ours(servers, folder, delivery=once, kind="same offsets", route={"offsets": "same"})
    if wanted.mm2 != "none" and not wanted.sql:
        yield MirrorMaker(servers, folder, tuned=wanted.mm2 == "tuned")


def compare(
    wanted: BenchOptions, servers: Servers, contenders: Sequence[Contender]
) -> tuple[bool, dict[str, Any]]:
    figures: dict[str, Any] = {"throughput": {}, "fresh": {}, "latency": {}}
    aimed: list[Figure] = []
    good = True
    copying = Copying(servers, wanted.deadline_s, print_progress)
    for number, profile in enumerate(wanted.profiles):
        with copying.filled(profile) as topic:
            copy = partial(
                copying.copy, topic=topic, profile=profile, passing=wanted.passing(profile)
            )
            if number == 0:
                cold = [(contender.name, copy(contender, why="cold")) for contender in contenders]
                print_throughput(CONSOLE, profile, cold, "cold")
                copying.warm_up(contenders, topic, profile, passing=wanted.passing(profile))
            measured = [
                (contender, copy(contender)) for contender in (*contenders, *reversed(contenders))
            ]
        by_name = {
            contender.name: [result for copied_by, result in measured if copied_by is contender]
            for contender in contenders
        }
        results = [(name, throughput.combined(copies)) for name, copies in by_name.items()]
        print_throughput(CONSOLE, profile, results, "warm")
        fresh = copying.first_copies(contenders, profile, passing=wanted.passing(profile))
        print_throughput(CONSOLE, profile, fresh, "fresh")
        figures["throughput"][profile.name] = {"profile": asdict(profile)} | {
            name: asdict(result)
            | {"records_per_s": result.records_per_s, "cpu_s_per_gb": result.cpu_s_per_gb}
            for name, result in results
        }
        figures["fresh"][profile.name] = {name: asdict(result) for name, result in fresh}
        good = good and all(result.finished for _, result in results)
        if wanted.spark:
            aimed.append(aims.slower(results[0][1], results[1][1]))
        if wanted.sql:
            aimed += aims.sql_costs(results)
    if wanted.seconds > 0:
        late = latencies(wanted, servers, contenders)
        print_latency(CONSOLE, late, latency.PER_S)
        figures["latency"] = {
            name: {phase.phase: asdict(phase) for phase in phases} for name, phases in late
        }
        if wanted.sql:
            aimed += aims.sql_delays(late)
    reached, judged = printed("aims", aimed)
    return good and reached, figures | judged


def lag_under_load(
    wanted: BenchOptions, servers: Servers, contenders: Sequence[Contender]
) -> tuple[bool, dict[str, Any]]:
    """Capacities first; then the lag of all of ours at parts of the smallest of theirs, of others at parts of
    their own."""
    profile = wanted.profiles[0]
    capacities = {}
    for contender in contenders:
        print_progress(f"{profile.name}: capacity of {contender.name}")
        with _at_both_ends(servers, profile) as topic:
            capacities[contender.name] = open_loop.capacity(contender, servers, topic, profile)
        print_progress(f"{capacities[contender.name]:,.0f} records/s")
    ours = [contender.name for contender in contenders if isinstance(contender, Ours)]
    whole = open_loop.shared(capacities, ours)
    results = []
    for contender in contenders:
        print_progress(f"{profile.name}: {contender.name} under load")
        capacity, seconds = whole[contender.name], wanted.load_s
        with _at_both_ends(servers, profile) as topic:
            found = open_loop.measure(
                contender, servers, topic, profile, capacity=capacity, seconds=seconds
            )
        results.append((contender.name, found))
        print_progress("; ".join(map(str, found)))
    print_open_loop(CONSOLE, profile, results, capacities)
    figures = {name: [asdict(level) for level in levels] for name, levels in results}
    return True, {"load": figures, "capacity": capacities}


@contextmanager
def _at_both_ends(servers: Servers, profile: Profile) -> Iterator[str]:
    """A topic of limited size at the source and at the target."""
    topic, config = "bench-load", open_loop.TOPIC_CONFIG
    for cluster in (servers.source, servers.target):
        create_topic(cluster.bootstrap, topic, partitions=profile.partitions, config=config)
    yield topic
    for cluster in (servers.source, servers.target):
        delete_topic(cluster.bootstrap, topic)


def latencies(
    wanted: BenchOptions, servers: Servers, contenders: Sequence[Contender]
) -> list[tuple[str, list[latency.Latency]]]:
    results = []
    profile = wanted.profiles[0]
    copying = Copying(servers, wanted.deadline_s, print_progress)
    with copying.filled(profile) as full_topic:
        for number, contender in enumerate(contenders):
            print_progress(f"latency: {contender.name} for {wanted.seconds:.0f} s in each phase")
            topic = f"bench-latency-{number}"
            source, target = servers.source.bootstrap, servers.target.bootstrap
            create_topic(source, topic, partitions=profile.partitions)
            for name in (topic, f"{topic}-plain", full_topic):
                create_topic(target, name, partitions=profile.partitions)
            found = latency.measure(
                contender,
                servers,
                topic,
                replace(profile, records=wanted.passing(profile)),
                seconds=wanted.seconds,
                full_topic=full_topic,
            )
            delete_topic(target, full_topic)
            results.append((contender.name, found))
    return results
