"""Figures that the benchmark computes from its samples, and its tables."""

from __future__ import annotations

import io
import os
import re

import pytest
from rich.console import Console

from ureplicator_bench import load, rows
from ureplicator_bench.delays.latency import Latency, Quantiles, quantiles
from ureplicator_bench.delays.open_loop import lags_s, shared
from ureplicator_bench.floors import Floor
from ureplicator_bench.load import Profile
from ureplicator_bench.report import print_throughput
from ureplicator_bench.same_offsets.pairs import Compared, compared, in_turn
from ureplicator_bench.same_offsets.transactions import PRODUCERS, Transactions
from ureplicator_bench.spark import aims, filter_query
from ureplicator_bench.throughput import Throughput, combined


def test_lag_is_the_time_until_the_target_has_as_many_records() -> None:
    produced = [(0.0, 10), (1.0, 20), (2.0, 30)]
    copied = [(0.5, 9), (1.5, 20), (2.5, 40)]
    assert list(lags_s(produced, copied)) == [1.5, 0.5, 0.5]


def test_lag_is_never_negative() -> None:
    """The target may be sampled first."""
    assert list(lags_s([(1.0, 10)], [(0.9, 10)])) == [0.0]


def test_what_is_never_copied_is_late_until_the_last_sample() -> None:
    assert list(lags_s([(0.0, 10), (1.0, 99)], [(0.5, 10), (6.0, 50)])) == [0.5, 5.0]


def test_rates_are_parts_of_the_smallest_capacity_among_those_that_share_it() -> None:
    capacities = {"ours": 900.0, "ours, once": 800.0, "other": 300.0}
    assert shared(capacities, ["ours", "ours, once"]) == capacities | {"ours": 800.0}
    assert shared(capacities, []) == capacities


def test_quantiles_of_nothing_are_an_error() -> None:
    assert quantiles([1.0, 2.0, 3.0]) == Quantiles(2.0, 3.0, 3.0, 3.0)
    with pytest.raises(AssertionError, match="no record arrived"):
        quantiles([])


def copy(
    *,
    seconds: float,
    cpu_s: float,
    rss: int = 7,
    brokers_cpu_s: float = 4.0,
    finished: bool = True,
) -> Throughput:
    return Throughput(
        records=1_000,
        size=1_000_000,
        seconds=seconds,
        start_s=2.0,
        start_cpu_s=3.0,
        second_half_records_per_s=1_000 / seconds,
        second_half_cpu_s=cpu_s / 4,
        cpu_s=cpu_s,
        brokers_cpu_s=brokers_cpu_s,
        others_cpu_s=0.0,
        peak_rss_bytes=rss,
        finished=finished,
    )


def test_measurements_in_both_orders_count_alike() -> None:
    both = combined([copy(seconds=1.0, cpu_s=1.0, rss=7), copy(seconds=3.0, cpu_s=3.0, rss=5)])
    assert both.records_per_s == 500
    assert both.cpu_s_per_gb == 2.0
    assert both.peak_rss_bytes == 7
    assert both.from_start_records_per_s == 2_000 / (4.0 + 2 * 2.0)
    assert both.from_start_cpu_s_per_gb == (4.0 + 2 * 3.0) / 2.0
    assert both.finished
    one = copy(seconds=1.0, cpu_s=1.0, rss=7)
    assert not combined([one, copy(seconds=1.0, cpu_s=1.0, rss=7, finished=False)]).finished


def test_every_second_pair_is_copied_in_the_other_order() -> None:
    order: list[str] = []

    def copied(name: str) -> Throughput:
        order.append(name)
        return copy(seconds=1.0 if name == "one" else 2.0, cpu_s=1.0)

    pairs = list(in_turn(copied, ("one", "other"), 3))
    assert order == ["one", "other", "other", "one", "one", "other"]
    assert [(one.seconds, other.seconds) for one, other in pairs] == [(1.0, 2.0)] * 3


def test_pairs_are_compared_by_the_geometric_mean_of_their_ratios() -> None:
    """A copy that takes four times as long, and one that takes a quarter, change nothing."""
    one = copy(seconds=4.0, cpu_s=1.0)
    pairs = [(one, copy(seconds=16.0, cpu_s=2.0)), (one, copy(seconds=1.0, cpu_s=2.0))]
    rates, cpu, brokers, both = compared(pairs)
    assert rates == Compared("records/s", 250, 2_000 / 17, [0.25, 4.0])
    assert rates.ratio == pytest.approx(1.0)
    assert (cpu.first, cpu.second) == (1.0, 2.0)
    assert cpu.ratio == pytest.approx(2.0)
    assert brokers.ratio == pytest.approx(1.0)
    assert both.ratio == pytest.approx(6 / 5)


@pytest.mark.parametrize(("records", "wanted"), [(10, 10 * PRODUCERS), (700, 640), (10_000, 3_200)])
def test_each_producer_has_as_many_transactions(records: int, wanted: int) -> None:
    profile = Transactions(10, 3_500).profile(Profile("1k", records, 1_000))
    assert profile == Profile("1k, transactions of 10", wanted, 1_000)


def test_a_row_shows_each_contender_in_the_order_of_the_first() -> None:
    one, other = copy(seconds=1.0, cpu_s=3.6, rss=7), copy(seconds=2.0, cpu_s=36.0, rss=7)
    results = {"one": one, "other": other}
    floor = Floor(records=1_000, read_s=0.1, write_s=0.2, used_s=0.1)
    found = [rows.Row(profile, results, floor) for profile in rows.profiles()]
    lines = list(rows.markdown(found))
    assert lines[0] == (
        "|  | one, records/s | other, records/s | floor, records/s "
        "| one, core-hours/TB | other, core-hours/TB |"
    )
    assert lines[2] == "| 100 B, none | 1,000 | 500 | 5,000 | 1.00 | 10.00 |"
    assert len(lines) == 2 + len(found)
    assert len({row.profile.name for row in found}) == len(found)


def printed(*results: tuple[str, Throughput]) -> dict[str, list[str]]:
    """Cells of each row of the table, by the first one; "" for the heads."""
    output = io.StringIO()
    print_throughput(Console(file=output, width=200), Profile("1k", 1_000, 1_000), results, "warm")
    lines = [re.split("[│┃]", line)[1:-1] for line in output.getvalue().splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines if line]
    return {row[0]: row[1:] for row in cells}


def test_each_contender_is_compared_with_the_last_one() -> None:
    table = printed(
        ("ours", copy(seconds=1.0, cpu_s=1.0, brokers_cpu_s=0.0)),
        ("once", copy(seconds=2.0, cpu_s=4.0, brokers_cpu_s=0.0)),
        ("other", copy(seconds=4.0, cpu_s=8.0, brokers_cpu_s=0.0)),
    )
    assert table[""][-1] == "times better than other"
    assert table["throughput, records/s"] == ["1,000", "500", "250", "4.0; 2.0"]
    assert table["processor, CPU-s/GB"][-1] == "8.0; 2.0"
    assert table["brokers, CPU-s/GB"][-1] == "-; -"


def test_a_single_contender_is_compared_with_nothing() -> None:
    table = printed(("ours", copy(seconds=1.0, cpu_s=1.0)))
    assert table["throughput, records/s"] == ["1,000"]


def test_the_floor_is_the_longest_of_reading_writing_and_computing() -> None:
    cores = os.cpu_count() or 1
    assert Floor(records=100, read_s=2.0, write_s=1.0, used_s=0.1).records_per_s == 50
    assert Floor(records=100, read_s=1.0, write_s=2.0, used_s=0.1).records_per_s == 50
    assert Floor(records=100, read_s=1.0, write_s=2.0, used_s=4.0 * cores).records_per_s == 25


@pytest.mark.parametrize("records", [512, 2_000, 123_457])
def test_as_many_records_pass_the_filter_as_a_filler_sends(records: int) -> None:
    """A filler sends its values in turn, and the last turn in part."""
    profile = Profile("", records=records, size=100)
    every = list(load.values(100))
    sent = [every[number % len(every)] for number in range(records)]
    passing = sum(chr(value[10]) not in "01234567" for value in sent)
    assert filter_query.passing(profile) == passing
    assert 0.4 < passing / records < 0.6


def test_a_cluster_may_be_five_percent_slower() -> None:
    local = copy(seconds=1.0, cpu_s=1.0, rss=7)
    assert aims.slower(local, copy(seconds=1.04, cpu_s=1.0, rss=7)).good
    assert not aims.slower(local, copy(seconds=1.06, cpu_s=1.0, rss=7)).good
    assert aims.slower(local, copy(seconds=0.5, cpu_s=1.0, rss=7)).value == -100


def test_a_record_through_a_query_may_cost_ten_microseconds() -> None:
    whole, late, rate = aims.sql_costs([("sql", copy(seconds=1.0, cpu_s=0.01, rss=7))])
    assert whole.value == pytest.approx(10)
    assert late.value == pytest.approx(5)
    assert late.good
    assert rate.value == pytest.approx(200_000)
    assert not list(aims.sql_costs([("sql", copy(seconds=1.0, cpu_s=0.03, rss=7))]))[1].good


def test_the_latency_of_queries_is_judged_when_nothing_else_is_copied() -> None:
    def phase(name: str, p50_ms: float) -> Latency:
        seen = Quantiles(p50_ms, p50_ms, p50_ms, p50_ms)
        return Latency(name, 1, 1, seen, seen, seen, 0.0)

    late = [phase("beside copying", 900.0), phase("quiet", 90.0)]
    (figure,) = aims.sql_delays([("sql", late)])
    assert figure.value == 90.0
    assert figure.good
