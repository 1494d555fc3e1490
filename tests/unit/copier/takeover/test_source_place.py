"""The source's offset behind so many copied records."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import TRANSACTIONAL
from ureplicator_worker.copier.behind import Behind, Disagreement, Place, Span
from ureplicator_worker.copier.takeover.reading import Unreadable
from ureplicator_worker.copier.takeover.source_place import SourcePlace, matching
from ureplicator_worker.copier.takeover.witness import STAMPED_MS, Placed, Witness, witness_of

LIMIT_BYTES = 200


def witness(number: int, key: bytes | None = None) -> Witness:
    return witness_of(number, key, b"%d" % number)


def put(log: BatchLog, *numbers: int, producer: int = -1, deltas: list[int] | None = None) -> None:
    rows = [(number, None, b"%d" % number, ()) for number in numbers]
    attributes = TRANSACTIONAL if producer >= 0 else 0
    log.put(batches.batch(rows, producer_id=producer, attributes=attributes, deltas=deltas))


def end(log: BatchLog, producer: int, *, commit: bool) -> None:
    log.put(batches.marker(base_offset=0, producer_id=producer, commit=commit))


def row(log: BatchLog, found: list[bytes], offset: int) -> Any:
    rows = FetchResponse.FetchableTopicResponse.PartitionData
    return rows(
        partition_index=0,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.stable_end,
        log_start_offset=log.start,
        aborted_transactions=[
            rows.AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in log.aborted_in(offset, found)
        ],
        preferred_read_replica=-1,
        records=b"".join(found),
    )


def find(log: BatchLog, behind: Behind, *, position: int = 0) -> Place:
    place = SourcePlace(position=position, behind=behind, end=log.end)
    for _ in range(200):
        if place.place is not None:
            return place.place
        if not log.start <= place.offset <= log.end:
            place.out_of_range(log.start)
            continue
        found = log.fetch(place.offset, LIMIT_BYTES)
        place.add(b"".join(found), row(log, found, place.offset))
    raise AssertionError("not found")


def copied(*numbers: int, collected: bool = False) -> Behind:
    copies = tuple(witness(number) for number in numbers)
    return Behind(len(numbers), 0, last=copies[-1], copies=copies if collected else None)


@pytest.mark.parametrize("collected", [False, True])
@pytest.mark.parametrize("count", range(1, 8))
def test_records_are_counted_over_batches(count: int, collected: bool) -> None:
    log = BatchLog()
    put(log, 0, 1, 2)
    put(log, 3)
    put(log, 4, 5, 6, 7)
    found = find(log, copied(*range(1, 1 + count), collected=collected), position=1)
    assert found.offset == 1 + count
    assert found.spans == (() if collected else (Span(1, count),))


@pytest.mark.parametrize("collected", [False, True])
def test_what_is_not_copied_does_not_count(collected: bool) -> None:
    """Aborted records, control records, and offsets that compaction has left empty."""
    log = BatchLog()
    put(log, 0, 1, producer=5)
    put(log, 2, 3, producer=6)
    end(log, 5, commit=False)
    end(log, 6, commit=True)
    put(log, 6, 9, deltas=[0, 3])
    put(log, 10)
    found = find(log, copied(2, 3, 6, 9, collected=collected))
    assert found.offset == 10
    assert found.spans == (() if collected else (Span(2, 2), Span(6, 1), Span(9, 1)))


def test_a_record_that_is_another_one_disagrees() -> None:
    log = BatchLog()
    put(log, 0, 1, 2)
    with pytest.raises(Disagreement, match="offset 1 is not the record"):
        find(log, copied(0, 5))


def test_a_record_that_the_target_lacks_disagrees() -> None:
    log = BatchLog()
    put(log, 0, 1, 2)
    with pytest.raises(Disagreement):
        find(log, Behind(2, 0, last=None))


def test_a_time_that_the_target_has_stamped_is_not_compared() -> None:
    log = BatchLog()
    put(log, 0, 1, 2)
    stamped = witness(1)._replace(time_ms=STAMPED_MS)
    assert find(log, Behind(2, 0, last=stamped)).offset == 2


def test_what_compaction_has_removed_since_the_copy_is_found_missing() -> None:
    """The place would lie two records too far by the count alone: they would be lost."""
    log = BatchLog()
    put(log, 2, 3, 4, 5, 6, 7, deltas=[2, 3, 4, 5, 6, 7])
    with pytest.raises(Disagreement):
        find(log, copied(0, 1, 2, 3))
    assert find(log, copied(0, 1, 2, 3, collected=True)).offset == 4


@pytest.mark.parametrize("kept", [[0, 3], [2, 3], [0, 3, 5], [0, 5]])
def test_a_source_that_holds_fewer_records_than_were_copied(kept: list[int]) -> None:
    """The cleaner has left so few that the log ends before the count does."""
    log = BatchLog()
    put(log, *kept, deltas=kept)
    with pytest.raises(Disagreement, match="records fewer than were copied"):
        find(log, copied(0, 1, 2, 3))
    last = max(number for number in kept if number < 4)
    assert find(log, copied(0, 1, 2, 3, collected=True)).offset == last + 1


@pytest.mark.parametrize("collected", [False, True])
def test_a_source_that_ends_before_what_was_copied(collected: bool) -> None:
    """A new leader knows less for a while, or the source was truncated: no place is concluded from that."""
    log = BatchLog()
    put(log, 0, 1, 2)
    with pytest.raises(Unreadable, match="ends at 3, before what was copied"):
        find(log, copied(0, 1, 2, 3, collected=collected))


@pytest.mark.parametrize("collected", [False, True])
def test_a_new_leader_that_does_not_know_yet_what_is_committed(collected: bool) -> None:
    """Its log seems to end where the first records of what was copied do: the rest would be copied again."""
    log = BatchLog()
    put(log, 0, 1, 6, 7, deltas=[0, 1, 6, 7])
    put(log, 8, 9)
    log.lagging = 8
    behind = copied(0, 1, 6, 7, 8, 9, collected=collected)
    place = SourcePlace(position=0, behind=behind, end=log.end)
    for _ in range(3):
        found = log.fetch(place.offset, LIMIT_BYTES)
        place.add(b"".join(found), row(log, found, place.offset))
        assert place.place is None
    log.lagging = None
    found = log.fetch(place.offset, LIMIT_BYTES)
    place.add(b"".join(found), row(log, found, place.offset))
    assert place.place is not None
    assert place.place.offset == 10


def test_a_last_copy_that_compaction_has_taken() -> None:
    """An earlier copy decides."""
    log = BatchLog()
    put(log, 0, 1, 4, 5, deltas=[0, 1, 4, 5])
    assert find(log, copied(0, 1, 2, 3, collected=True)).offset == 2


def test_a_source_that_begins_behind_all_copies() -> None:
    """The gap is the lane's to find: it begins behind so many offsets."""
    log = BatchLog(start=8, end=8)
    put(log, 8, 9)
    with pytest.raises(Disagreement, match="begins at 8"):
        find(log, copied(0, 1, 2))
    assert find(log, copied(0, 1, 2, collected=True)).offset == 3


def test_a_source_that_begins_among_the_copies() -> None:
    log = BatchLog(start=2, end=2)
    put(log, 2, 3, 4, 5)
    assert find(log, copied(0, 1, 2, 3, collected=True)).offset == 4


def test_copies_that_the_source_never_had() -> None:
    log = BatchLog()
    put(log, 0, 1, 2, 3)
    with pytest.raises(Disagreement, match="was the route's handler or naming changed"):
        find(log, copied(10, 11, collected=True))


def test_a_key_shows_that_a_newer_record_has_replaced_the_copy() -> None:
    log = BatchLog()
    log.put(batches.batch([(5, b"k", b"5", ())]))
    behind = Behind(1, 0, last=witness(0, b"k"), copies=(witness(0, b"k"),))
    assert find(log, behind).offset == 0


def test_a_source_that_lost_what_was_copied() -> None:
    log = BatchLog()
    put(log, 0, 1)
    with pytest.raises(Disagreement, match="ends before offset 9"):
        find(log, copied(9, 10), position=9)


def test_the_last_of_equal_copies_is_matched_in_order() -> None:
    copies = [witness(1), witness(1), witness(2)]
    rows = [Placed(4, witness(1)), Placed(5, witness(1)), Placed(6, witness(1))]
    assert matching(copies, rows) == 6
