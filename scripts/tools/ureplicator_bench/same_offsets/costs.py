"""Cost of the same offsets beside mapped ones, exactly once: without gaps, with gaps, and far from zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ureplicator_bench.comparison import BenchOptions, latencies
from ureplicator_bench.contenders import Contender, Ours
from ureplicator_bench.copying import Copying
from ureplicator_bench.delays.latency import PER_S
from ureplicator_bench.load import Profile
from ureplicator_bench.report import (
    CONSOLE,
    print_compared,
    print_latency,
    print_progress,
    printed,
)
from ureplicator_bench.same_offsets import anchoring, transactions
from ureplicator_bench.same_offsets.pairs import Pair, compared, in_turn
from ureplicator_bench.same_offsets.transactions import TRANSACTIONS
from ureplicator_bench.servers import Servers
from ureplicator_bench.throughput import Throughput
from ureplicator_common.model import Delivery
from ureplicator_testkit.records.topics import offsets

KINDS = ("mapped", "same")
PAIRS, PAIRS_WITH_GAPS = 4, 2
FAR = 50_000_000
BROKERS = {"log.segment.delete.delay.ms": "5000"}
"""A topic that was copied is gone before the disk holds many."""


def measure(wanted: BenchOptions, servers: Servers, folder: Path) -> tuple[bool, dict[str, Any]]:
    """All parts, or the last one alone if its offset is given."""
    anchoring.prepare(servers, wanted.from_offset or FAR)  # first, since it restarts brokers
    mapped, same = _both(servers, folder)
    found: dict[str, Any] = {}
    good = True
    if not wanted.from_offset:
        copying = Copying(servers, wanted.deadline_s, print_progress)
        pairs: dict[str, Sequence[Pair]] = {
            "without gaps": _without_gaps(copying, wanted.profiles[0], (mapped, same)),
            **_with_gaps(copying, wanted.profiles[0], (mapped, same)),
        }
        good = all(copy.finished for row in pairs.values() for pair in row for copy in pair)
        found = {what: [asdict(row) for row in compared(row)] for what, row in pairs.items()}
        if wanted.seconds > 0:
            late = latencies(wanted, servers, (mapped, same))
            print_latency(CONSOLE, late, PER_S)
            found["latency"] = {name: [asdict(phase) for phase in phases] for name, phases in late}
    return good, found | _anchored(wanted, servers, same)


def _both(servers: Servers, folder: Path) -> tuple[Ours, Ours]:
    mapped, same = (
        Ours(
            servers,
            folder,
            delivery=Delivery.EXACTLY_ONCE,
            kind=f"{kind} offsets",
            route={"offsets": kind},
        )
        for kind in KINDS
    )
    return mapped, same


def _without_gaps(
    copying: Copying, profile: Profile, both: tuple[Contender, Contender]
) -> Sequence[Pair]:
    def copy(contender: Contender) -> Throughput:
        return copying.copy(contender, topic, profile)

    with copying.filled(profile) as topic:
        copying.warm_up(both, topic, profile)
        pairs = list(in_turn(copy, both, PAIRS))
    print_compared(CONSOLE, profile, KINDS, [*compared(pairs)])
    return pairs


def _with_gaps(
    copying: Copying, base: Profile, both: tuple[Contender, Contender]
) -> dict[str, Sequence[Pair]]:
    found: dict[str, Sequence[Pair]] = {}
    for wanted in TRANSACTIONS:
        profile = wanted.profile(base)
        print_progress(f"{profile.name}: {profile.records:,} records")
        with transactions.filled(copying.servers, wanted, profile) as topic:
            copy = _copy_with_gaps(copying, topic, profile, same=both[1])
            _, *pairs = in_turn(copy, both, 1 + PAIRS_WITH_GAPS)  # the first to warm up
        print_compared(CONSOLE, profile, KINDS, [*compared(pairs)])
        found[profile.name] = pairs
    return found


def _copy_with_gaps(
    copying: Copying, topic: str, profile: Profile, *, same: Contender
) -> Callable[[Contender], Throughput]:
    """A copy with the same offsets has as many as the source, another as many as there are records."""
    ends = offsets(copying.servers.source.bootstrap, topic)
    whole = sum(end for _, end in ends.values())

    def copy(contender: Contender) -> Throughput:
        passing = whole if contender is same else profile.records
        return copying.copy(contender, topic, profile, passing=passing)

    return copy


def _anchored(wanted: BenchOptions, servers: Servers, same: Ours) -> dict[str, Any]:
    offset = wanted.from_offset or FAR
    print_progress(f"filling up to {offset:,}, beside {anchoring.LOAD_PER_S:,} records/s")
    late, measured = anchoring.measure(same, servers, wanted.profiles[0], offset=offset)
    print_latency(CONSOLE, [(same.name, late)], PER_S)
    return {"phases": [asdict(phase) for phase in late]} | printed("anchoring", measured)[1]
