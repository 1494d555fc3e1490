"""Claims: at most one source topic for each target topic, also under concurrent whitelisting.

A claim on the target topic's name is written in the same transaction as the intent: of two concurrent
writers the second finds another version of the claim and is refused. A claim is in force while the
intent it names exists with that target; a claim that outlived its intent is taken over, or removed
(`unused`). A topic that was whitelisted without a claim is not protected by one.
"""

from __future__ import annotations

from ureplicator_common.coordination import Coordination, Create, Operation, Set
from ureplicator_common.errors import PermanentError
from ureplicator_common.model import TopicKey
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import decode_claim, decode_intent, encode_claim


class TargetTaken(PermanentError):
    """Another source topic is copied to this target topic."""

    def __init__(self, owner: TopicKey, target_topic: str) -> None:
        super().__init__(f"{target_topic} is already the target of {owner}")
        self.owner = owner


def ensure_parents(coordination: Coordination, paths: Paths, key: TopicKey) -> None:
    """Create the parents of an intent and of its claim, before the transaction. Raises Unavailable."""
    coordination.ensure(f"{paths.topics}/{key.route}")
    coordination.ensure(f"{paths.targets}/{key.route.target}")


def claim(coordination: Coordination, paths: Paths, key: TopicKey, target_topic: str) -> Operation:
    """The operation to write with the intent. Raises TargetTaken, Unavailable."""
    path = paths.target(key.route.target, target_topic)
    there = coordination.get(path)
    if there is None:
        return Create(path, encode_claim(key))
    owner = owner_of(there.data)
    if owner not in (None, key) and in_force(coordination, paths, owner, target_topic):
        raise TargetTaken(owner, target_topic)
    return Set(path, encode_claim(key), there.stat.version)


def in_force(coordination: Coordination, paths: Paths, owner: TopicKey, target_topic: str) -> bool:
    """True if a claim counts: its owner's intent exists with that target, or cannot be read. Raises
    Unavailable."""
    node = coordination.get(paths.topic(owner))
    if node is None:
        return False
    try:
        intent = decode_intent(node.data)
    except UnreadableContent:
        return True
    return intent.target_topic == target_topic


def owner_of(data: bytes) -> TopicKey | None:
    """The source topic that a claim names; None if it cannot be read."""
    try:
        return decode_claim(data)
    except UnreadableContent:
        return None
