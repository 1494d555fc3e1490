"""Performer of the state machine's instructions: each goes to the engine that does it.

Nothing here waits: what takes time has a thread in its engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import assert_never

from ureplicator_worker.core import instructions
from ureplicator_worker.core.instructions import EngineInstruction
from ureplicator_worker.engines.assignment import AssignmentWatch
from ureplicator_worker.engines.fencing import Fencer
from ureplicator_worker.engines.publisher import NodePublisher
from ureplicator_worker.engines.spark import SparkEngine, describe
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId
from ureplicator_worker.lifeline.server import LifelineServer

logger = logging.getLogger(__name__)


class Performer:
    """`configure` makes the configuration of a copier run, with its admission token."""

    def __init__(
        self,
        *,
        lifeline: LifelineServer,
        spark: SparkEngine,
        fencer: Fencer,
        publisher: NodePublisher,
        assignment: AssignmentWatch,
        configure: Callable[[CopierId], CopierConfig],
    ) -> None:
        self._lifeline = lifeline
        self._spark = spark
        self._fencer = fencer
        self._publisher = publisher
        self._assignment = assignment
        self._configure = configure

    def perform(self, instruction: EngineInstruction) -> None:
        match instruction:
            case instructions.StartCopier(copier, partitions):
                description = describe(copier, partitions)
                self._spark.start_copier(copier, self._configure(copier), description)
            case instructions.ToCopier(copier, order):
                self._lifeline.send(copier, order)
            case instructions.KillCopier(copier, reason):
                logger.warning("copier %s is killed: %s", copier, reason)
                self._spark.kill(copier, reason)
            case instructions.Fence():
                self._fencer.request(instruction)
            case instructions.Publish(current):
                self._publisher.publish(current)
            case instructions.Register():
                self._publisher.refresh()
            case instructions.AnnounceCapacity(no_capacity):
                self._announce_capacity(no_capacity)
            case instructions.AnnounceLeaving():
                logger.info("leaving: other workers take the partitions")
                self._publisher.announce(leaving=True)
            case instructions.ReadAssignment():
                self._assignment.read_again()
            case _:
                assert_never(instruction)

    def _announce_capacity(self, no_capacity: str) -> None:
        if no_capacity:
            logger.warning("no copier runs, other workers may take the partitions: %s", no_capacity)
        else:
            logger.info("copiers run again")
        self._publisher.announce(no_capacity=no_capacity)
