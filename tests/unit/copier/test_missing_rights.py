"""Rights that are withdrawn while a partition is copied: its reason names the error and the missing right."""

from __future__ import annotations

from collections import deque

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.copier.line import MakeLine, assert_same, fill
from ureplicator_worker.lifeline.messages import Failed

K0 = ("t", 0)
CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("end", ["source", "target"])
def test_to_describe(make: MakeLine, end: str) -> None:
    """Brokers show no partitions of the topic, and say why."""
    line = make(1)
    (partition,) = line.add(0)
    fill(line, K0, 5)
    line.run(lambda: line.copied(partition))
    kafka, metadata = getattr(line, end), getattr(line, f"{end}_metadata")
    kafka.hidden = {"t"}
    metadata.refresh()
    line.turns(2)
    fill(line, K0, 5)
    lacking = f"the principal lacks DESCRIBE on topic t at cluster {kafka.cluster_id}"
    reason = f"{end}: {CODE.name}: {lacking}"
    line.run(lambda: line.report(partition).reason == reason)
    kafka.hidden = set()
    metadata.refresh()
    line.run(lambda: line.copied(partition), skip_s=1.0)
    assert_same(line, K0)


def test_to_read(make: MakeLine) -> None:
    line = make(1)
    (partition,) = line.add(0)
    line.source.refuse[K0] = deque([int(CODE)] * 10)
    fill(line, K0, 5)
    reason = f"source: {CODE.name}: the principal lacks READ on topic t at cluster A"
    line.run(lambda: line.report(partition).reason == reason)
    line.run(lambda: line.copied(partition), skip_s=1.0)
    assert_same(line, K0)


def test_to_write(make: MakeLine) -> None:
    """The partition is given up, and tried again by its worker."""
    line = make(1)
    line.add(0)
    line.target.refuse[K0] = deque([int(CODE)])
    fill(line, K0, 5)
    line.run(lambda: bool(line.sent))
    (failed,) = line.sent
    assert isinstance(failed, Failed)
    lacking = "the principal lacks WRITE on topic t at cluster B"
    assert failed.reason == f"target refused offset 0: {CODE.name}: {lacking}"
