"""Entry point of `ureplicator`. A role that is ended while it is imported ends with 0.

The commands take a second to import, more on a loaded machine, so a role has its handlers before them.
Without, SIGTERM would end it as if it had failed (and the first process of a container would ignore it), and
SIGINT with a traceback. Nothing is open until the role itself runs, which sets handlers of its own.
"""

from __future__ import annotations

import os
import signal
import sys

ROLES = frozenset({"controller", "worker", "auditor"})


def main() -> None:
    if ROLES.intersection(sys.argv[1:2]):
        end_at_once()
    from ureplicator_cli.commands import cli

    cli(prog_name="ureplicator")


def end_at_once() -> None:
    """Exit with 0 at SIGTERM and SIGINT, without cleaning up: an import might swallow an exception."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


if __name__ == "__main__":
    main()
