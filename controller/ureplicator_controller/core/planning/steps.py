"""The steps of a plan: small values, applied in order, each one transaction and safe to be the
last.

A step names the version it was decided on (None: the node did not exist), so a step decided on an
old picture is refused as a whole; the executor adds the check of the leader's epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.coordination import Delete, Operation, create_or_set
from ureplicator_common.model import (
    Assignment,
    IdealTopic,
    KnownWorker,
    SessionId,
    Switches,
    TopicIntent,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znodes import (
    Paths,
    encode_assignment,
    encode_ideal,
    encode_intent,
    encode_known_worker,
    encode_switches,
)


@dataclass(frozen=True, slots=True)
class RegisterWorker:
    """Remember how many slots a worker has, before it is given anything.

    Whoever fences it later must know every transactional id it ever had.
    """

    worker: WorkerId
    known: KnownWorker
    version: int | None


@dataclass(frozen=True, slots=True)
class Evict:
    """A live worker does not let go: its session counts as dead from now on.

    `version` is that of the live node. A version knows no owner, so the executor looks at that
    before; should it be another session's node all the same, that one registers again.
    """

    worker: WorkerId
    session: SessionId
    version: int
    known: KnownWorker
    known_version: int | None


@dataclass(frozen=True, slots=True)
class MarkPositions:
    """Remember that positions were committed: if they are missing later, they are lost."""

    key: TopicKey
    intent: TopicIntent
    version: int


@dataclass(frozen=True, slots=True)
class WriteIdeal:
    """Who should own each partition of a topic, and who may still be able to commit it."""

    key: TopicKey
    ideal: IdealTopic
    version: int | None


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """What a worker is told to hold. `takes_only`: nothing is given by it."""

    worker: WorkerId
    assignment: Assignment
    version: int | None
    takes_only: bool


@dataclass(frozen=True, slots=True)
class Retire:
    """A topic that nothing holds any more goes, intent and ideal state in one transaction.

    `remains`: entries whose holders were never confirmed. They stay without an intent, so that a
    topic whitelisted again later still fences a holder that is frozen until then.
    """

    key: TopicKey
    intent_version: int | None
    ideal_version: int | None
    remains: IdealTopic | None


@dataclass(frozen=True, slots=True)
class MarkRebalanced:
    """A rebalance that operators asked for was planned, and everything before this step is done."""

    switches: Switches
    version: int


Step = (
    RegisterWorker | Evict | MarkPositions | WriteIdeal | WriteAssignment | Retire | MarkRebalanced
)


def operations(step: Step, paths: Paths) -> tuple[Operation, ...]:
    """What a step does to the tree. Raises ValueError if a node would be too big."""
    match step:
        case RegisterWorker(worker, known, version):
            return (create_or_set(paths.worker_known(worker), encode_known_worker(known), version),)
        case Evict(worker, _, version, known, known_version):
            return (
                Delete(paths.worker_live(worker), version),
                create_or_set(
                    paths.worker_known(worker), encode_known_worker(known), known_version
                ),
            )
        case MarkPositions(key, intent, version):
            return (create_or_set(paths.topic(key), encode_intent(intent), version),)
        case WriteIdeal(key, ideal, version):
            return (create_or_set(paths.ideal_topic(key), encode_ideal(ideal), version),)
        case WriteAssignment(worker, assignment, version, _):
            return (
                create_or_set(paths.assignment(worker), encode_assignment(assignment), version),
            )
        case MarkRebalanced(switches, version):
            return (create_or_set(paths.settings, encode_switches(switches), version),)
        case Retire():
            return _retire(step, paths)


def _retire(step: Retire, paths: Paths) -> tuple[Operation, ...]:
    done: list[Operation] = []
    if step.intent_version is not None:
        done.append(Delete(paths.topic(step.key), step.intent_version))
    path = paths.ideal_topic(step.key)
    if step.remains is not None:
        done.append(create_or_set(path, encode_ideal(step.remains), step.ideal_version))
    elif step.ideal_version is not None:
        done.append(Delete(path, step.ideal_version))
    return tuple(done)
