"""Report of the measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from ureplicator_bench.delays.latency import Latency
from ureplicator_bench.delays.open_loop import OpenLoop
from ureplicator_bench.figures import Figure
from ureplicator_bench.load import Profile
from ureplicator_bench.memory import LIMIT_MB, Memory
from ureplicator_bench.same_offsets.pairs import Compared
from ureplicator_bench.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of each contender."""

    what: str
    unit: str
    figure: Callable[[Throughput], float]
    more_is_better: bool


ROWS: Sequence[Row] = (
    Row("throughput", "records/s", lambda t: t.records_per_s, True),
    Row("second half", "records/s", lambda t: t.second_half_records_per_s, True),
    Row("throughput", "MB/s", lambda t: t.mb_per_s, True),
    Row("processor", "CPU-s/GB", lambda t: t.cpu_s_per_gb, False),
    Row("brokers", "CPU-s/GB", lambda t: t.brokers_cpu_s_per_gb, False),
    Row("peak memory", "MB", lambda t: t.peak_rss_bytes / 1e6, False),
    Row("start-up", "s", lambda t: t.start_s, False),
    Row("start-up", "CPU-s", lambda t: t.start_cpu_s, False),
    Row("with the start-up", "records/s", lambda t: t.from_start_records_per_s, True),
    Row("with the start-up", "CPU-s/GB", lambda t: t.from_start_cpu_s_per_gb, False),
)


OTHERS_SHARE = 0.1
CONSOLE = Console(stderr=True, highlight=False)


def print_progress(what: str) -> None:
    CONSOLE.print(f"  {what}", style="dim")


def printed(kind: str, figures: Iterable[Figure]) -> tuple[bool, dict[str, Any]]:
    """Print each figure as it is measured; whether all are within their limits, and all of them."""
    found = []
    for figure in figures:
        print_figure(CONSOLE, figure)
        found.append(figure)
    return all(measured.good for measured in found), {
        kind: [asdict(measured) for measured in found]
    }


def print_throughput(
    console: Console, profile: Profile, results: Sequence[tuple[str, Throughput]], how: str
) -> None:
    """`how`: cold, warm or fresh."""
    console.print(
        f"[bold]{profile.name}, {how}: {profile.records:,} records of {profile.size:,} bytes,"
        f" codec {profile.codec}, {profile.partitions} partitions"
    )
    table = _table([name for name, _ in results])
    for row in ROWS:
        figures = [row.figure(result) for _, result in results]
        table.add_row(
            f"{row.what}, {row.unit}",
            *map(_short, figures),
            *_ratios(figures, row.more_is_better),
        )
    console.print(table)
    for name, result in results:
        _warn(console, name, result.others_share)
        if not result.finished:
            console.print(f"[yellow]{name} was not done in time: figures are of what it did")


def print_latency(
    console: Console, results: Sequence[tuple[str, Sequence[Latency]]], per_s: int
) -> None:
    """One table a phase; in brackets the floors, plain clients of the source and of the target."""
    names = [name for name, _ in results]
    for phases in zip(*(phases for _, phases in results), strict=True):
        console.print(f"[bold]latency at {per_s} records/s, {phases[0].phase}, consumer included")
        table = _table(names)
        for what in ("p50_ms", "p99_ms", "p999_ms", "max_ms"):
            figures = [getattr(phase.copy, what) for phase in phases]
            cells = [
                f"{_short(figure)} ({_short(getattr(phase.source, what))};"
                f" {_short(getattr(phase.target, what))})"
                for figure, phase in zip(figures, phases, strict=True)
            ]
            name = what.removesuffix("_ms").replace("p999", "p99.9")
            table.add_row(f"{name}, ms (source; target)", *cells, *_ratios(figures, False))
        console.print(table)
        for name, phase in zip(names, phases, strict=True):
            _warn(console, name, phase.others_share)
            if phase.received != phase.sent:
                console.print(f"[yellow]{name}: {phase.received} of {phase.sent} records arrived")


def print_compared(
    console: Console, profile: Profile, names: Sequence[str], rows: Sequence[Compared]
) -> None:
    """Both, how many times the figure of the first the second has, and the range of that over all pairs."""
    console.print(
        f"[bold]{profile.name}: {profile.records:,} records of {profile.size:,} bytes,"
        f" {profile.partitions} partitions, {len(rows[0].ratios)} pairs of copies"
    )
    table = Table("", *names, "ratio", "lowest", "highest")
    for row in rows:
        ratios = (row.ratio, min(row.ratios), max(row.ratios))
        figures = map(_short, (row.first, row.second))
        table.add_row(row.what, *figures, *(f"{ratio:.3f}" for ratio in ratios))
    console.print(table)


def print_open_loop(
    console: Console,
    profile: Profile,
    results: Sequence[tuple[str, Sequence[OpenLoop]]],
    capacities: Mapping[str, float],
) -> None:
    """`capacities`: records a second of each, as it was measured; rates may be parts of another's."""
    console.print(f"[bold]lag under load, records of {profile.size:,} bytes")
    for name, capacity in capacities.items():
        console.print(f"capacity of {name}: {_short(capacity)} records/s")
    table = Table("", "offered", "records/s", "p50, ms", "p99, ms", "longest, ms")
    for name, levels in results:
        for level in levels:
            figures = (level.produced_per_s, level.p50_ms, level.p99_ms, level.max_ms)
            table.add_row(name, f"{level.part:.0%}", *map(_short, figures))
    console.print(table)


def print_memory(console: Console, found: Memory) -> None:
    done = "" if found.complete else " [red](not all of it)"
    console.print(f"copied {found.copied_gb:.2f} GB in {found.seconds:.0f} s{done}")
    table = Table("process of the worker", "pid", "peak memory, MB")
    for process in found.processes:
        over = process.python and process.peak_mb >= LIMIT_MB
        table.add_row(
            process.what, str(process.pid), f"{'[red]' if over else ''}{process.peak_mb:.0f}"
        )
    console.print(table)
    verdict = "[green]yes" if found.good else "[red]no"
    console.print(f"every Python process under {LIMIT_MB} MB: {verdict}")


def print_figure(console: Console, figure: Figure) -> None:
    limit = "" if figure.limit is None else f" (limit {_short(figure.limit)})"
    colour = "green" if figure.good else "red"
    value = f"{_short(figure.value)} {figure.unit}".rstrip()
    console.print(f"{figure.what}: [{colour}]{value}[/]{limit}", soft_wrap=True)


def _warn(console: Console, name: str, others_share: float) -> None:
    if others_share > OTHERS_SHARE:
        console.print(
            f"[yellow]other programs took {others_share:.0%} of the machine while {name} copied:"
            " repeat this when it is quiet"
        )


def _table(names: Sequence[str]) -> Table:
    """The last contender is the one that the others are compared with."""
    table = Table("")
    for name in names:
        table.add_column(name, justify="right")
    if len(names) > 1:
        table.add_column(f"times better than {names[-1]}", justify="right")
    return table


def _ratios(figures: Sequence[float], more_is_better: bool) -> Sequence[str]:
    """The cell for how many times better each figure is than the last one."""
    *ours, other = figures
    pairs = [(figure, other) if more_is_better else (other, figure) for figure in ours]
    ratios = [f"{above / below:.1f}" if below else "-" for above, below in pairs]
    return ("; ".join(ratios),) if ratios else ()


def _short(figure: float) -> str:
    return (
        f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"
    )
