"""Steps of a plan: values that are applied in order, each as one transaction.

Each step is safe to be the last one, since the leader may die after it. A step names the version that it
was decided on (None: the node did not exist). So a step decided on an outdated snapshot is refused as a
whole. The executor adds the check of the leader's epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.coordination import Delete, Operation, create_or_set
from ureplicator_common.model import SessionId, TopicKey, WorkerId
from ureplicator_common.znode_contents import (
    Assignment,
    IdealTopic,
    KnownWorker,
    SlotShares,
    Switches,
    TopicIntent,
)
from ureplicator_common.znodes.fleet import encode_switches
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_ideal, encode_intent
from ureplicator_common.znodes.workers import encode_assignment, encode_known_worker, encode_shares


@dataclass(frozen=True, slots=True)
class RegisterWorker:
    """Record how many slots a worker has before any partition is assigned to it.

    A later owner that fences it must know every transactional id that it ever had.
    """

    worker: WorkerId
    known: KnownWorker
    version: int | None


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a live worker that does not release a partition: its session counts as dead from now on.

    `version` is that of the live node. A version does not identify the owner, so the executor checks
    the owner before. If the node is another session's all the same, that session registers again.
    """

    worker: WorkerId
    session: SessionId
    version: int
    known: KnownWorker
    known_version: int | None


@dataclass(frozen=True, slots=True)
class ForgetWorker:
    """Remove all nodes of a worker that is gone, each at its version (None: there is none).

    The registration is among them: a process of that id that registers meanwhile changes it, so the whole
    step is refused.
    """

    worker: WorkerId
    known_version: int | None
    registered_version: int | None
    assignment_version: int | None
    shares_version: int | None


@dataclass(frozen=True, slots=True)
class MarkPositions:
    """Record which partitions have a committed position: if one is missing later, it is lost."""

    key: TopicKey
    intent: TopicIntent
    version: int


@dataclass(frozen=True, slots=True)
class WriteIdeal:
    """Write a topic's ideal state: the owner of each partition, and workers that may still commit it."""

    key: TopicKey
    ideal: IdealTopic
    version: int | None


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Write a worker's assignment. `revokes_only`: it adds no partition."""

    worker: WorkerId
    assignment: Assignment
    version: int | None
    revokes_only: bool


@dataclass(frozen=True, slots=True)
class WriteShares:
    """Write the shares of byte limits of a worker's slots."""

    worker: WorkerId
    shares: SlotShares
    version: int | None


@dataclass(frozen=True, slots=True)
class Retire:
    """Remove a topic that no live worker holds: intent and ideal state in one transaction.

    `remains`: entries with holders that never confirmed. They stay without an intent, so that a topic
    whitelisted again later still fences a holder that was frozen until then. The state of its audit and
    a request for one go with the topic.
    """

    key: TopicKey
    intent_version: int | None
    ideal_version: int | None
    remains: IdealTopic | None
    audit_version: int | None = None
    audit_request_version: int | None = None


@dataclass(frozen=True, slots=True)
class WriteSwitches:
    """Record that a requested rebalance is done, since all steps before this one are, or that a confirmed
    loss is over."""

    switches: Switches
    version: int


Step = (
    RegisterWorker
    | Evict
    | ForgetWorker
    | MarkPositions
    | WriteIdeal
    | WriteAssignment
    | WriteShares
    | Retire
    | WriteSwitches
)


def operations(step: Step, paths: Paths) -> tuple[Operation, ...]:
    """Store operations of a step. Raises ValueError if a node would be too big."""
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
        case ForgetWorker(worker, known, registered, assignment, shares):
            versions = {
                paths.worker_known(worker): known,
                paths.worker_registration(worker): registered,
                paths.assignment(worker): assignment,
                paths.slot_shares(worker): shares,
            }
            return tuple(Delete(path, at) for path, at in versions.items() if at is not None)
        case MarkPositions(key, intent, version):
            return (create_or_set(paths.topic(key), encode_intent(intent), version),)
        case WriteIdeal(key, ideal, version):
            return (create_or_set(paths.ideal_topic(key), encode_ideal(ideal), version),)
        case WriteAssignment(worker, assignment, version, _):
            return (
                create_or_set(paths.assignment(worker), encode_assignment(assignment), version),
            )
        case WriteShares(worker, shares, version):
            return (create_or_set(paths.slot_shares(worker), encode_shares(shares), version),)
        case WriteSwitches(switches, version):
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
    if step.audit_version is not None:
        done.append(Delete(paths.audits.state(step.key), step.audit_version))
    if step.audit_request_version is not None:
        done.append(Delete(paths.audits.request(step.key), step.audit_request_version))
    return tuple(done)
