"""Messages of the lifeline: encoding, decoding, and refusal of anything else."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import (
    Delivery,
    Gap,
    GapPolicy,
    HandlerSettings,
    Limited,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    SqlSettings,
    WorkerId,
)
from ureplicator_worker.lifeline.client import MAX_LINE_BYTES
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import (
    Add,
    Challenge,
    ChallengeResponse,
    CopierId,
    CopierReport,
    Failed,
    GapPassed,
    Grant,
    HandlerReport,
    Hello,
    LimitUse,
    Message,
    PartitionReport,
    ProofRequest,
    ProofResponse,
    PublishedSettings,
    PublishedShares,
    Released,
    Remove,
    Stop,
    StopRequest,
)

NAMES = st.text("abc.-_", min_size=1, max_size=10)
ALIASES = st.text("abc-_", min_size=1, max_size=10)
ROUTES = st.builds(Route, ALIASES, ALIASES)
PARTITIONS = st.builds(Partition, ROUTES, NAMES, st.integers(0, 10_000))
EPOCHS = st.integers(0, 2**62).map(OwnerEpoch)
TEXT = st.text(max_size=30)
COUNTS = st.integers(-1, 2**62)
SETTINGS = st.builds(
    RouteSettings,
    delivery=st.sampled_from(Delivery),
    start=st.sampled_from(["earliest", "latest", "1234"]),
    on_gap=st.sampled_from(GapPolicy),
    abort_on_send_failure=st.booleans(),
    publish_to_source=st.booleans(),
    verify_crc=st.booleans(),
    prefix=TEXT,
    rename=st.dictionaries(NAMES, NAMES, max_size=3),
    handlers=st.lists(
        st.builds(HandlerSettings, NAMES, NAMES, TEXT, NAMES, st.floats(0.1, 60), COUNTS),
        max_size=2,
    ).map(tuple),
    sql=st.lists(
        st.builds(SqlSettings, NAMES, TEXT, st.tuples(NAMES), COUNTS, COUNTS), max_size=2
    ).map(tuple),
    same_offsets=TEXT,
)
GRANTS = st.builds(
    Grant,
    owner_epoch=EPOCHS,
    target_topic=NAMES,
    fence=st.lists(NAMES, max_size=3).map(tuple),
    initial=st.booleans(),
    had_position=st.booleans(),
    settings=SETTINGS,
    settings_version=COUNTS,
)
REPORTS = st.builds(
    PartitionReport,
    state=st.sampled_from(PartitionState),
    reason=TEXT,
    position=COUNTS,
    committed=COUNTS,
    records=COUNTS,
    bytes=COUNTS,
    lag=COUNTS,
    skipped=COUNTS,
    gaps=COUNTS,
    gap_offsets=COUNTS,
    shift=st.integers(),
    shift_since=COUNTS,
    shift_reason=TEXT,
)
OWNED = st.dictionaries(PARTITIONS, EPOCHS, max_size=4)
SEGMENTS = st.builds(Segment, COUNTS, COUNTS, COUNTS, st.booleans())
SOME = st.lists(PARTITIONS, max_size=4).map(tuple)
LIMITED = st.one_of(
    st.builds(Limited.route, ROUTES),
    st.builds(lambda part: Limited.topic(part.key), PARTITIONS),
    st.builds(Limited.worker, st.just(WorkerId("w:1"))),
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        Hello,
        st.builds(CopierId, st.integers(0, 99), st.integers(1, 2**40)),
        TEXT,
        st.integers(1, 2**22),
        TEXT,
        TEXT,
    ),
    st.builds(Challenge, TEXT, TEXT),
    st.builds(ChallengeResponse, TEXT),
    st.builds(Add, OWNED),
    st.builds(Remove, SOME),
    st.just(Stop()),
    st.builds(StopRequest, TEXT),
    st.builds(PublishedSettings, ROUTES, COUNTS, SETTINGS),
    st.builds(
        PublishedShares,
        COUNTS,
        st.dictionaries(st.integers(0, 99), st.dictionaries(LIMITED, COUNTS, max_size=3)),
    ),
    st.builds(ProofRequest, st.integers(0, 2**31), OWNED),
    st.builds(
        ProofResponse,
        st.integers(0, 2**31),
        st.dictionaries(PARTITIONS, GRANTS, max_size=3),
        st.dictionaries(PARTITIONS, TEXT, max_size=3),
    ),
    st.builds(
        CopierReport,
        st.dictionaries(PARTITIONS, REPORTS, max_size=3),
        st.lists(st.integers(0, 2**40), max_size=16).map(tuple),
        st.integers(0, 2**40),
        st.dictionaries(PARTITIONS, st.lists(SEGMENTS, max_size=3).map(tuple), max_size=3),
        st.dictionaries(LIMITED, st.builds(LimitUse, COUNTS, COUNTS), max_size=3),
        st.dictionaries(TEXT, st.builds(HandlerReport, COUNTS, COUNTS, busy_ms=COUNTS), max_size=2),
    ),
    st.builds(Released, SOME),
    st.builds(Failed, PARTITIONS, TEXT, st.booleans()),
    st.builds(GapPassed, PARTITIONS, st.builds(Gap, TEXT, COUNTS, COUNTS, COUNTS)),
)


@given(MESSAGES)
def test_round_trip_in_one_line(message: Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message
    assert decode(line[:-1]) == message


@given(MESSAGES, st.data())
def test_a_cut_line_is_refused(message: Message, data: st.DataObject) -> None:
    line = encode(message)
    with pytest.raises(ValueError, match=r"."):
        decode(line[: data.draw(st.integers(0, len(line) - 3))])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'"Stop"',
        b'{"type":"Nonsense"}',
        b'{"type":"Add"}',
        b'{"type":"Add","partitions":["a.b/t/0"]}',
        b'{"type":"Add","partitions":{"nowhere":1}}',
        b'{"type":"Hello","copier":"0#1"}',
        b'{"type":"Hello","copier":{"slot":0},"host":"h","pid":1,"pidSpace":"","nonce":"n"}',
        b'{"type":"Hello","copier":{"slot":0,"run":true},"host":"h","pid":1,"pidSpace":"","nonce":""}',
        b'{"type":"Hello","copier":{"slot":[],"run":1},"host":"h","pid":1,"pidSpace":"","nonce":""}',
        b'{"type":"Hello","copier":{"slot":0,"run":1},"host":5,"pid":1,"pidSpace":"","nonce":"n"}',
        b'{"type":"Hello","copier":{"slot":0,"run":1},"host":"h","pid":"1","pidSpace":"","nonce":""}',
        b'{"type":"Challenge","nonce":"n"}',
        b'{"type":"ChallengeResponse","proof":null}',
        b"[" * 100_000,
        b'{"type":["Stop"]}',
        b'{"type":"ProofResponse","requestId":1,"granted":{"a.b/t/0":{}},"refused":{}}',
        b'{"type":"PublishedSettings","route":"a","version":1,"settings":{}}',
        b'{"type":"Released","partitions":"a.b/t/0"}',
        b'{"type":"Released","partitions":[0]}',
        b'{"type":"Failed","partition":"a.b/t/0","reason":5,"temporary":true,"local":false}',
        b'{"type":"Failed","partition":"a.b/t/0","reason":"x","temporary":1,"local":false}',
        b'{"type":"StopRequest"}',
        b"GET / HTTP/1.1\r\n",
        b"\xff\xfe\x00",
    ],
)
def test_nothing_else_is_taken_for_a_message(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)


@given(st.binary(max_size=60))
def test_garbage_is_a_value_error(line: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode(line)


def test_a_message_names_its_type_and_its_fields_in_camel_case() -> None:
    assert json.loads(encode(Stop())) == {"type": "Stop"}
    partition = Partition(Route("a", "b"), "t", 0)
    shares = PublishedShares(4, {2: {Limited.topic(partition.key): 5}})
    assert json.loads(encode(shares)) == {
        "type": "PublishedShares",
        "version": 4,
        "slots": {"2": {"topic:a.b/t": 5}},
    }
    grant = Grant(OwnerEpoch(7), "u", settings_version=3)
    response = json.loads(encode(ProofResponse(1, {partition: grant}, {})))
    assert response.keys() == {"type", "requestId", "settings", "granted", "refused"}
    assert response["granted"]["a.b/t/0"] == {
        "ownerEpoch": 7,
        "targetTopic": "u",
        "fence": [],
        "initial": True,
        "hadPosition": False,
        "sourceTopicId": "",
        "restarted": False,
        "settings": 0,
        "settingsVersion": 3,
    }


def test_unknown_fields_are_ignored() -> None:
    assert decode(b'{"type":"StopRequest","reason":"x","since":3}') == StopRequest("x")


def test_a_response_is_for_the_route_of_its_partitions() -> None:
    """The requests of all routes share the lifeline, and each route numbers its own."""
    partition = Partition(Route("a", "b"), "t", 0)
    assert ProofResponse(1, {partition: Grant(OwnerEpoch(1), "t")}, {}).route == partition.route
    assert ProofResponse(1, {}, {partition: "taken away"}).route == partition.route


def test_settings_of_a_route_are_sent_once_with_all_its_grants() -> None:
    """A thousand renames times a thousand partitions would be more than a line may hold."""
    settings = RouteSettings(rename={f"topic-{n}": f"target-{n}" for n in range(1_000)})
    grants = {
        Partition(Route("a", "b"), f"topic-{n}", 0): Grant(OwnerEpoch(1), "t", settings=settings)
        for n in range(1_300)
    }
    response = ProofResponse(1, grants, {})
    line = encode(response)
    assert len(line) < MAX_LINE_BYTES / 50
    assert decode(line) == response
