"""Messages of copiers, received by the lifeline's thread: as events, or to the engine concerned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ureplicator_worker.core.events import CopierClosed, CopierConnected, Event, FromCopier
from ureplicator_worker.engines.ownership_proof import OwnershipProver
from ureplicator_worker.lifeline.messages import (
    CopierId,
    CopierReport,
    Failed,
    GapPassed,
    Hello,
    Message,
    ProofRequest,
    Released,
    StopRequest,
)
from ureplicator_worker.lifeline.server import Disconnected


class CopierEngine(Protocol):
    """Runs the processes of copiers: `SparkEngine`."""

    def connected(self, copier: CopierId, pid: int, pid_space: str) -> None: ...


class CopierInbox:
    """`pids` are the process ids of connected copiers."""

    def __init__(
        self, *, engine: CopierEngine, prover: OwnershipProver, put: Callable[[Event], None]
    ) -> None:
        self.pids: dict[CopierId, int] = {}
        self._engine = engine
        self._prover = prover
        self._put = put

    def receive(self, copier: CopierId, message: Message | Disconnected) -> None:
        """Raises ValueError for a message that only the driver may send."""
        match message:
            case Hello(pid=pid, pid_space=pid_space):
                self.pids[copier] = pid
                self._engine.connected(copier, pid, pid_space)
                self._put(CopierConnected(copier))
            case CopierReport() | Released() | Failed() | GapPassed() | StopRequest():
                self._put(FromCopier(copier, message))
            case ProofRequest():
                self._prover.request(copier, message)
            case Disconnected():
                self.pids.pop(copier, None)
                self._prover.cancel(copier)
                self._put(CopierClosed(copier))
            case _:
                raise ValueError(f"a copier may not send {type(message).__name__}")
