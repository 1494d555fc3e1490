"""Commits in the coordinator's format: decoding, and every violation detected."""

import struct

import pytest

from ureplicator_common.kafka.provenance import Provenance
from ureplicator_testkit.records.commits import CommittedOffset, decode, violations
from ureplicator_testkit.servers.sessions import password_of

WRITTEN = Provenance("c" * 120, "s", "t", "w1", 0, 7)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def key(group: str = "g", topic: str = "t", version: int = 1) -> bytes:
    return struct.pack(">h", version) + text(group) + text(topic) + struct.pack(">i", 3)


def value(version: int) -> bytes:
    metadata = WRITTEN.encode()
    length = len(metadata) + 1
    assert length >= 0x80, "its varint takes two bytes"
    compact = bytes([length & 0x7F | 0x80, length >> 7]) + metadata.encode()
    begin = struct.pack(">hqi", version, 42, 5)
    return begin + (text(metadata) if version == 3 else compact) + bytes(9)


@pytest.mark.parametrize("version", [3, 4])
def test_a_commit_is_decoded(version: int) -> None:
    assert decode(key(), value(version), "g", "t") == CommittedOffset(3, 42, 7, "w1")


def test_other_groups_topics_members_and_tombstones_are_left_out() -> None:
    assert decode(key(group="h"), value(3), "g", "t") is None
    assert decode(key(topic="u"), value(3), "g", "t") is None
    assert decode(key(version=2), value(3), "g", "t") is None
    assert decode(key(), None, "g", "t") is None


def test_violations() -> None:
    first, more, taken = (
        CommittedOffset(0, 5, 1, "a"),
        CommittedOffset(0, 9, 1, "a"),
        CommittedOffset(0, 9, 2, "b"),
    )
    elsewhere = CommittedOffset(1, 1, 1, "a")
    assert not list(violations([first, elsewhere, more, taken]))
    assert "an older owner" in next(violations([first, taken, elsewhere, more]))
    assert "it goes back" in next(violations([more, first]))


def test_password_is_that_of_the_server() -> None:
    """The password is as java.util.Random(0).nextBytes gives it: the session cancels the secret out."""
    expected = bytes([0x60, 0xB4, 0x20, 0xBB, 0x38, 0x51, 0xD9, 0xD4, 0x7A, 0xCB])
    assert password_of(0xB3415C00)[:10] == expected
