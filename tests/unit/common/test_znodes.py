"""Contents of nodes: what is written is read, and the same value is the same bytes."""

import contextlib
import dataclasses
import json
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

import hypothesis
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from ureplicator_common import znodes
from ureplicator_common.model import (
    MAX_SLOTS,
    Delivery,
    EventKind,
    GapPolicy,
    HandlerSettings,
    Limited,
    OffsetShift,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    SessionId,
    SqlSettings,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    LiveController,
    LiveWorker,
    PartitionLoad,
    PastEvent,
    PositionChange,
    Switches,
    TopicIntent,
)
from ureplicator_common.znodes import codec
from ureplicator_common.znodes.codec import COMPRESS_ABOVE_BYTES, UnreadableContent
from ureplicator_common.znodes.fleet import (
    decode_controller,
    decode_history,
    decode_switches,
    encode_controller,
    encode_history,
    encode_switches,
)
from ureplicator_common.znodes.routes import decode_route, encode_route
from ureplicator_common.znodes.topics import (
    decode_ideal,
    decode_intent,
    encode_ideal,
    encode_intent,
)
from ureplicator_common.znodes.workers import (
    decode_assignment,
    decode_current,
    decode_known_worker,
    decode_live_worker,
    decode_loads,
    decode_registration,
    decode_shares,
    encode_assignment,
    encode_current,
    encode_known_worker,
    encode_live_worker,
    encode_loads,
    encode_registration,
    encode_shares,
)
from ureplicator_testkit.json_values import json_values

texts = st.text(max_size=20)
counts = st.integers(min_value=0, max_value=2**31)
numbers = st.integers(min_value=0, max_value=10_000)
clusters = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)
routes = st.builds(Route, clusters, clusters)
partitions = st.builds(Partition, routes, topics, numbers)
workers = st.builds(WorkerId, st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True))
owner_epochs = st.builds(OwnerEpoch, counts)
sessions = st.builds(SessionId, st.integers(min_value=-(2**63), max_value=2**63 - 1))

intents = st.builds(
    TopicIntent,
    partitions=numbers,
    initial_partitions=numbers,
    state=st.sampled_from(TopicState),
    blacklisted=st.frozensets(numbers, max_size=5),
    had_position=st.frozensets(numbers, max_size=5),
    target_topic=topics,
    forget_positions=st.booleans(),
    positions=st.dictionaries(
        numbers,
        st.builds(
            PositionChange,
            offset=counts | st.just(-1),
            request=texts,
            outcome=texts,
            replaced=counts | st.just(-1),
        ),
        max_size=3,
    ),
    request_id=texts,
)
ideals = st.builds(
    IdealTopic,
    entries=st.dictionaries(
        numbers,
        st.builds(
            IdealEntry,
            worker=st.none() | workers,
            owner_epoch=owner_epochs,
            since_ms=counts,
            reason=texts,
            holders=st.dictionaries(workers, sessions, max_size=3),
            no_progress_moves=st.integers(0, 3),
            suspect_session=sessions,
        ),
        max_size=5,
    ),
)
assignments = st.builds(
    Assignment,
    entries=st.dictionaries(
        partitions,
        st.builds(AssignmentEntry, owner_epochs, st.lists(texts, max_size=3).map(tuple)),
        max_size=5,
    ),
)
currents = st.builds(
    CurrentState,
    seen_zxid=st.integers(min_value=-1, max_value=2**63 - 1),
    entries=st.dictionaries(
        partitions,
        st.builds(
            CurrentEntry, st.sampled_from(PartitionState), owner_epochs, texts, st.booleans()
        ),
        max_size=5,
    ),
)
whole = st.integers(0, 2**40).map(float)
loads = st.builds(
    PartitionLoad,
    bytes_per_s=whole,
    records_per_s=whole,
    steady_bytes_per_s=whole,
    measured_s=whole,
    held_s=whole,
    no_progress_s=whole,
    position=st.integers(-1, 2**60),
    committed=st.integers(-1, 2**60),
    lag=st.integers(-1, 2**60),
    offsets=st.none() | st.builds(OffsetShift, st.integers(), st.integers(0, 2**60), texts),
)
slots = st.integers(0, MAX_SLOTS)
words = st.lists(texts, max_size=3).map(tuple)
live_workers = st.builds(LiveWorker, slots, texts, counts, counts, texts, tags=words, zone=texts)
known_workers = st.builds(
    KnownWorker,
    slots,
    st.booleans(),
    st.booleans(),
    counts,
    sessions,
    st.booleans(),
    texts,
    slots,
    words,
)
rates = st.dictionaries(
    st.one_of(
        st.builds(Limited.route, routes),
        st.builds(Limited.topic, st.builds(TopicKey, routes, clusters)),
    ),
    st.integers(1, 10**12),
    max_size=3,
)
switches = st.builds(
    Switches,
    st.booleans(),
    st.booleans(),
    st.frozensets(routes, max_size=3),
    rates,
    texts,
    texts,
    st.frozensets(workers, max_size=3),
    texts,
)
histories = st.lists(
    st.builds(
        PastEvent,
        number=counts,
        kind=st.sampled_from(EventKind),
        reason=texts,
        wall_ms=counts,
        request=texts,
        worker=st.none() | workers,
        partition=st.none() | partitions,
        source=st.none() | workers,
        target=st.none() | workers,
        owner_epoch=owner_epochs,
        took_ms=st.none() | counts,
    ),
    max_size=3,
).map(tuple)
controllers = st.builds(LiveController, texts, texts, counts, counts, counts, texts)
settings = st.builds(
    RouteSettings,
    delivery=st.sampled_from(Delivery),
    start=texts,
    on_gap=st.sampled_from(GapPolicy),
    abort_on_send_failure=st.booleans(),
    publish_to_source=st.booleans(),
    verify_crc=st.booleans(),
    prefix=texts,
    rename=st.dictionaries(topics, topics, max_size=3),
    handlers=st.lists(
        st.builds(HandlerSettings, texts, texts, texts, texts, st.floats(0.1, 60), counts),
        max_size=2,
    ).map(tuple),
    sql=st.lists(
        st.builds(SqlSettings, texts, texts, st.tuples(texts), counts, counts), max_size=2
    ).map(tuple),
    same_offsets=texts,
)


@given(intents)
def test_intents_round_trip(intent: TopicIntent) -> None:
    assert decode_intent(encode_intent(intent)) == intent


@given(ideals)
def test_ideal_topics_round_trip(ideal: IdealTopic) -> None:
    assert decode_ideal(encode_ideal(ideal)) == ideal


@given(assignments)
def test_assignments_round_trip(assignment: Assignment) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


@given(currents)
def test_current_states_round_trip(current: CurrentState) -> None:
    assert decode_current(encode_current(current)) == current


@given(st.dictionaries(partitions, loads, max_size=5))
def test_loads_round_trip(value: dict[Partition, PartitionLoad]) -> None:
    assert decode_loads(encode_loads(value)) == value


@given(live_workers)
def test_live_workers_round_trip(worker: LiveWorker) -> None:
    assert decode_live_worker(encode_live_worker(worker)) == worker


@given(known_workers)
def test_known_workers_round_trip(worker: KnownWorker) -> None:
    assert decode_known_worker(encode_known_worker(worker)) == worker


@given(sessions)
def test_registrations_round_trip(session: SessionId) -> None:
    assert decode_registration(encode_registration(session)) == session


@given(switches)
def test_switches_round_trip(value: Switches) -> None:
    assert decode_switches(encode_switches(value)) == value


@given(st.dictionaries(st.integers(0, 99), rates, max_size=4))
def test_shares_round_trip(value: dict[int, dict[Limited, int]]) -> None:
    assert decode_shares(encode_shares(value)) == value


@pytest.mark.parametrize(
    "text",
    ["route", "route:", "route:a", "road:a.b", "topic:orders", "topic:a.b", "topic:a.b/c/d", ""],
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    data = f'{{"0":{{"{text}":5}}}}'.encode()
    with pytest.raises(UnreadableContent):
        decode_shares(data)


def test_an_empty_settings_node_is_what_the_fleet_starts_with() -> None:
    assert decode_switches(b"") == Switches()


@given(histories)
def test_histories_round_trip(events: tuple[PastEvent, ...]) -> None:
    assert decode_history(encode_history(events)) == events
    assert decode_history(b"") == ()


@given(controllers)
def test_controllers_round_trip(controller: LiveController) -> None:
    assert decode_controller(encode_controller(controller)) == controller


@given(settings)
def test_route_settings_round_trip(route: RouteSettings) -> None:
    assert decode_route(encode_route(route)) == route


@given(assignments)
def test_the_order_of_entries_changes_no_byte(assignment: Assignment) -> None:
    turned = Assignment(dict(reversed(list(assignment.entries.items()))))
    assert encode_assignment(turned) == encode_assignment(assignment)


@given(intents)
def test_the_order_of_sets_changes_no_byte(intent: TopicIntent) -> None:
    grown: frozenset[int] = frozenset(sorted(intent.had_position, reverse=True))
    again = dataclasses.replace(intent, had_position=grown)
    assert encode_intent(again) == encode_intent(intent)


@given(settings)
def test_the_order_of_renames_changes_no_byte(route: RouteSettings) -> None:
    turned = dataclasses.replace(route, rename=dict(reversed(list(route.rename.items()))))
    assert encode_route(turned) == encode_route(route)


@given(st.dictionaries(texts, st.integers() | texts | st.none(), max_size=5))
def test_json_round_trips(value: dict[str, object]) -> None:
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("size", [0, 8 * 1024 - 4, 8 * 1024 - 2, 8 * 1024, 100_000])
def test_large_contents_are_compressed_and_small_ones_readable(size: int) -> None:
    value = ["x" * size]
    data = codec.encode(value)
    assert codec.decode(data) == value
    readable = data.startswith(b"[")
    assert readable == (size + 4 <= COMPRESS_ABOVE_BYTES)
    assert len(data) <= COMPRESS_ABOVE_BYTES


def test_a_content_above_the_limit_is_refused() -> None:
    incompressible = [f"{number * 2654435761 % 2**64:x}" for number in range(150_000)]
    with pytest.raises(ValueError, match="above 655360"):
        codec.encode(incompressible)


def test_an_empty_node_holds_nothing() -> None:
    assert codec.decode(b"") == {}
    assert decode_assignment(b"") == Assignment()
    assert decode_ideal(b"") == IdealTopic({})


SUBJECTS = [
    import_module(f"{znodes.__name__}.{found.name}") for found in iter_modules(znodes.__path__)
]
DECODERS: dict[str, Callable[[bytes], object]] = {
    name: value
    for subject in SUBJECTS
    for name, value in vars(subject).items()
    if name.startswith("decode")
}
some_json = json_values(texts | partitions.map(str), max_leaves=10)


@given(st.binary(max_size=60) | some_json.map(lambda value: json.dumps(value).encode()))
@hypothesis.settings(max_examples=150)
def test_no_bytes_are_more_than_unreadable(content: bytes) -> None:
    for name, decode in DECODERS.items():
        note(name)
        with contextlib.suppress(UnreadableContent):
            decode(content)


@pytest.mark.parametrize("garbage", [b"x", b"x\x9c broken", b"{", b"\xff\xfe", b"\x00"])
def test_garbage_is_unreadable(garbage: bytes) -> None:
    for decode in (codec.decode, decode_intent, decode_switches):
        with pytest.raises(UnreadableContent, match=r".+"):
            decode(garbage)


@pytest.mark.parametrize("target", ["", ', "targetTopic": ""'])
def test_a_topic_without_its_name_on_the_target_is_unreadable(target: str) -> None:
    """All writers give it, so that no reader derives it: the route's naming may have changed since."""
    content = f'{{"partitions": 3, "initialPartitions": 2{target}}}'
    with pytest.raises(UnreadableContent, match="targetTopic"):
        decode_intent(content.encode())


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"partitions": "x", "initialPartitions": 1}',
        b'{"partitions": 1.5, "initialPartitions": 1}',
        b'{"partitions": 1, "initialPartitions": 1, "state": "of a newer version"}',
        b"[" * 50_000,
    ],
)
def test_a_content_of_another_form_is_unreadable(content: bytes) -> None:
    with pytest.raises(UnreadableContent, match=r"^[^\n]+$"):
        decode_intent(content)


@pytest.mark.parametrize(
    ("content", "decode"),
    [
        (b'{"max_slots": 2}', decode_known_worker),
        (b'{"auto_balancing": false}', decode_switches),
        (b'{"id": "c", "metrics_port": 9}', decode_controller),
        (b'{"delivery": "at_least_once", "on_gap": "stop"}', decode_route),
        (
            b'{"delivery": "at_least_once", "onGap": "stop", "verify_crc": true}',
            decode_route,
        ),
        (b'[{"number": 1, "kind": "worker", "reason": "", "wall_ms": 5}]', decode_history),
    ],
)
def test_snake_case_is_refused_and_not_taken_for_defaults(
    content: bytes, decode: Callable[[bytes], object]
) -> None:
    with pytest.raises(UnreadableContent):
        decode(content)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"delivery": "at_least_once"}'])
def test_route_settings_without_the_safety_fields_are_unreadable(content: bytes) -> None:
    with pytest.raises(UnreadableContent, match="Field required"):
        decode_route(content)


def test_names_on_the_wire_are_camel_case() -> None:
    for encoded in (
        encode_known_worker(KnownWorker(1)),
        encode_switches(Switches()),
        encode_controller(LiveController("c")),
        encode_route(RouteSettings()),
        encode_intent(TopicIntent(1, 1, target_topic="orders")),
        encode_history([PastEvent(1, EventKind.MOVE, "", 5, took_ms=3)]),
    ):
        assert b"_" not in encoded.replace(b"at_least_once", b"")


def test_fields_of_a_newer_version_are_ignored() -> None:
    for encoded, decode in [
        (encode_live_worker(LiveWorker(slots=2)), decode_live_worker),
        (encode_known_worker(KnownWorker(max_slots=2)), decode_known_worker),
        (encode_controller(LiveController("c")), decode_controller),
        (encode_route(RouteSettings()), decode_route),
        (encode_intent(TopicIntent(1, 1, target_topic="orders")), decode_intent),
    ]:
        newer = json.dumps({**json.loads(encoded), "ofTheFuture": 1, "of_the_future": 2})
        assert decode(newer.encode()) == decode(encoded)


def test_fields_an_older_version_did_not_write_have_their_defaults() -> None:
    assert decode_live_worker(b'{"slots": 2}') == LiveWorker(slots=2)
    assert decode_known_worker(b'{"maxSlots": 2}') == KnownWorker(max_slots=2)
    intent = b'{"partitions":3,"initialPartitions":2,"targetTopic":"orders","lane":"raw"}'
    assert decode_intent(intent) == TopicIntent(3, 2, target_topic="orders")
    old = b'{"a.b/t/0":{"bytesPerS":1.5,"recordsPerS":2}}'
    measured = {Partition(Route("a", "b"), "t", 0): PartitionLoad(1.5, 2.0)}
    assert decode_loads(old) == measured
