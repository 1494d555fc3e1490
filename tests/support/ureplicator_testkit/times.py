"""Time of tests: a hook of pytest that notes it, and a table by folder and of the slowest tests.

`scripts/test` has it noted in the folder that UREPLICATOR_TIMES names, and makes the table of all its lanes:
`python -m ureplicator_testkit.times FOLDER`.

Processor time is that of the test's process and of the processes that ended during the test: servers that
many tests share are counted where they end.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "UREPLICATOR_TIMES"
SLOWEST = 20


@dataclass(frozen=True, slots=True)
class Noted:
    test: str
    took_s: float
    cpu_s: float

    @property
    def folder(self) -> str:
        return str(Path(self.test.partition("::")[0]).parent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    began_s, cpu_s = time.monotonic(), _cpu_s()
    result = yield
    if VARIABLE in os.environ:
        row = (f"{time.monotonic() - began_s:.3f}", f"{_cpu_s() - cpu_s:.3f}", repr(item.nodeid))
        with Path(os.environ[VARIABLE], f"{os.getpid()}.tsv").open("a") as notes:
            notes.write("\t".join(row) + "\n")
    return result


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def noted(folder: Path) -> Iterator[Noted]:
    for file in sorted(folder.glob("*.tsv")):
        for line in file.read_text().splitlines():
            took, cpu, test = line.split("\t", 2)
            yield Noted(test.strip("'\""), float(took), float(cpu))


def table(rows: Iterable[Noted]) -> str:
    """Markdown: seconds and CPU-seconds by folder, then of the slowest tests."""
    rows = list(rows)
    folders: dict[str, list[Noted]] = defaultdict(list)
    for row in rows:
        folders[row.folder].append(row)
    sums = {
        f"`{folder}/` ({len(tests)})": (sum(t.took_s for t in tests), sum(t.cpu_s for t in tests))
        for folder, tests in folders.items()
    }
    slowest = sorted(rows, key=lambda row: -row.took_s)[:SLOWEST]
    return "\n".join(
        [
            *_table("folder (tests)", sums),
            "",
            *_table("test", {f"`{row.test}`": (row.took_s, row.cpu_s) for row in slowest}),
        ]
    )


def _table(title: str, rows: dict[str, tuple[float, float]]) -> Iterator[str]:
    yield f"| {title} | s | CPU-s |"
    yield "|---|---:|---:|"
    for name, (took_s, cpu_s) in sorted(rows.items(), key=lambda row: -row[1][0]):
        yield f"| {name} | {took_s:.0f} | {cpu_s:.0f} |"


if __name__ == "__main__":
    print(table(noted(Path(sys.argv[1]))))
