"""Run seeds, or repeat one: see the package."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from random import Random

from ureplicator_testkit.exactly_once.history import play
from ureplicator_testkit.exactly_once.mutants import MUTANTS, mutated

MODULE = "ureplicator_testkit.exactly_once"


def main() -> int:
    options = _options()
    logging.disable(logging.NOTSET if options.seed is not None else logging.CRITICAL)
    if os.environ.get("PYTHONHASHSEED") != "0":  # a history depends on its seed alone
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", MODULE, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606
    with mutated(options.mutant) if options.mutant else nullcontext():
        return _run(_seeds(options))


def _run(seeds: Sequence[int]) -> int:
    began_s = time.perf_counter()
    faults = 0
    for count, seed in enumerate(seeds, 1):
        try:
            faults += len(play(Random(seed)))  # noqa: S311  # repeatable
        except Exception as error:
            traceback.print_exception(error, file=sys.stdout)
            print(f"seed {seed}, {count} run: {type(error).__name__}: {error!s:.500}")
            print(f"repeat: python -m {MODULE} --seed {seed}")
            return 1
    took_s = time.perf_counter() - began_s
    print(f"{len(seeds)} seeds, no violation: {faults} faults, {took_s:.1f} s")
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
    parser.add_argument(
        "--mutant", choices=list(MUTANTS), help="remove a safeguard from the product"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
