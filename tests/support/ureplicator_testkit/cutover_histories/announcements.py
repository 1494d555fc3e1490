"""What clients are told, and when they do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ureplicator_common.cutovers import CutoverState, FenceKind
from ureplicator_controller.core.cutover.states import BEFORE_OPEN
from ureplicator_testkit.cutover_histories.clients import Reader, Writer

if TYPE_CHECKING:
    from ureplicator_testkit.cutover_histories.history import History


class Announcements:
    """To the writers and readers of a history."""

    def __init__(self, world: History) -> None:
        self._world = world

    def turn(self) -> None:
        """Tell some of those that are not where they should be."""
        node = self._world.judge.node
        if node is None or node.opened_ms or node.state is CutoverState.ABORTED:
            for writer in self._world.writers:
                self._tell_writer(writer)
        for reader in self._world.readers:
            self._tell_reader(reader)

    def _tell_writer(self, writer: Writer) -> None:
        stands = self._world.kind is FenceKind.NONE and not writer.home and self._starts
        if writer.home != self._world.open and not stands:
            likely = 0.3 if writer.obeys else 0.05
            writer.home = self._world.open if self._world.dice.random() < likely else writer.home

    @property
    def _starts(self) -> bool:
        """True while a run is about to begin."""
        node, request = self._world.judge.node, self._world.operator.request
        has_begun = node is not None and request is not None and node.run == request.run
        return self._world.operator.phase in ("stops", "runs") and not has_begun

    def _tell_reader(self, reader: Reader) -> None:
        node, dice = self._world.judge.node, self._world.dice
        if node is None:
            return
        is_left = reader.home != self._world.open
        if is_left and reader.goes_on and (dice.random() < 0.3 or node.state not in BEFORE_OPEN):
            reader.goes_on = dice.random() < 0.7
        elif is_left and not reader.goes_on:
            is_exact = self._world.judge.is_exact(reader)
            if (is_exact and dice.random() < 0.3) or node.state is CutoverState.DONE:
                reader.home, reader.goes_on = self._world.open, True
        elif (
            not is_left
            and node.plan.waits_for_groups
            and node.fencing
            and node.state in BEFORE_OPEN
        ):
            reader.goes_on = reader.goes_on and dice.random() < 0.7
        elif not is_left and dice.random() < 0.1:
            reader.goes_on = True

    @property
    def are_groups_over(self) -> bool:
        return all(reader.home == self._world.open for reader in self._world.readers)

    def stop_writers(self) -> None:
        """Those that obey stand still."""
        for writer in self._world.writers:
            if writer.obeys:
                writer.home = ""

    @property
    def writers_stand(self) -> bool:
        return not any(
            writer.let_in or writer.open for writer in self._world.writers if writer.obeys
        )
