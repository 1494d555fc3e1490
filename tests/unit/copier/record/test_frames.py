"""Frames between a copier and the process of a handler: any pieces, and bytes that are none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_worker.copier.record.frames import FrameReader, MalformedFrame, encode

HEADS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


@given(st.lists(st.tuples(HEADS, st.lists(st.binary(max_size=50))), max_size=5), st.data())
def test_frames_arrive_whole_in_any_pieces(
    frames: list[tuple[dict[str, object], list[bytes]]], data: st.DataObject
) -> None:
    raw = b"".join(bytes(piece) for head, some in frames for piece in encode(head, some))
    reader, found = FrameReader(), []
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        found += [(head, bytes(payload)) for head, payload in reader.feed(raw[:size])]
        raw = raw[size:]
    assert found == [(head, b"".join(some)) for head, some in frames]


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_are_more_than_malformed(pieces: list[bytes]) -> None:
    reader = FrameReader()
    try:
        for piece in pieces:
            for head, _ in reader.feed(piece):
                assert isinstance(head, dict)
    except MalformedFrame:
        pass


def test_a_payload_has_memory_of_its_own() -> None:
    """A result is kept without another copy of it."""
    data = b"".join(map(bytes, encode({}, [b"ab", b"c"])))
    first, second = FrameReader().feed(data + data)
    assert bytes(first[1]) == b"abc"
    assert isinstance(first[1].obj, bytearray)
    assert first[1].obj is not second[1].obj
    assert len(first[1].obj) == 3
