"""Settings of a route that change while its partitions run: no restart, no new proof, no record twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.model import HandlerSettings, PartitionState, RouteSettings, SqlSettings
from ureplicator_testkit.copier.line import ROUTE, Line, MakeLine, assert_same, fill, values
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.holder import restart_reason
from ureplicator_worker.lifeline.messages import Add, Failed, PublishedSettings

K0 = ("t", 0)


def change(line: Line, settings: RouteSettings, *, version: int = 1) -> None:
    line.copier.change_settings(PublishedSettings(ROUTE, version, settings))


def test_a_record_that_the_target_rejects_is_skipped_from_now_on(make: MakeLine) -> None:
    line = make()
    line.target.logs[K0].max_bytes = 5_000
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    change(line, RouteSettings(abort_on_send_failure=False))
    line.source.logs[K0].put(batches.batch([(1, None, b"x" * 9_000, ())]), batches.batch(1))
    line.run(lambda: line.copied(partition))
    assert line.report(partition).skipped == 1
    assert len(values(line.target, K0)) == 1
    change(line, RouteSettings(), version=2)
    line.source.logs[K0].put(batches.batch([(1, None, b"y" * 9_000, ())]))
    line.run(lambda: any(isinstance(message, Failed) for message in line.sent))


def test_checksums_are_no_longer_verified(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    change(line, RouteSettings(verify_crc=False))
    log = line.source.logs[K0]
    log.put(batches.batch(3))
    damaged = bytearray(log.taken[-1])
    damaged[-1] ^= 0xFF
    log.taken[-1] = bytes(damaged)
    line.run(lambda: line.copied(partition))


def test_positions_are_published_at_the_source_from_now_on(make: MakeLine) -> None:
    line = make(settings=RouteSettings(publish_to_source=False))
    fill(line, K0, 2)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.turns(50, skip_s=1.0)
    assert line.source_metadata.published == []
    change(line, RouteSettings())
    line.run(lambda: bool(line.source_metadata.published))
    assert line.source_metadata.published[-1][K0].offset == line.source.logs[K0].end
    assert_same(line, K0)


def test_the_newest_settings_count_in_whatever_order_they_come(make: MakeLine) -> None:
    """A grant may have been read before a change that arrives first."""
    line = make(2)
    line.ownership.hold = {Add}
    before = line.add(0)
    line.turns(2)
    change(line, RouteSettings(abort_on_send_failure=False), version=7)
    line.ownership.let_pass()
    line.run(lambda: line.report(before[0]).state is PartitionState.ONLINE)
    change(line, RouteSettings(), version=6)
    for partition in [*before, *line.add(1)]:
        key = (partition.topic, partition.number)
        line.target.logs[key].max_bytes = 5_000
        line.source.logs[key].put(batches.batch([(1, None, b"x" * 9_000, ())]))
        line.run(lambda at=partition: line.copied(at))  # type: ignore[misc]
        assert line.report(partition).skipped == 1


def handled(pattern: str, args: str = "{}") -> RouteSettings:
    return RouteSettings(handlers=(HandlerSettings(pattern, "shop:make", args),))


def queried(query: str) -> RouteSettings:
    return RouteSettings(sql=(SqlSettings("t", query),))


@pytest.mark.parametrize(
    ("former", "settings", "reason"),
    [
        (RouteSettings(), handled("t"), "handler changes to shop:make"),
        (handled("t"), handled("t", '{"a": 1}'), "handler changes to shop:make"),
        (handled("t"), RouteSettings(), "handler changes to none"),
        (handled("t"), handled("t|u"), "handler changes to shop:make"),
        (handled("u"), handled("v"), ""),
        (RouteSettings(), queried("SELECT 1"), "handler changes to sql"),
        (handled("t"), queried("SELECT 1"), "handler changes to sql"),
        (queried("SELECT 1"), queried("SELECT 2"), "handler changes to sql"),
        (queried("SELECT 1"), RouteSettings(), "handler changes to none"),
        (handled("t"), replace(queried("SELECT 1"), handlers=handled("t").handlers), ""),
        (RouteSettings(), RouteSettings(verify_crc=False), ""),
    ],
)
def test_changes_that_a_partition_begins_again_for(
    former: RouteSettings, settings: RouteSettings, reason: str
) -> None:
    assert restart_reason(former, settings, "t") == reason


def test_a_partition_whose_handler_changes_is_drained_and_fails_for_a_moment(
    make: MakeLine,
) -> None:
    line = make()
    fill(line, K0, 3)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).records > 0)
    change(line, handled("t"))
    line.run(lambda: bool(line.sent))
    assert line.sent == [Failed(partition, "handler changes to shop:make", temporary=True)]
    sent = sum(len(batch) > 0 for batch in line.target.logs[K0].taken)
    assert line.ownership.stored[partition] == sent * 4
