"""Tables of the benchmark, as they are printed."""

from __future__ import annotations

import io
import re

from rich.console import Console

from ureplicator_bench.load import Profile
from ureplicator_bench.report import print_throughput
from ureplicator_bench.throughput import Throughput

PROFILE = Profile("1k", 1_000, 1_000)


def copied(seconds: float, cpu_s: float) -> Throughput:
    return Throughput(
        records=1_000,
        size=1_000,
        seconds=seconds,
        start_s=1.0,
        second_half_records_per_s=1_000 / seconds,
        second_half_cpu_s=cpu_s / 2,
        cpu_s=cpu_s,
        brokers_cpu_s=0.0,
        others_cpu_s=0.0,
        peak_rss_bytes=1 << 20,
        finished=True,
    )


def printed(*results: tuple[str, Throughput]) -> dict[str, list[str]]:
    """Cells of each row of the table, by the first one; "" for the heads."""
    output = io.StringIO()
    print_throughput(Console(file=output, width=200), PROFILE, results, "warm")
    lines = [re.split("[│┃]", line)[1:-1] for line in output.getvalue().splitlines()]
    rows = [[cell.strip() for cell in cells] for cells in lines if cells]
    return {row[0]: row[1:] for row in rows}


def test_each_contender_is_compared_with_the_last_one() -> None:
    table = printed(
        ("ours", copied(1.0, 1.0)), ("once", copied(2.0, 4.0)), ("other", copied(4.0, 8.0))
    )
    assert table[""][-1] == "times better than other"
    assert table["throughput, records/s"] == ["1,000", "500", "250", "4.0; 2.0"]
    assert table["processor, CPU-s/GB"][-1] == "8.0; 2.0"
    assert table["brokers, CPU-s/GB"][-1] == "-; -"


def test_a_single_contender_is_compared_with_nothing() -> None:
    table = printed(("ours", copied(1.0, 1.0)))
    assert table["throughput, records/s"] == ["1,000"]
