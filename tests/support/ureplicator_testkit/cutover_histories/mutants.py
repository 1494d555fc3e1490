"""The product with one safeguard of cutovers removed, with the invariants that a history then violates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

from ureplicator_common.cutovers import Cutover
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import Extent
from ureplicator_controller.core.cutover import eras, intents, progress
from ureplicator_controller.core.cutover.states import FENCED, GROUPS
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines import fenced_writer
from ureplicator_controller.engines.cutover import (
    era_reader,
    fencing,
    groups,
    moving,
    thread,
    turning,
)
from ureplicator_controller.engines.cutover.acl_fence import AclFence
from ureplicator_controller.engines.cutover.fencing import Fencing
from ureplicator_controller.engines.cutover.groups import GroupMove
from ureplicator_controller.engines.cutover.moving import Moving
from ureplicator_controller.engines.cutover.thread import CutoverThread
from ureplicator_controller.engines.cutover.turning import Turning

Patch = tuple[Any, str, Any]
"""Object, attribute, and its replacement."""


class Mutant(NamedTuple):
    """`letters`: of invariants (`judge`), any of which it violates."""

    letters: str
    patches: Sequence[Patch]


_ACTIVATIONS = Turning._activations
_BEFORE = GroupMove.before
_DRAIN = Moving._drain
_ENDS_OF = progress.ends_of
_FENCE = Moving._fence
_MOVE_GROUPS = Moving._move_groups
_NEXT_RUN = progress.next_run
_OPEN = Moving._open
_OTHER = intents.other_direction
_TARGET_ENDS = Moving.target_ends


def _none(*_: Any, **__: Any) -> tuple[()]:
    return ()


def _text(*_: Any, **__: Any) -> str:
    return ""


def _true(*_: Any, **__: Any) -> bool:
    return True


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing, in place of a safeguard."""


def _not_late(self: Moving, cutover: Cutover, *_: Any, **__: Any) -> Cutover:
    return cutover


# Steps.


def _fence_later(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    """FENCED without a fence, which is raised when all is drained."""
    with patch.object(Fencing, "raise_", _text):
        return _FENCE(self, cutover, snapshot)


def _drain_and_fence(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    after = _DRAIN(self, cutover, snapshot)
    if after.state is not cutover.state:
        self._fencing.raise_(cutover.plan)
    return after


def _fence_after_ends(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    """The ends are those before the fence."""
    if cutover.fencing and not cutover.ends:
        return replace(cutover, ends=self.ends(cutover).offsets)
    after = _FENCE(self, cutover, snapshot)
    return replace(after, ends=cutover.ends) if after.state is FENCED else after


def _drain_and_move(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    """Groups are moved before the drain."""
    if not cutover.groups:
        move = GroupMove(self._clusters, cutover, self._topics(cutover, snapshot))
        found = move.found()
        written = move.write(found, may_write=self._may_write)
        return replace(
            cutover, groups=groups.outcomes(written), groups_before=move.before(found, {})
        )
    return _DRAIN(self, cutover, snapshot)


def _groups_are_moved(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    move = GroupMove(self._clusters, cutover, self._topics(cutover, snapshot))
    if cutover.plan.waits_for_groups and (members := move.members()):
        return progress.waiting(cutover, members)
    return progress.reached(cutover, GROUPS, self._clock.wall_ms())


def _fence_with_ends(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    """The target's ends are noted before the fence is raised."""
    after = _FENCE(self, cutover, snapshot)
    return _noted(self, after, snapshot) if after.fencing and not cutover.fencing else after


def _drain_with_ends(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    """The target's ends are noted before the drain."""
    after = _DRAIN(self, cutover, snapshot)
    return after if cutover.reason else _noted(self, after, snapshot)


def _noted(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    there = _TARGET_ENDS(self, cutover, snapshot)
    return cutover if there.unknown else replace(cutover, reason=json.dumps(there.offsets))


def _target_ends_noted(self: Moving, cutover: Cutover, snapshot: Snapshot) -> progress.Ends:
    if not cutover.reason.startswith("{"):
        return _TARGET_ENDS(self, cutover, snapshot)
    noted = json.loads(cutover.reason)
    return progress.Ends({topic: tuple(ends) for topic, ends in noted.items()}, ())


def _open_blindly(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    with patch.object(Moving, "late", _not_late):
        return _OPEN(self, cutover, snapshot)


def _open_undrained(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    """The ends are those of the last look, whatever is copied."""
    ends = self.ends(cutover)
    return _open_blindly(self, replace(cutover, ends=ends.offsets), snapshot)


def _open_early(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    self._fencing.open(cutover)
    return _MOVE_GROUPS(self, cutover, snapshot)


def _ends_without_held(topics: Any, extents: Any) -> Any:
    shown = {
        key: replace(extent, held=0) if isinstance(extent, Extent) else extent
        for key, extent in extents.items()
    }
    return _ENDS_OF(topics, shown)


def _fence_unnoted(self: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
    after = _FENCE(self, cutover, snapshot)
    return replace(after, fences=cutover.fences)


# Aborts.


def _lifted_but_one(rights: AclFence, fence: Any) -> str:
    if fence:
        least = min(fence.added) if fence.added else None
        rights.apply(replace(fence.reversed, removed=fence.added - {least}))
    return ""


def _put_back_kept(target: Any, before: Any, *, prove: Callable[[], None]) -> tuple[str, ...]:
    """Offsets that were not there stay."""
    kept = {
        group: tuple(each for each in offsets if each.offset >= 0)
        for group, offsets in before.items()
    }
    return groups.put_back(target, kept, prove=prove)


def _before_once(self: GroupMove, found: Any, known: Any) -> Any:
    return known or _BEFORE(self, found, known)


# Turns.


def _nobody_lost(*_: Any) -> Any:
    return turning._Lost((), ())


def _reversed_at_once(
    self: Turning, cutover: Cutover, former: Any, seen: Snapshot, held: Sequence[str]
) -> Any:
    """The other direction begins at the ends of now, not at those at OPEN."""
    there = self._moving.target_ends(cutover, seen).offsets
    turn = replace(cutover.turns[-1], there=there)
    return _ACTIVATIONS(
        self, replace(cutover, turns=(*cutover.turns[:-1], turn)), former, seen, held
    )


def _without_positions(*arguments: Any, **named: Any) -> Any:
    return replace(_OTHER(*arguments, **named), positions={})


def _run_without(**left: Any) -> Callable[..., Cutover | None]:
    """A run that does not know what the former one has left."""

    def next_run(request: Any, before: Cutover | None) -> Cutover | None:
        begun = _NEXT_RUN(request, before)
        is_new = begun is not None and (before is None or before.run != begun.run)
        return replace(begun, **left) if begun is not None and is_new else begun

    return next_run


# The node.


def _unfenced(operations: Sequence[Any], **_: Any) -> list[Any]:
    """A transaction without the epoch."""
    return list(operations)


def _told_what_was_known(self: CutoverThread, name: str, error: str, epoch: int) -> float:
    known = self._known.get(name)
    node = self._node(name)
    try:
        if known is not None and node.read() is not None:
            self._write(name, node, progress.waiting(known, [error]), epoch)
    except OperatingError:
        return thread.RETRY_S
    return thread.BUSY_S


def _perform_unproven(self: AclFence, change: Any, acls: Any) -> None:
    if acls:
        change(acls)


def _forward_alone(forward: Any, *_: Any) -> Any:
    return forward


def _unbounded(places: Any, *, produced: Any, copied: Any) -> Any:
    """Maps of the eras, without the bounds of their turns."""

    def translated(offset: int) -> int | None:
        for here, there, is_produced in reversed(places):
            if offset >= here:
                return there if offset == here else _by(is_produced, offset)
        return _by(not places or not places[0][2], offset)

    def _by(is_produced: bool, offset: int) -> int | None:
        found: int | None = (produced if is_produced else copied)(offset)
        return found

    return translated


def _same(forward: Any) -> Any:
    return forward


MUTANTS: Mapping[str, Mutant] = {
    "fence-after-drain": Mutant(
        "F", [(Moving, "_fence", _fence_later), (Moving, "_drain", _drain_and_fence)]
    ),
    "ends-before-fence": Mutant(
        "L", [(Moving, "_fence", _fence_after_ends), (Moving, "late", _not_late)]
    ),
    "groups-before-drain": Mutant(
        "G", [(Moving, "_drain", _drain_and_move), (Moving, "_move_groups", _groups_are_moved)]
    ),
    "reverse-from-before-fence": Mutant(
        "L", [(Moving, "_fence", _fence_with_ends), (Moving, "target_ends", _target_ends_noted)]
    ),
    "reverse-from-before-drain": Mutant(
        "L", [(Moving, "_drain", _drain_with_ends), (Moving, "target_ends", _target_ends_noted)]
    ),
    "not-drained": Mutant("L", [(Moving, "behind", _none)]),
    "no-last-look": Mutant("L", [(Moving, "_open", _open_blindly)]),
    "late-write-not-drained": Mutant("L", [(Moving, "_open", _open_undrained)]),
    "held-not-drained": Mutant(
        "L", [(moving, "ends_of", _ends_without_held), (moving, "held_back", _none)]
    ),
    "target-opened-early": Mutant("F", [(Moving, "_move_groups", _open_early)]),
    "lagging-broker": Mutant("F", [(AclFence, "lagging", _text)]),
    "fence-not-compared": Mutant("F", [(Fencing, "changed", _text)]),
    "fence-not-noted": Mutant("A", [(Moving, "_fence", _fence_unnoted)]),
    "members-not-waited-for": Mutant("G", [(GroupMove, "members", _none)]),
    "unfit-topic": Mutant("LEX", [(moving, "unfit_topics", _text)]),
    "abort-forgets-a-right": Mutant("A", [(fencing, "_lifted", _lifted_but_one)]),
    "abort-keeps-the-fence": Mutant("A", [(Fencing, "take_down", _text)]),
    "abort-forgets-groups": Mutant("A", [(moving, "put_back", _none)]),
    "abort-keeps-new-offsets": Mutant("A", [(moving, "put_back", _put_back_kept)]),
    "groups-noted-once": Mutant("A", [(GroupMove, "before", _before_once)]),
    "forward-not-reversed": Mutant("DEL", [(turning, "former_direction", lambda intent: intent)]),
    "held-not-waited-for": Mutant(
        "DEL", [(turning, "_held", _none), (turning, "_lost", _nobody_lost)]
    ),
    "lost-worker-not-fenced": Mutant("DEL", [(turning, "_lost", _nobody_lost)]),
    "reverse-from-now": Mutant("DEL", [(Turning, "_activations", _reversed_at_once)]),
    "reverse-from-the-beginning": Mutant("DEL", [(turning, "other_direction", _without_positions)]),
    "old-fence-kept": Mutant("E", [(Fencing, "open", _text)]),
    "old-fence-forgotten": Mutant("AE", [(thread, "next_run", _run_without(fences={}))]),
    "turns-forgotten": Mutant("G", [(thread, "next_run", _run_without(turns=()))]),
    "run-interrupted": Mutant("TAFEX", [(progress, "_may_end", _true)]),
    "node-without-epoch": Mutant("T", [(fenced_writer, "fenced", _unfenced)]),
    "old-content-written": Mutant("T", [(CutoverThread, "_told", _told_what_was_known)]),
    "not-proven": Mutant("AFE", [(CutoverThread, "_leads", _true)]),
    "proven-once": Mutant("AFE", [(AclFence, "_perform", _perform_unproven)]),
    "forward-map-alone": Mutant("G", [(era_reader, "across", _forward_alone)]),
    "eras-without-bounds": Mutant("G", [(eras, "translate", _unbounded)]),
    "position-of-former-copy": Mutant("G", [(eras, "_left", _same)]),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with that safeguard removed."""
    with ExitStack() as stack:
        for each in MUTANTS[name].patches:
            stack.enter_context(patch.object(*each))
        yield
