"""A worker whose event loop can be made to hang, while everything else of it continues.

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
from ureplicator_worker.core.events import Event
from ureplicator_worker.engines.event_loop import EventLoop

POLL_S = 0.05


class HangingLoop(EventLoop):
    """Hangs between two steps, where a step that does not return would hang."""

    hang = Path()

    def step(self, event: Event) -> None:
        while self.hang.exists():
            time.sleep(POLL_S)
        super().step(event)


def main() -> None:
    HangingLoop.hang = Path(sys.argv.pop(1))
    daemon.EventLoop = HangingLoop  # type: ignore[attr-defined]
    cli.main()


if __name__ == "__main__":
    main()
