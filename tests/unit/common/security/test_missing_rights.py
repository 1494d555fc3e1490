"""Requests that are refused for a missing right: the reason names the error, the right and the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable, Position
from ureplicator_common.kafka.client import EARLIEST
from ureplicator_common.kafka.errors import OF_A_PARTITION, ErrorCode, refusal
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import CommitRefused, PositionStore
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_testkit.kafka.coordinator import Coordinator

KEY = ("t", 0)
AT = "at the cluster at nowhere:1"
GROUP, TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_only_errors_about_rights_name_one() -> None:
    assert refusal(TOPIC, "READ on topic t", "cluster west") == (
        "TOPIC_AUTHORIZATION_FAILED: the principal lacks READ on topic t at cluster west"
    )
    assert refusal(ErrorCode.REQUEST_TIMED_OUT, "READ on topic t", "cluster west") == (
        "REQUEST_TIMED_OUT"
    )


def test_offsets_of_a_topic_that_is_not_described() -> None:
    model = cluster_model("west", {"t": 1, "u": 1})
    model.hidden = {"t"}
    reader = KafkaLogReader(MemoryCluster(model))
    lacking = (
        "t/0: TOPIC_AUTHORIZATION_FAILED: the principal lacks DESCRIBE on topic t at cluster west"
    )
    extents = reader.extents({"t": [0], "u": [0]})
    assert str(extents[KEY]) == lacking
    assert not isinstance(extents["u", 0], PartitionUnavailable)
    assert str(reader.offsets_at({KEY: EARLIEST})[KEY]) == lacking


@pytest.mark.parametrize(
    ("name", "code", "right"),
    [
        ("AddOffsetsToTxn", GROUP, "READ on group g"),
        ("AddOffsetsToTxn", ID, "WRITE on transactional id own"),
        ("TxnOffsetCommit", GROUP, "READ on group g"),
        ("EndTxn", ID, "WRITE on transactional id own"),
    ],
)
def test_commits_of_positions(name: str, code: ErrorCode, right: str) -> None:
    scripts: dict[str, list[Any]] = {name: [code]}
    store = PositionStore(Coordinator(**scripts), group="g", transactional_id="own")
    store.initialise()
    with pytest.raises(ClusterUnavailable) as error:
        store.commit({KEY: Position(5)})
    assert str(error.value).endswith(f"{code.name}: the principal lacks {right} {AT}")


def test_a_position_that_is_refused() -> None:
    store = PositionStore(Coordinator(TxnOffsetCommit=[TOPIC]), group="g", transactional_id="own")
    store.initialise()
    with pytest.raises(CommitRefused) as error:
        store.commit({KEY: Position(5)})
    lacking = f"TOPIC_AUTHORIZATION_FAILED: the principal lacks READ on topic t {AT}"
    assert error.value.refused == {KEY: lacking}


def test_reads_of_positions() -> None:
    store = PositionStore(Coordinator(OffsetFetch=[GROUP]), group="g", transactional_id="own")
    with pytest.raises(ClusterUnavailable) as error:
        store.read({"t": [0]})
    lacking = f"GROUP_AUTHORIZATION_FAILED: the principal lacks DESCRIBE on group g {AT}"
    assert str(error.value).endswith(lacking)


@pytest.mark.parametrize("code", sorted(OF_A_PARTITION))
def test_a_position_that_is_not_shown_hides_no_other(code: int) -> None:
    """It does not count as none either: copying would begin at the route's start."""
    client = Coordinator(OffsetFetch=[0, ErrorCode.UNSTABLE_OFFSET_COMMIT])
    client.unreadable = {"t": code}
    client.stored["u", 0] = Position(5)
    store = PositionStore(client, group="g", transactional_id="own")
    for _ in range(2):
        found = store.read({"t": [0], "u": [0]})
        assert found["u", 0] == Position(5)
        assert isinstance(found[KEY], PartitionUnavailable)
        reason = refusal(code, "DESCRIBE on topic t", "the cluster at nowhere:1")
        assert str(found[KEY]) == f"t/0: {reason}"
    assert client.requests == ["OffsetFetch"] * 3


def test_a_transactional_id() -> None:
    client = Coordinator(InitProducerId=[ID])
    store = PositionStore(client, group="g", transactional_id="own")
    with pytest.raises(ClusterUnavailable) as error:
        store.initialise()
    assert str(error.value).endswith(f"lacks WRITE on transactional id own {AT}")
