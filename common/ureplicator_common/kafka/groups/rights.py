"""Rights that requests about groups need, for errors that say that one is missing.

Source: https://kafka.apache.org/documentation/#operations_resources_and_protocols
"""

from __future__ import annotations

from ureplicator_common.kafka.errors import ErrorCode, Rights, error_name

_GROUP, _TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
TO_READ: Rights = {_GROUP: "DESCRIBE on the group", _TOPIC: "DESCRIBE on the topic"}
TO_COMMIT: Rights = {_GROUP: "READ on the group", _TOPIC: "READ on the topic"}
TO_DELETE: Rights = {_GROUP: "DELETE on the group", _TOPIC: "READ on the topic"}


def error_reason(code: int, rights: Rights) -> str:
    """Name of an error code, and the right to give where it is missing."""
    right = rights.get(code)
    return f"{error_name(code)}: allow {right}" if right else error_name(code)
