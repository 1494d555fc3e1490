"""Many runs of a command that plays random histories, each in a fork: its modules are imported once.

`python -m ureplicator_testkit.forks MODULE` takes the arguments of the runs as JSON, a list for each, and
prints a JSON list of their exit codes and outputs.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

TIMEOUT_S = 1_700
"""For all runs: they have what other lanes of `scripts/test` leave of the processor."""
CRASHED = 3


@dataclass(frozen=True, slots=True)
class Run:
    code: int
    output: str


def runs(module: str, arguments: Sequence[Sequence[str]]) -> list[Run]:
    """Run the module's `main` with each list of arguments, under a fixed hash seed of Python: then a history
    depends on its seed alone."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "ureplicator_testkit.forks", module],
        input=json.dumps(arguments),
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"},
    )
    return [Run(code, output) for code, output in json.loads(done.stdout)]


def _forked(main: Callable[[], int], arguments: Sequence[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            _end(main, arguments)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


def _end(main: Callable[[], int], arguments: Sequence[str]) -> NoReturn:
    """Run in the child, which never returns to what its parent does next."""
    code = CRASHED
    try:
        sys.argv[1:] = arguments
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _main() -> None:
    main = importlib.import_module(f"{sys.argv[1]}.__main__").main
    print(json.dumps([_forked(main, arguments) for arguments in json.load(sys.stdin)]))


if __name__ == "__main__":
    _main()
