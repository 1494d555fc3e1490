"""Rows and batches of the topic: read back as written, other formats refused by name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka.map_log.batches import encode_batch
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import (
    MapKey,
    Row,
    UnknownMapFormat,
    decode_chunk,
    decode_key,
    encode_chunk,
    encode_key,
)
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_common.offset_map.topic import is_map_topic, map_topic
from ureplicator_testkit.records import batches

ROUTE = Route("east", "west")
OFFSETS = st.integers(0, 2**62)
SEGMENTS = st.builds(MapSegment, OFFSETS, OFFSETS, OFFSETS, st.booleans(), st.booleans())
CHUNKS = st.builds(
    Chunk,
    st.text(max_size=22),
    st.text(max_size=22),
    st.lists(SEGMENTS, min_size=1, max_size=40).map(tuple),
    open=st.booleans(),
    level=st.integers(0, 60),
    begin=st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62)),
    after=st.integers(-1, 2**62),
)


@given(CHUNKS)
def test_a_chunk_is_read_back(chunk: Chunk) -> None:
    assert decode_chunk(encode_chunk(chunk)) == chunk


@given(st.text(max_size=20), st.integers(0, 10**6), OFFSETS)
def test_a_key_is_read_back(topic: str, number: int, target: int) -> None:
    key = MapKey(Partition(ROUTE, topic, number), target)
    assert decode_key(encode_key(key)) == key


def test_the_rows_are_short_json() -> None:
    chunk = Chunk("s", "t", (MapSegment(100, 150, 7), MapSegment(152, 160, 58)), open=True)
    key = MapKey(Partition(ROUTE, "orders", 3), 7)
    assert encode_key(key) == b'[1,"east","west","orders",3,7]'
    assert encode_chunk(chunk) == b'[1,"s","t",0,1,-1,-1,[100,50,7,0,2,8,1,0]]'


def test_rows_of_segments_that_follow_each_other_have_all_of_them_packed() -> None:
    many = [MapSegment(3 * n, 3 * n + 2, 2 * n, follows=bool(n)) for n in range(100)]
    text = encode_chunk(Chunk("s", "t", tuple(many), after=5))
    *plain, after, low, high, size, packed = json.loads(text)
    assert (after, low, high, size, len(packed)) == (5, 0, 299, 100, 400)
    assert decode_chunk(json.dumps(plain).encode()).segments == tuple(
        segment._replace(follows=False) for segment in many[::4]
    )


@pytest.mark.parametrize("text", [b"", b"x", b"{}", b"3", b"[]", b"[2,3,4,5,6,7,8,9]", b"[1,2]"])
def test_other_formats_are_refused_by_name(text: bytes) -> None:
    for decode in (decode_key, decode_chunk):
        with pytest.raises(UnknownMapFormat, match=r"offset map: a (key|value)"):
            decode(text)


def test_a_later_format_is_named() -> None:
    with pytest.raises(UnknownMapFormat, match="of format 2; this version reads format 1"):
        decode_chunk(b"[2,1,1,1,1,1,1,1]")


def test_fields_of_a_later_version_are_ignored() -> None:
    assert decode_key(b'[1,"a","b","t",0,5,"more"]').target == 5


def test_a_batch_is_one_of_kafka() -> None:
    rows = [Row(b"key-%d" % n, None if n % 3 == 1 else b"v" * 70 * n) for n in range(100)]
    data = encode_batch(rows, producer_id=7, producer_epoch=2, sequence=11, time_ms=1_000)
    assert batches.checksum_fits(data)
    assert [(record.key, record.value) for record in batches.decode(data)] == rows


def test_the_topic_is_named_after_fleet_and_route() -> None:
    assert map_topic(fleet="main", route=ROUTE) == "ureplicator-main-east.west-offset-map"
    assert is_map_topic(map_topic(fleet="main", route=ROUTE))
    assert not is_map_topic("orders-offset-map")
