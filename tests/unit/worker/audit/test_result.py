"""Values of an audit and their JSON."""

import json
from dataclasses import replace
from typing import Any

from ureplicator_common.model import Delivery
from ureplicator_worker.audit.result import (
    AuditResult,
    AuditState,
    Finding,
    FindingKind,
    PartitionResult,
)

PART = PartitionResult(0, 0, 10, 12, end=10, compared=10, notes=("a note",))
RESULT = AuditResult(
    "west.east",
    "orders",
    "orders",
    (PART, replace(PART, partition=1)),
    (Finding(0, FindingKind.MISSING, 4, -1),),
    began_ms=1,
    ended_ms=2,
)


def test_json_is_read_back() -> None:
    assert AuditResult.from_json(json.loads(json.dumps(RESULT.to_json()))) == RESULT


def test_fields_of_another_version_are_ignored() -> None:
    raw = RESULT.to_json()
    raw["later"] = raw["partitions"][0]["later"] = raw["findings"][0]["later"] = 1
    assert AuditResult.from_json(raw) == RESULT


def test_states() -> None:
    def state(result: AuditResult, **counts: Any) -> AuditState:
        return replace(result, partitions=(replace(PART, **counts),)).state

    exactly = replace(RESULT, delivery=Delivery.EXACTLY_ONCE)
    assert state(RESULT) is AuditState.EQUAL
    assert state(RESULT, repeated=3) is AuditState.EQUAL
    assert state(exactly, repeated=3) is AuditState.DIFFERENT
    assert state(RESULT, verified_to=9) is AuditState.INCOMPLETE
    assert state(RESULT, verified_to=9, missing=1) is AuditState.DIFFERENT
    assert state(RESULT, shifted=1) is AuditState.DIFFERENT
    assert state(replace(RESULT, not_comparable="handler")) is AuditState.NOT_COMPARABLE


def test_what_compared_nothing_is_not_equal() -> None:
    nothing = replace(PART, compared=0)
    empty = replace(RESULT, partitions=(nothing,))
    assert (empty.state, empty.reason) == (
        AuditState.NOT_VERIFIED,
        "there is no record in the range",
    )
    assert replace(RESULT, partitions=(PART, nothing)).state is AuditState.EQUAL, "it is empty"
    lost = replace(nothing, partition=1, uncompared="the target has no records")
    partly = replace(RESULT, partitions=(PART, lost, replace(lost, partition=2)))
    assert partly.state is AuditState.NOT_VERIFIED
    assert partly.reason == "partition 1: the target has no records, and 1 more"
    assert partly.reason in partly.next_steps[-1]
    assert replace(RESULT, partitions=(replace(lost, missing=1),)).state is AuditState.DIFFERENT
    assert RESULT.reason == ""


def test_next_steps_name_what_was_found() -> None:
    found = replace(RESULT, partitions=(replace(PART, missing=1, foreign=2),))
    assert [step.split(" ")[0] for step in found.next_steps] == ["records", "the"]
    assert "--repair" in found.next_steps[0]
    assert RESULT.next_steps == ()
