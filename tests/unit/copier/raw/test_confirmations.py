"""An owner is confirmed before it sends, where it may have slept since its producer was named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.kafka.provenance import DataProducer
from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_testkit.copier.fenced_fleet import DAY_S, FENCED
from ureplicator_testkit.copier.line import Line, MakeLine, fill, values
from ureplicator_worker.copier.messages import Begun, Commit
from ureplicator_worker.copier.raw.confirmations import FRESH_S

K0, K1 = ("t", 0), ("t", 1)


def begin_after(line: Line, pause_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer was named so long ago, a connection opened since; commits are held back."""
    begun = line.ownership.begun
    given_s = line.now_s

    def named(partition: Partition, epoch: OwnerEpoch) -> Begun:
        event = begun(partition, epoch)
        producer = DataProducer("w.0.run", 7, 0)
        return replace(event, beginning=replace(event.beginning, appends=producer, at_s=given_s))

    monkeypatch.setattr(line.ownership, "begun", named)
    line.turn(skip_s=pause_s)
    fill(line, K1, 3)
    (other,) = line.add(1)
    line.run(lambda: line.copied(other), skip_s=0.001)
    line.ownership.hold.add(Commit)
    fill(line, K0, 3)
    line.add(0)
    line.turns(20, skip_s=0.001)


def test_a_producer_that_was_just_named_sends_at_once(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make(2, settings=FENCED)
    begin_after(line, FRESH_S / 2, monkeypatch)
    assert values(line.target, K0) == values(line.source, K0)


def test_a_process_that_slept_behind_the_name_commits_once_more_first(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make(2, settings=FENCED)
    begin_after(line, DAY_S, monkeypatch)
    assert values(line.target, K0) == []
    line.ownership.let_pass()
    line.turns(20, skip_s=0.001)
    assert values(line.target, K0) == values(line.source, K0)
