"""Checks of a request against a topic's intent: refusals with field, reason and hint."""

from __future__ import annotations

from collections.abc import Collection

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.printable import did_you_mean
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS
from ureplicator_controller.api.http.problems import Problem, bad_request, conflict, not_found


def target_conflict(owner: TopicKey, target_topic: str) -> Problem:
    return conflict(
        f"{target_topic} on {owner.route.target} is already the target of {owner}",
        field="topic",
        hint="give one of the targets another name by the route's naming",
    )


def note_on_topic(key: TopicKey, known: Collection[TopicKey]) -> str:
    """A remark on a topic that is not whitelisted, which may be on purpose; "" for one that is."""
    return "" if key in known else _absence(key, known)


def _absence(key: TopicKey, known: Collection[TopicKey]) -> str:
    return f"{key.topic} is not whitelisted on {key.route}{similar(key, known)}"


def similar(key: TopicKey, known: Collection[TopicKey]) -> str:
    """The topic of the route that the name is most like, as a question; "" for none."""
    return did_you_mean(key.topic, {other.topic for other in known if other.route == key.route})


def require_absent(key: TopicKey, intent: TopicIntent | None) -> None:
    if intent is None:
        return
    if intent.state is TopicState.DELETING:
        raise _deleting(key)
    raise conflict(
        f"{key.topic} is already whitelisted on {key.route} with {intent.partitions} partitions",
        field="topic",
        hint="use PUT to expand it",
    )


def require_whitelisted(
    key: TopicKey, intent: TopicIntent | None, known: Collection[TopicKey] = ()
) -> TopicIntent:
    """`known`: topics of which the refusal names one that is similar."""
    if intent is None:
        raise not_whitelisted(_absence(key, known))
    return intent


def not_whitelisted(detail: str) -> Problem:
    return not_found(
        detail,
        field="topic",
        hint="GET /topics lists whitelisted topics; POST /topics adds one",
    )


def require_changeable(
    key: TopicKey, intent: TopicIntent | None, known: Collection[TopicKey] = ()
) -> TopicIntent:
    """The intent, if operators may change it."""
    found = require_whitelisted(key, intent, known)
    if found.state is TopicState.DELETING:
        raise _deleting(key)
    if found.state is TopicState.REVERSED:
        raise conflict(
            f"{key.topic} is not copied on {key.route}: a cutover has moved its clients to the target",
            field="topic",
            hint="GET /cutovers names it; ureplicator cutover back moves them back",
        )
    return found


def require_not_shrinking(
    key: TopicKey,
    intent: TopicIntent | None,
    partitions: int,
    known: Collection[TopicKey] = (),
) -> TopicIntent:
    """The intent, if it may be expanded to this number of partitions."""
    found = require_changeable(key, intent, known)
    if partitions < found.partitions:
        raise bad_request(
            f"{key.topic} has {found.partitions} partitions already; the number cannot shrink",
            field="numPartitions",
            hint=f"use {found.partitions} or more",
        )
    return found


def require_partition(key: TopicKey, intent: TopicIntent, number: int) -> None:
    if number >= intent.partitions:
        raise bad_request(
            f"{key.topic} has no partition {number} on {key.route}",
            field="partition",
            hint=f"use a number from 0 to {intent.partitions - 1}",
        )


def check_partition_count(source: TopicInfo, wanted: int, *, field: str = "numPartitions") -> None:
    if wanted > source.partitions:
        raise bad_request(
            f"the source topic has only {source.partitions} partitions, not {wanted}",
            field=field,
            hint=f"use at most {source.partitions}, or expand the source topic first",
        )
    if wanted > MAX_TOPIC_PARTITIONS:
        raise bad_request(
            f"{wanted} partitions exceed the limit", field=field, hint=f"use {MAX_TOPIC_PARTITIONS}"
        )


def check_numbers(wanted: TopicIntent) -> None:
    """Refuse numbers of partitions that the topic would not have."""
    if wanted.initial_partitions > wanted.partitions:
        raise bad_request(
            f"initialPartitions {wanted.initial_partitions} exceeds partitions {wanted.partitions}",
            field="initialPartitions",
            hint="use at most as many as partitions",
        )
    for field, numbers in (
        ("blacklisted", wanted.blacklisted),
        ("hadPosition", wanted.had_position),
    ):
        if max(numbers, default=-1) >= wanted.partitions:
            raise bad_request(
                f"{max(numbers)} is not a number from 0 to {wanted.partitions - 1}",
                field=field,
                hint=f"the topic has {wanted.partitions} partitions",
            )


def _deleting(key: TopicKey) -> Problem:
    return conflict(
        f"{key.topic} is being deleted on {key.route}",
        field="topic",
        hint="wait until GET returns 404, then add it again",
    )
