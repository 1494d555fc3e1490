"""Run seeds, or repeat one.

python -m ureplicator_testkit.simulation --seeds 100000 --from 5000     soak test
python -m ureplicator_testkit.simulation --seed 17 --trace              full trace of one seed
python -m ureplicator_testkit.simulation --mutant no-proof              first seed that catches it
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext

from ureplicator_common.garbage_collection import collect_seldom
from ureplicator_testkit.simulation.kernel import SimulationFailure, World
from ureplicator_testkit.simulation.mutants import MUTANTS, mutated
from ureplicator_testkit.simulation.run import Simulation

SHOWN = 60
PRINT_INTERVAL_S = 60.0
MODULE = "ureplicator_testkit.simulation"


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":  # a run depends on its seed alone
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", MODULE, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606
    collect_seldom()
    with mutated(options.mutant) if options.mutant else nullcontext():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    began_s = printed_s = time.perf_counter()
    turns = faults = 0
    for count, seed in enumerate(_seeds(options), 1):
        simulation = Simulation(seed)
        try:
            result = simulation.run()
        except (SimulationFailure, Exception) as error:
            if is_other(error, options.invariant):
                continue
            _show_failure(simulation.world, error, whole=options.trace)
            return 1
        turns, faults = turns + result.turns, faults + result.faults
        if options.seed is not None:
            _show(simulation.world, None if options.trace else 0)
            print(result)
        if time.perf_counter() - printed_s > PRINT_INTERVAL_S:
            printed_s = time.perf_counter()
            print(f"{count} seeds, now {seed}", flush=True)
    took_s = time.perf_counter() - began_s
    print(f"{count} seeds, no violation: {turns} turns, {faults} faults, {took_s:.1f} s")
    return 0


def is_other(error: BaseException, invariant: str | None) -> bool:
    """True if another invariant than this one is violated; without one, none is another."""
    is_named = isinstance(error, SimulationFailure) and error.letter == invariant
    return invariant is not None and not is_named


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    if options.seed is not None:
        return iter([options.seed])
    return iter(range(options.first, options.first + options.seeds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--seeds", type=int, default=500, help="number of seeds (%(default)s)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--trace", action="store_true", help="print the whole trace")
    parser.add_argument(
        "--mutant", choices=list(MUTANTS), help="remove a safeguard from the product"
    )
    parser.add_argument("--invariant", help="go on until this one is violated, by its letter")
    return parser.parse_args()


def _show_failure(world: World, error: BaseException, *, whole: bool) -> None:
    _show(world, None if whole else SHOWN)
    if not isinstance(error, SimulationFailure):
        traceback.print_exception(error, file=sys.stdout)
    print(f"seed {world.seed}: {error!s}")
    print(f"repeat: python -m {MODULE} --seed {world.seed} --trace")


def _show(world: World, last: int | None) -> None:
    shown = world.trace if last is None else world.trace[len(world.trace) - last :]
    for at_s, who, what, details in shown:
        print(f"{at_s:9.2f}  {who:10} {what % details if details else what}")


if __name__ == "__main__":
    sys.exit(main())
