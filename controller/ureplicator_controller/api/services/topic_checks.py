"""What cannot be done to a topic as it is: refusals with the field, the reason and the hint."""

from __future__ import annotations

from http import HTTPStatus

from ureplicator_common.coordination import Node
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import TopicIntent, TopicKey, TopicState
from ureplicator_common.znodes import MAX_PARTITIONS, UnreadableContent, decode_intent
from ureplicator_controller.api.http.problems import Problem, bad_request, conflict, not_found


def read_intent(key: TopicKey, node: Node) -> TopicIntent:
    try:
        return decode_intent(node.data)
    except UnreadableContent as error:
        raise Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            f"the node of {key} in ZooKeeper cannot be read: {error}",
            hint="mend or remove that node by hand",
        ) from error


def target_conflict(owner: TopicKey, target_topic: str) -> Problem:
    return conflict(
        f"{target_topic} on {owner.route.target} is already the target of {owner}",
        field="topic",
        hint="give one of them another name by the route's naming",
    )


def require_absent(key: TopicKey, there: TopicIntent | None) -> None:
    if there is None:
        return
    if there.state is TopicState.DELETING:
        raise conflict(
            f"{key.topic} is being deleted on {key.route}",
            field="topic",
            hint="wait until GET says 404, then add it again",
        )
    raise conflict(
        f"{key.topic} is already whitelisted on {key.route} with {there.partitions} partitions",
        field="topic",
        hint="use PUT to give it more partitions",
    )


def check_partition_count(source: TopicInfo, wanted: int, *, field: str = "numPartitions") -> None:
    if wanted > source.partitions:
        raise bad_request(
            f"the source has only {source.partitions} partitions, not {wanted}",
            field=field,
            hint=f"use at most {source.partitions}, or add partitions to the source first",
        )
    if wanted > MAX_PARTITIONS:
        raise bad_request(
            f"no topic may have {wanted} partitions", field=field, hint=f"use {MAX_PARTITIONS}"
        )


def require_whitelisted(key: TopicKey, there: TopicIntent | None) -> TopicIntent:
    if there is None:
        raise not_found(
            f"{key.topic} is not whitelisted on {key.route}",
            field="topic",
            hint="GET /topics lists those that are; POST /topics adds one",
        )
    return there


def require_not_deleting(key: TopicKey, there: TopicIntent | None) -> TopicIntent:
    known = require_whitelisted(key, there)
    if known.state is TopicState.DELETING:
        raise conflict(
            f"{key.topic} is being deleted on {key.route}", field="topic", hint="add it again later"
        )
    return known


def require_partition(key: TopicKey, there: TopicIntent, number: int) -> None:
    if number >= there.partitions:
        raise bad_request(
            f"{key.topic} has no partition {number} on {key.route}",
            field="partition",
            hint=f"a number from 0 to {there.partitions - 1}",
        )


def require_not_shrinking(key: TopicKey, there: TopicIntent | None, partitions: int) -> TopicIntent:
    """What is there, if it can be given so many partitions."""
    known = require_not_deleting(key, there)
    if partitions < known.partitions:
        raise bad_request(
            f"{key.topic} has {known.partitions} partitions already, they cannot become fewer",
            field="numPartitions",
            hint=f"use {known.partitions} or more",
        )
    return known
