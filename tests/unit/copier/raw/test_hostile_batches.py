"""Batches that no producer wrote: each is CorruptBatch at worst, and costs bounded memory."""

import contextlib
import gzip
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.model import HandlerSettings, PartitionState, RouteSettings
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same, fill, records
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.batches import codecs
from ureplicator_worker.batches.committed import Item, committed_batches
from ureplicator_worker.batches.header import CorruptBatch, Header
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.rebuild import merge, rebuild, split
from ureplicator_worker.batches.records import zigzag
from ureplicator_worker.copier.raw import ingest as raw_ingest
from ureplicator_worker.lifeline.messages import Failed
from ureplicator_worker.wire.fetch_api import Fetched

K0, K1 = ("t", 0), ("t", 1)
BOMB_BYTES = 64 << 20
ENDLESS = b"\xff" * 12

COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    batches.NONE: bytes,
    batches.GZIP: gzip.compress,
    batches.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    batches.LZ4: lambda data: bytes(cramjam.lz4.compress(data)),
    batches.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}


def crafted(payload: bytes, *, codec: int = batches.NONE, **fields: int) -> bytes:
    """A batch of these bytes; one record, unless `fields` tell otherwise."""
    whole = batches.batch(1)[: batches.HEADER_BYTES] + COMPRESS[codec](payload)
    return batches.patched(whole, **{"length": len(whole) - 12, "attributes": codec, **fields})


def record(size: int) -> bytes:
    """One record with so many bytes of value, zeros."""
    body = bytes(3) + zigzag(-1) + zigzag(size) + bytes(size) + zigzag(0)
    return zigzag(len(body)) + body


def bomb(codec: int, size: int = BOMB_BYTES) -> bytes:
    return crafted(record(size), codec=codec)


def all_calls(data: bytes) -> None:
    """Everything that is done with the bytes of a batch."""
    view, header = memoryview(data), Header(data, 0)
    with contextlib.suppress(CorruptBatch):
        rebuild(view, header, position=0)
    with contextlib.suppress(CorruptBatch):
        merge([(view, header)] * 4, position=1)
    with contextlib.suppress(CorruptBatch):
        split(view, SourceOffsets.from_(0))


@pytest.mark.parametrize("codec", batches.CODECS[1:])
def test_what_a_batch_decodes_to_is_bounded(codec: int) -> None:
    data = bomb(codec)
    tracemalloc.start()
    with pytest.raises(CorruptBatch, match="more than"):
        merge([(memoryview(data), Header(data, 0))] * 32, position=0)
    _, peak = tracemalloc.get_traced_memory()
    with pytest.raises(CorruptBatch, match=f"more than {32 << 20} bytes"):
        rebuild(memoryview(data), Header(data, 0), position=0)
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("codec", batches.CODECS[1:])
def test_what_merged_batches_decode_to_is_bounded_together(codec: int) -> None:
    data = bomb(codec, 600)
    stored = [(memoryview(data), Header(data, 0))] * 3
    whole = 3 * len(record(600))
    assert merge(stored, position=0, limit_bytes=whole) is not None
    with pytest.raises(codecs.TooLarge):
        merge(stored, position=0, limit_bytes=whole - 1)


@pytest.mark.parametrize("codec", batches.CODECS[1:])
def test_a_large_batch_below_the_bound_is_rebuilt(codec: int) -> None:
    data = bomb(codec, 20 << 20)
    built = rebuild(memoryview(data), Header(data, 0), position=0)
    assert built is not None
    found = next(iter(batches.decode(built.data)))
    assert found.value == bytes(20 << 20)


@pytest.mark.parametrize("codec", batches.CODECS[1:])
def test_bytes_behind_the_records_count_too(codec: int) -> None:
    data = crafted(record(1) + bytes(BOMB_BYTES), codec=codec)
    with pytest.raises(CorruptBatch):
        rebuild(memoryview(data), Header(data, 0), position=0)


def test_gzip_members_and_snappy_blocks_are_bounded_together() -> None:
    members = gzip.compress(bytes(1 << 20)) * 40
    with pytest.raises(codecs.TooLarge):
        codecs.decompress(batches.GZIP, members, limit_bytes=32 << 20)
    assert len(codecs.decompress(batches.GZIP, members, limit_bytes=40 << 20)) == 40 << 20
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    blocks = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    blocks += (struct.pack(">i", len(block)) + block) * 40
    with pytest.raises(codecs.TooLarge):
        codecs.decompress(batches.SNAPPY, blocks, limit_bytes=32 << 20)
    assert len(codecs.decompress(batches.SNAPPY, blocks, limit_bytes=40 << 20)) == 40 << 20


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        ENDLESS,
        zigzag(20) + b"\x00" + ENDLESS + bytes(20),
        zigzag(20) + b"\x00\x00" + ENDLESS + bytes(20),
        zigzag(-5) + bytes(20),
        zigzag(2**31) + bytes(20),
        zigzag(0) + bytes(20),
        zigzag(1) + bytes(20),
        record(3)[:-1],
        record(3) + b"\x00",
        record(3) * 2,
    ],
)
@pytest.mark.parametrize("codec", batches.CODECS)
def test_records_that_are_none(payload: bytes, codec: int) -> None:
    data = crafted(payload, codec=codec)
    view, header = memoryview(data), Header(data, 0)
    with pytest.raises(CorruptBatch):
        rebuild(view, header, position=0)
    with pytest.raises(CorruptBatch):
        merge([(view, header)], position=0)


@pytest.mark.parametrize("records", [2, 2**31 - 1])
def test_more_records_than_there_are(records: int) -> None:
    data = crafted(record(3), records=records, last_offset_delta=records - 1)
    view, header = memoryview(data), Header(data, 0)
    with pytest.raises(CorruptBatch, match="fewer records"):
        rebuild(view, header, position=0)
    with pytest.raises(CorruptBatch):
        split(view, SourceOffsets.from_(0))


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63)])
def test_times_that_no_header_holds(time_ms: int) -> None:
    body = b"\x00" + zigzag(time_ms) + b"\x00" + zigzag(-1) * 2 + zigzag(0)
    all_calls(crafted(zigzag(len(body)) + body, base_timestamp=time_ms))
    all_calls(crafted((zigzag(len(body)) + body) * 2, base_timestamp=-time_ms - 1, records=2))


@given(st.binary(max_size=120), st.integers(1, 5), st.sampled_from(batches.CODECS))
def test_no_payload_is_more_than_corrupt(payload: bytes, count: int, codec: int) -> None:
    all_calls(crafted(payload, codec=codec, records=count, last_offset_delta=count - 1))


@given(st.binary(max_size=80), st.sampled_from([0, 1]), st.sampled_from(batches.CODECS))
def test_no_old_message_is_more_than_corrupt(payload: bytes, magic: int, codec: int) -> None:
    length = struct.pack(">qi", 5, 6 + len(payload))
    all_calls(length + bytes(4) + bytes([magic, codec]) + payload)


WHOLE = [
    batches.batch(batches.rows(3, size=20), codec=codec, attributes=attributes)
    for codec in batches.CODECS
    for attributes in (0, batches.LOG_APPEND_TIME, batches.TRANSACTIONAL)
] + [
    batches.marker(base_offset=0, producer_id=1, commit=False),
    batches.batch(2, deltas=[0, 5]),
    batches.old_batch([(5, b"k", b"v"), (6, None, b"")], magic=1, codec=batches.GZIP),
    batches.old_batch([(5, b"k", b"v")], magic=0),
]


@pytest.mark.parametrize("fixed", [True, False], ids=["checksum fits", "as it is"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_batches_harm_their_partition_only(fixed: bool, data: st.DataObject) -> None:
    topics = {"t": 2}
    line = Line(MemoryKafka("A", topics), MemoryKafka("B", topics), buffer_bytes=4 << 20)
    try:
        log = line.source.logs[K0]
        for whole in data.draw(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=8)):
            log.end = len(log.taken)
            log.taken.append(mutated(whole, data, fixed=fixed))
        log.end = 1_000
        fill(line, K1, 3)
        partitions = line.add(0, 1)
        line.run(lambda: line.copied(partitions[1]))
        line.turns(60, skip_s=0.2)
        fill(line, K1, 3)
        line.run(lambda: line.copied(partitions[1]))
        assert_same(line, K1)
        assert all(isinstance(sent, Failed) for sent in line.sent)
        assert partitions[1] not in [sent.partition for sent in line.sent]  # type: ignore[union-attr]
    finally:
        line.close()


def mutated(whole: bytes, data: st.DataObject, *, fixed: bool) -> bytes:
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    return batches.patched(bytes(changed)) if fixed and whole[16] == 2 else bytes(changed)


def with_length(whole: bytes, length: int) -> bytes:
    """The batch with another length, and no new checksum: the length lies before what that covers."""
    return whole[:8] + struct.pack(">i", length) + whole[12:]


GOOD = batches.batch(3)
BAD = {
    "wrong checksum": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
    "cut short": with_length(GOOD, len(GOOD) - 12 - 5)[:-5],
    "shorter than its length": with_length(GOOD, len(GOOD) - 12 - 7),
    "no length": with_length(GOOD, 0),
    "negative length": with_length(GOOD, -1),
    "unknown format": GOOD[:16] + b"\x07" + GOOD[17:],
}


@pytest.mark.parametrize("handled", [False, True], ids=["raw", "handled"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_batch_stops_its_partition_and_no_other(
    make: MakeLine, bad: bytes, handled: bool
) -> None:
    handler = HandlerSettings("t", "ureplicator_worker.handlers:identity", "{}")
    line = make(2, settings=RouteSettings(handlers=(handler,) if handled else ()))
    log = line.source.logs[K0]
    log.put(GOOD)
    log.taken.append(batches.patched(GOOD, base_offset=3)[:8] + bad[8:])
    log.end = 6
    fill(line, K1, 3)
    (sound,) = line.add(1)
    line.run(lambda: line.copied(sound))
    (broken,) = line.add(0)
    line.run(lambda: bool(line.sent))
    (failed,) = line.sent
    assert isinstance(failed, Failed)
    assert failed.partition == broken
    assert failed.reason.startswith("corrupt at offset 3: ")
    assert line.ownership.stored[broken] == 3
    fill(line, K1, 3)
    line.run(lambda: line.copied(sound))
    assert_same(line, K1)


@pytest.mark.parametrize("codec", batches.CODECS[1:])
def test_a_bomb_that_may_pass_passes_whole(make: MakeLine, codec: int) -> None:
    """Many small ones too: none is decoded beyond the bound of a merge."""
    line = make(1)
    log = line.source.logs[K0]
    for _ in range(6):
        log.put(batches.batch(1, codec=codec), bomb(codec, 4 << 20))
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert [bytes(r.value or b"") for r in records(line.target, K0)] == [
        bytes(r.value or b"") for r in records(line.source, K0)
    ]
    assert line.report(partition).state is PartitionState.ONLINE


@pytest.mark.parametrize("codec", batches.CODECS[1:])
def test_a_bomb_that_must_be_decoded_stops_its_partition_with_offset_and_size(
    make: MakeLine, codec: int
) -> None:
    line = make(2)
    log = line.source.logs[K0]
    log.put(*[batches.batch(1, codec=codec)] * 7)
    log.put(batches.patched(bomb(codec), attributes=codec | batches.LOG_APPEND_TIME))
    partitions = line.add(0, 1)
    line.run(lambda: bool(line.sent))
    (failed,) = line.sent
    assert isinstance(failed, Failed)
    assert failed.partition == partitions[0]
    assert f"offset 7: records decode to more than {32 << 20} bytes" in failed.reason
    assert line.ownership.stored[partitions[0]] == 7
    assert line.report(partitions[1]).state is PartitionState.ONLINE


def test_an_error_nobody_thought_of_stops_its_partition_only(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_more: object) -> None:
        raise OverflowError("int too big")

    monkeypatch.setattr(raw_ingest, "merge", fails)
    line = make(2)
    line.source.logs[K0].put(batches.batch(1), batches.batch(2, deltas=[0, 4]))
    fill(line, K1, 2)
    partitions = line.add(0, 1)
    line.run(lambda: bool(line.sent) and line.copied(partitions[1]))
    (failed,) = line.sent
    assert isinstance(failed, Failed)
    assert "offset 0: OverflowError: int too big" in failed.reason


@pytest.mark.parametrize("base_offset", [-1, 10**6, 2**63 - 1, -(2**63)])
def test_an_offset_that_the_log_does_not_have(make: MakeLine, base_offset: int) -> None:
    """The checksum does not cover it; copying would jump to it, or stand still."""
    line = make(1)
    fill(line, K0, 2)
    log = line.source.logs[K0]
    log.taken[1] = batches.patched(log.taken[1], base_offset=base_offset)
    log.fetch = lambda *_, **__: list(log.taken)  # type: ignore[method-assign]
    (partition,) = line.add(0)
    line.run(lambda: bool(line.sent))
    assert isinstance(line.sent[0], Failed)
    assert "corrupt at offset 4" in line.sent[0].reason
    assert line.ownership.stored[partition] == 4


@pytest.mark.parametrize(("records", "base_offset"), [(1, 4), (3, 4), (2, 5)])
def test_a_batch_beyond_the_end_has_the_position_and_no_holes(
    records: int, base_offset: int
) -> None:
    """Appended while the broker performed the fetch: nothing was compacted there yet."""
    sound = batches.patched(batches.batch(2), base_offset=4)
    assert [header.last_offset for _, header, _ in beyond(sound)] == [5]
    data = batches.patched(sound, records=records, base_offset=base_offset)
    with pytest.raises(CorruptBatch, match="in a log up to 4"):
        beyond(data)


def beyond(data: bytes) -> list[Item]:
    """Items of a batch that was read at position 4, the end of the log."""
    fetched = Fetched((b"t", 0), error=0, high_watermark=4, last_stable=4)
    fetched.start, fetched.end = 0, len(data)
    return list(committed_batches(memoryview(data), fetched, position=4, check_crc=False))
