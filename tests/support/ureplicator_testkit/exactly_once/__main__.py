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

import pytest

from ureplicator_common.model import RouteSettings
from ureplicator_testkit.copier.fenced_fleet import FENCED
from ureplicator_testkit.copier.same_fleet import SAME
from ureplicator_testkit.copier.transaction_fleet import TRANSACTIONAL
from ureplicator_testkit.exactly_once.fenced_mutants import FENCED_MUTANTS, fenced_mutated
from ureplicator_testkit.exactly_once.history import play
from ureplicator_testkit.exactly_once.mutants import MUTANTS, mutated
from ureplicator_testkit.exactly_once.same_mutants import SAME_MUTANTS, same_mutated

MODULE = "ureplicator_testkit.exactly_once"
KINDS = {
    "fenced": (FENCED, fenced_mutated),
    "same": (SAME, same_mutated),
    "transactional": (TRANSACTIONAL, mutated),
}


def main() -> int:
    options = _options()
    logging.disable(logging.NOTSET if options.seed is not None else logging.CRITICAL)
    if os.environ.get("PYTHONHASHSEED") != "0":  # a history depends on its seed alone
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", MODULE, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606
    settings, changed = KINDS[options.kind]
    with changed(options.mutant) if options.mutant else nullcontext():
        if options.test:
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take most of the time
            plugins = ("-p", "no:cacheprovider", "-p", "pytest_timeout")
            return int(pytest.main(["-q", *plugins, options.test]))
        return _run(_seeds(options), settings)


def _run(seeds: Sequence[int], settings: RouteSettings) -> int:
    began_s = time.perf_counter()
    faults = 0
    for count, seed in enumerate(seeds, 1):
        try:
            faults += len(play(Random(seed), settings=settings))  # noqa: S311  # repeatable
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
    kinds = parser.add_mutually_exclusive_group()
    parser.set_defaults(kind="transactional")
    for kind, text in (("fenced", "without transactions"), ("same", "with the same offsets")):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=text)
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument(
        "--mutant",
        choices={*MUTANTS, *FENCED_MUTANTS, *SAME_MUTANTS},
        help="remove a safeguard from the product",
    )
    parser.add_argument("--test", help="run this unit test in place of histories")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
