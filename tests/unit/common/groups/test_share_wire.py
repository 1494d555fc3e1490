"""Requests about share groups and their responses, as brokers of Kafka 4.3 sent them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import CommittedOffset
from ureplicator_common.kafka.groups.share_wire import (
    Altered,
    AlteredDecoder,
    ShareOffsetsDecoder,
    alter_share_offsets,
    describe_share_offsets,
)
from ureplicator_common.kafka.groups.wire import Decoder, FetchedGroup

ID = bytes(range(16))
HEAD = b"\0\0\0\4" + b"\0" + b"\0\0\0\0"
"""Correlation id, tags, throttle."""
NO_ERROR = b"\0\0\0"
"""Code and text."""


def row(number: int, start: int, code: int = 0) -> bytes:
    return (
        number.to_bytes(4)
        + start.to_bytes(8, signed=True)
        + b"\0\0\0\0"
        + code.to_bytes(2)
        + b"\0\0"
    )


def described(*rows: bytes, error: bytes = NO_ERROR) -> bytes:
    topics = b"\2\2t" + ID + bytes([len(rows) + 1]) + b"".join(rows) + b"\0"
    return HEAD + b"\2\3sg" + topics + error + b"\0" + b"\0"


ALTERED = HEAD + NO_ERROR + b"\2\2t" + ID + b"\3" + b"\0\0\0\0\0\0\0\0" + b"\0\0\0\1\0\3\2x\0\0\0"
NOT_EMPTY = HEAD + b"\0\x44\x18The group is not empty." + b"\1\0"


def decoded(decoder: Decoder, raw: bytes) -> object:
    return decoder.decode(raw, version=0, header=True)


def test_start_offsets_and_one_that_is_not_initialised() -> None:
    raw = described(row(0, 10), row(1, -1), row(2, 20))
    offsets = {("t", 0): CommittedOffset(10), ("t", 2): CommittedOffset(20)}
    assert decoded(ShareOffsetsDecoder(), raw) == [FetchedGroup("sg", 0, offsets)]


@pytest.mark.parametrize(
    ("raw", "code"),
    [(described(row(0, 10, 3)), 3), (described(error=b"\0\x10\2x"), 16)],
)
def test_an_error_of_a_partition_or_of_the_group(raw: bytes, code: int) -> None:
    (found,) = ShareOffsetsDecoder().parse(raw, 0)
    assert found.error == code


def test_refused_partitions_and_groups() -> None:
    assert decoded(AlteredDecoder(), ALTERED) == Altered(0, {("t", 1): 3})
    assert decoded(AlteredDecoder(), NOT_EMPTY) == Altered(68, {})


def test_requests() -> None:
    offsets = {("t", 0): CommittedOffset(10, "metadata are not kept"), ("u", 1): CommittedOffset(2)}
    for request, body in (
        (describe_share_offsets(["a", "bc"]), b"\3\2a\0\0\3bc\0\0\0"),
        (
            alter_share_offsets("sg", offsets),
            b"\3sg\3"
            + (b"\2t\2" + bytes(4) + (10).to_bytes(8) + b"\0\0")
            + (b"\2u\2" + (1).to_bytes(4) + (2).to_bytes(8) + b"\0\0")
            + b"\0",
        ),
    ):
        request.with_header(correlation_id=7, client_id="x")
        assert request.encode(framed=True, header=True).endswith(b"\0\1x\0" + body)


@given(
    st.sampled_from([(ShareOffsetsDecoder, described(row(0, 1))), (AlteredDecoder, ALTERED)]),
    st.data(),
)
def test_what_is_cut_off_or_changed_is_understood_or_refused(
    case: tuple[type[Decoder], bytes], data: st.DataObject
) -> None:
    decoder, raw = case
    changed = bytearray(raw[: data.draw(st.integers(9, len(raw)))])
    at = data.draw(st.integers(9, max(9, len(changed) - 1)))
    if at < len(changed):
        changed[at] = data.draw(st.integers(0, 255))
    with suppress(ClusterUnavailable):
        assert isinstance(decoded(decoder(), bytes(changed)), list | Altered)
