"""Missing records that may be copied again, and those that may not."""

from __future__ import annotations

from collections.abc import Sequence

from ureplicator_worker.audit.core.side import Chunk, Content
from ureplicator_worker.audit.repair import plan_new, plan_repair


def record(key: bytes | None, timestamp: int = 1) -> Content:
    return key, b"v", (), timestamp


def log(*contents: Content) -> Sequence[Chunk]:
    """A log from offset 0."""
    return [Chunk([offset], [content], offset + 1, 1) for offset, content in enumerate(contents)]


def test_the_end_is_copied_in_order() -> None:
    source = log(record(b"a"), record(None), record(b"a"), record(None))
    copied, refused = plan_repair([1, 2, 3], source)
    assert list(copied) == [1, 2, 3]
    assert refused == {}


def test_a_later_record_of_the_same_key_forbids_it() -> None:
    source = log(record(b"a"), record(b"b"), record(b"c"), record(b"a"))
    copied, refused = plan_repair([0, 1], source)
    assert list(copied) == [1]
    assert refused == {0: "a later record has the same key, at offset 3"}


def test_later_missing_records_of_the_key_do_not_forbid_it() -> None:
    copied, refused = plan_repair([0, 2], log(record(b"a"), record(b"b"), record(b"a")))
    assert (list(copied), refused) == ([0, 2], {})


def test_a_record_without_a_key_is_copied_only_at_the_end() -> None:
    copied, refused = plan_repair([0, 2], log(record(None), record(b"b"), record(None)))
    assert list(copied) == [2]
    assert refused == {0: "it has no key, and records follow it, at offset 1"}
    refused = plan_repair([0], log(record(None), record(None)))[1]
    assert refused == {0: "it has no key, and records follow it, at offset 1"}


def test_what_is_gone_or_cannot_be_produced_is_refused() -> None:
    copied, refused = plan_repair([0, 7], log(record(b"a", timestamp=-1)))
    assert copied == {}
    assert refused[7] == "the source no longer has it"
    assert "timestamp" in refused[0]


def test_what_the_target_has_is_not_copied_again() -> None:
    """A former repair copied the first two to the target's end; its result still calls them missing."""
    source = log(record(b"a"), record(None, 2), record(b"b", 3))
    target = log(record(b"a"), record(None, 2))
    copied, refused = plan_new([0, 1, 2], lambda: source, lambda: target)
    assert list(copied) == [2]
    assert refused == {
        0: "the target has an equal record, at offset 0",
        1: "the target has an equal record, at offset 1",
    }
    everything = (*target, *log(record(b"b", 3)))
    assert plan_new([0, 1, 2], lambda: source, lambda: everything)[0] == {}


def test_what_the_target_has_forbids_earlier_records_of_its_key() -> None:
    source = log(record(b"a", 1), record(b"a", 2))
    copied, refused = plan_new([0, 1], lambda: source, lambda: log(record(b"a", 2)))
    assert copied == {}
    assert refused[0] == "a later record has the same key, at offset 1"


def test_times_of_a_target_that_stamps_records_are_not_compared() -> None:
    source, target = log(record(b"a", 1)), log(record(b"a", 9))
    assert plan_new([0], lambda: source, lambda: target, timestamps=False)[0] == {}
    assert list(plan_new([0], lambda: source, lambda: target)[0]) == [0]
