"""Run seeds, or repeat one: see the package."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from ureplicator_testkit.cutover_histories.history import play
from ureplicator_testkit.cutover_histories.judge import Violation
from ureplicator_testkit.cutover_histories.mutants import MUTANTS, mutated

MODULE = "ureplicator_testkit.cutover_histories"


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":  # a history depends on its seed alone
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", MODULE, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606
    with mutated(options.mutant) if options.mutant else nullcontext():
        if options.test:
            plugins = ("-p", "no:cacheprovider")
            return int(pytest.main(["-q", *plugins, options.test]))
        return _run(_seeds(options), options.invariants)


def _run(seeds: Sequence[int], invariants: str) -> int:
    began_s, count = time.perf_counter(), Counter[str]()
    for seed in seeds:
        try:
            history = play(seed)
        except (Violation, Exception) as error:
            if invariants and getattr(error, "letter", "") not in invariants:
                continue
            traceback.print_exception(error, file=sys.stdout)
            print(f"seed {seed}: {error!s:.500}")
            print(f"repeat: python -m {MODULE} --seed {seed}")
            return 1
        count.update(history.count)
    took_s = time.perf_counter() - began_s
    text = ", ".join(f"{number} {name}" for name, number in sorted(count.items()))
    print(f"{len(seeds)} seeds, no violation: {text}, {took_s:.1f} s")
    return 0


def _seeds(options: argparse.Namespace) -> Sequence[int]:
    if options.seed is not None:
        return [options.seed]
    return range(options.first, options.first + options.seeds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--seeds", type=int, default=500, help="number of seeds (%(default)s)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--mutant", choices=list(MUTANTS), help="remove a safeguard")
    parser.add_argument(
        "--invariants", default="", help="go on until one of these is violated, by their letters"
    )
    parser.add_argument("--test", help="run this unit test in place of histories")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
