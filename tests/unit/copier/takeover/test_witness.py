"""Identity of records on both ends."""

from __future__ import annotations

from itertools import combinations

from ureplicator_worker.copier.takeover.witness import DIGEST_BYTES, STAMPED_MS, witness_of

RECORDS = [
    (1, b"k", b"v", ()),
    (2, b"k", b"v", ()),
    (1, b"l", b"v", ()),
    (1, b"", b"v", ()),
    (1, None, b"v", ()),
    (1, b"k", b"w", ()),
    (1, b"k", b"", ()),
    (1, b"k", None, ()),
    (1, b"k", b"v", (("a", b"1"),)),
    (1, b"k", b"v", (("a", None),)),
    (1, b"k", b"v", (("a", b"1"), ("b", b"2"))),
    (1, b"k", b"v", (("b", b"2"), ("a", b"1"))),
    (1, b"k", b"v", (("\udcff", b""),)),
]


def test_records_that_differ_have_other_witnesses() -> None:
    for one, other in combinations(RECORDS, 2):
        assert witness_of(*one) != witness_of(*other), (one, other)
    assert [witness_of(*record) for record in RECORDS] == [witness_of(*one) for one in RECORDS]


def test_a_time_that_the_target_has_stamped_is_left_out() -> None:
    source = witness_of(1, b"k", b"v")
    assert witness_of(STAMPED_MS, b"k", b"v").is_copy_of(source)
    assert not witness_of(STAMPED_MS, b"k", b"w").is_copy_of(source)
    assert not witness_of(2, b"k", b"v").is_copy_of(source)


def test_a_witness_of_a_large_record_is_small() -> None:
    large = witness_of(1, b"k" * 1_000_000, b"v" * 1_000_000)
    assert large.key is not None
    assert len(large.key) == len(large.content) == DIGEST_BYTES
