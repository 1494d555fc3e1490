"""A worker whose main loop can be made to hang, while everything else of it continues.

    python -m ureplicator_testkit.fleet.hanging_worker FILE worker CONFIG --id NAME

A signal can only stop the whole process, and then its ZooKeeper session expires too. Here the loop
alone blocks for as long as FILE exists; session, lifelines and copiers live. The arguments after FILE
are those of `ureplicator`.
"""

import sys
import time
from pathlib import Path

from ureplicator_cli import main as cli
from ureplicator_worker import daemon
from ureplicator_worker.core import events

LOOK_S = 0.05


class HangingWorker(daemon.Worker):
    """Blocks between two steps, where a step that never returns would block."""

    hang = Path()

    def _step(self, event: events.Event) -> None:
        while self.hang.exists():
            time.sleep(LOOK_S)
        super()._step(event)


def main() -> None:
    HangingWorker.hang = Path(sys.argv.pop(1))
    daemon.Worker = HangingWorker  # type: ignore[misc]
    cli.main()


if __name__ == "__main__":
    main()
