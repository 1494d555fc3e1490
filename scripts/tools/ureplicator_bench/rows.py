"""Rows of the table of `--rows`: kinds of topics, each copied by every contender in the same run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ureplicator_bench import floors
from ureplicator_bench.contenders import Contender
from ureplicator_bench.copying import Copying
from ureplicator_bench.floors import Floor
from ureplicator_bench.load import Profile
from ureplicator_bench.throughput import Throughput, combined

SIZES = (
    Profile("100 B", 6_000_000, 100),
    Profile("1 KB", 1_500_000, 1_000),
    Profile("10 KB", 200_000, 10_000),
)
CODECS = ("none", "lz4", "zstd")
PARTITIONS = (1, 64)
DEFAULT_BATCH_BYTES = 16_384
"""Batch size of producers, unless configured otherwise (`batch.size`)."""
SINGLE = Profile("100 B, batches of one record", 300_000, 100, batch_records=1)


@dataclass(frozen=True, slots=True)
class Row:
    """Results of each contender, by its name, and the least that the clusters need (`floors`)."""

    profile: Profile
    results: Mapping[str, Throughput]
    floor: Floor | None = None


def profiles() -> Iterator[Profile]:
    """Sizes and codecs with eight partitions; other counts of partitions; smaller batches."""
    for base, codec in itertools.product(SIZES, CODECS):
        yield replace(base, name=f"{base.name}, {codec}", codec=codec)
    for base, partitions in itertools.product(SIZES[:2], PARTITIONS):
        yield replace(base, name=f"{base.name}, partitions: {partitions}", partitions=partitions)
    for base, partitions in ((SIZES[1], 8), (SIZES[1], 1), (SIZES[2], 8)):
        name = f"{base.name}, partitions: {partitions}, batches of 16 KB"
        yield replace(base, name=name, partitions=partitions, batch_bytes=DEFAULT_BATCH_BYTES)
    yield SINGLE


def copied(copying: Copying, profile: Profile, order: Sequence[Contender]) -> Row:
    """One kind of topic, copied by each contender in this order; one that stands there twice copies twice.

    Before, the floor is measured for nothing: the first copy of a kind of topic is slow for everyone.
    """
    is_large = profile.batch_records > 1
    copies: dict[str, list[Throughput]] = {contender.name: [] for contender in order}
    with copying.filled(profile) as topic:
        if is_large:
            floors.measure(copying.servers, topic, profile)
        for contender in order:
            copies[contender.name].append(copying.copy(contender, topic, profile))
        floor = floors.measure(copying.servers, topic, profile) if is_large else None
    return Row(profile, {name: combined(measured) for name, measured in copies.items()}, floor)


def summary(row: Row) -> str:
    figures = (
        f"{name} {result.records_per_s:,.0f} records/s, {result.core_hours_per_tb:.2f} core-hours/TB"
        for name, result in row.results.items()
    )
    return f"{row.profile.name}: {'; '.join([*figures, f'floor {_floor(row)} records/s'])}"


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """A table in Markdown: records a second of each contender and of the floor, and core-hours for a TB."""
    names = list(rows[0].results)
    heads = [
        "",
        *(f"{name}, records/s" for name in names),
        "floor, records/s",
        *(f"{name}, core-hours/TB" for name in names),
    ]
    yield _line(heads)
    yield _line(["---", *["---:"] * (len(heads) - 1)])
    for row in rows:
        speeds = [f"{row.results[name].records_per_s:,.0f}" for name in names]
        costs = [f"{row.results[name].core_hours_per_tb:.2f}" for name in names]
        yield _line([row.profile.name, *speeds, _floor(row), *costs])


def _floor(row: Row) -> str:
    return f"{row.floor.records_per_s:,.0f}" if row.floor else "-"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
