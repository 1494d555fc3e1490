"""Varints: what is written is read, and what the protocol's own encoder writes."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32  # type: ignore[import-untyped]

from ureplicator_worker.wire import varint


@given(st.integers(0, 2**31 - 1), st.binary(max_size=3))
def test_round_trip_at_any_place(value: int, before: bytes) -> None:
    encoded = varint.encode(value)
    buffer = before + encoded + b"\xff"
    assert varint.read(buffer, len(before)) == (value, len(before) + len(encoded))


@given(st.integers(0, 2**31 - 1))
def test_same_as_the_library(value: int) -> None:
    assert varint.encode(value) == UnsignedVarInt32.encode(value)


@given(st.text(max_size=200))
def test_text_tells_the_length_in_bytes(value: str) -> None:
    raw = varint.text(value)
    size, at = varint.read(raw, 0)
    assert raw[at:].decode() == value
    assert size - 1 == len(value.encode())


@given(st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=300)), max_size=5))
def test_tags_are_skipped(tags: list[tuple[int, bytes]]) -> None:
    section = varint.encode(len(tags)) + b"".join(
        varint.encode(tag) + varint.encode(len(raw)) + raw for tag, raw in tags
    )
    assert varint.skip_tags(b"\x00" + section + b"rest", 1) == 1 + len(section)
