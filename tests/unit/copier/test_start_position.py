"""The table of where copying begins."""

import uuid
from dataclasses import replace

import pytest

from ureplicator_common.kafka import BatchTime, ClusterUnavailable, Position, topic_id_text
from ureplicator_common.kafka.provenance import UNCOUNTED, DataProducer, Provenance
from ureplicator_common.model import (
    Delivery,
    GapPolicy,
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
)
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_testkit.kafka.ledger import Ledger, MemoryPositions
from ureplicator_worker.copier.behind import Behind, TargetLost
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.start_position import CannotStart, find_starts, read_target
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.lifeline.messages import Grant

AT = Partition(Route("a", "b"), "t", 0)
OURS = Provenance(
    source_cluster="A",
    source_topic="A-t",
    target_topic="B-copy",
    worker="w",
    slot=0,
    owner_epoch=1,
)
NONE = Position(-1)
EARLIEST, LATEST, SINCE = 100, 900, 500
TARGET_END = 1_200


def start(position: Position, **grant: object) -> StartPosition:
    source = MemoryCluster(cluster_model("A", {"t": 1}))
    source.model.hold(start=EARLIEST, end=LATEST)
    source.model.logs["t", 0].times = [BatchTime(SINCE, LATEST - 1, 1_234)]
    target = MemoryCluster(cluster_model("B", {"copy": 1}))
    target.model.hold(start=0, end=TARGET_END)
    fields = {"owner_epoch": OwnerEpoch(1), "target_topic": "copy", **grant}
    return begin(Grant(**fields), position, source=source, target=target)  # type: ignore[arg-type]


def begin(
    grant: Grant, position: Position, *, source: MemoryCluster, target: MemoryCluster
) -> StartPosition:
    grants, stored = {AT: grant}, {("copy", 0): position}
    state = read_target(grants, stored, target)
    count = Takeovers(MemoryPositions(Ledger(), "own"), source=source, target=target)
    (found,) = find_starts(grants, stored, source=source, target=state, count=count)
    beginning = found[AT]
    if isinstance(beginning, CannotStart):
        raise beginning
    return beginning


def stored(**other: object) -> Position:
    return Position(42, 7, replace(OURS, **other).encode())  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [stored(), Position(42, 7), Position(42, 7, "seeded by hand")])
@pytest.mark.parametrize("had_position", [True, False])
def test_a_stored_position_is_where_copying_goes_on(position: Position, had_position: bool) -> None:
    beginning = start(position, had_position=had_position, settings=RouteSettings(start="latest"))
    assert (beginning.position, beginning.leader_epoch, beginning.committed) == (42, 7, 42)
    assert (beginning.source_cluster, beginning.source_topic_id) == ("A", "A-t")
    assert beginning.target_topic_id == "B-copy"
    assert not beginning.gap


def test_position_zero_is_a_position() -> None:
    assert start(Position(0), had_position=True).position == 0


@pytest.mark.parametrize(
    ("text", "offset"), [("earliest", EARLIEST), ("latest", LATEST), ("1234", SINCE)]
)
def test_a_partition_known_when_whitelisted_begins_at_the_routes_start(
    text: str, offset: int
) -> None:
    beginning = start(NONE, settings=RouteSettings(start=text))
    assert (beginning.position, beginning.leader_epoch, beginning.committed) == (offset, -1, -1)


OPEN_FROM, BEHIND_IT = 700, 800


@pytest.mark.parametrize("open_from", [None, OPEN_FROM])
@pytest.mark.parametrize(
    ("text", "stable"),
    [
        ("earliest", EARLIEST),
        ("1234", SINCE),
        ("2000", BEHIND_IT),
        ("9999", LATEST),
        ("latest", LATEST),
    ],
)
def test_nothing_of_an_open_transaction_is_left_out(
    text: str, stable: int, open_from: int | None
) -> None:
    """It may commit later: the end is that of what is stable, also for times behind it."""
    source = MemoryCluster(cluster_model("A", {"t": 1}))
    source.model.hold(start=EARLIEST, end=LATEST)
    log = source.model.logs["t", 0]
    log.times = [
        BatchTime(SINCE, OPEN_FROM - 1, 1_234),
        BatchTime(OPEN_FROM, BEHIND_IT - 1, 1_500),
        BatchTime(BEHIND_IT, LATEST - 1, 2_000),
    ]
    log.open_from = open_from
    target = MemoryCluster(cluster_model("B", {"copy": 1}))
    grant = Grant(OwnerEpoch(1), "copy", settings=RouteSettings(start=text))
    beginning = begin(grant, NONE, source=source, target=target)
    assert beginning.position == (stable if open_from is None else min(stable, open_from))


def test_an_open_transaction_at_the_target_is_no_loss() -> None:
    """A transaction of another producer there moves the last stable offset, not the log's end."""
    source = MemoryCluster(cluster_model("A", {"t": 1}))
    source.model.hold(start=EARLIEST, end=LATEST)
    target = MemoryCluster(cluster_model("B", {"copy": 1}))
    target.model.hold(start=0, end=TARGET_END)
    target.model.logs["copy", 0].open_from = TARGET_END - 1
    position = stored(target_end=TARGET_END)
    beginning = begin(Grant(OwnerEpoch(1), "copy"), position, source=source, target=target)
    assert (beginning.position, beginning.target_end) == (42, TARGET_END)


def test_a_partition_that_appeared_later_begins_at_its_first_record() -> None:
    assert start(NONE, initial=False, settings=RouteSettings(start="latest")).position == EARLIEST


@pytest.mark.parametrize("policy", list(GapPolicy))
@pytest.mark.parametrize("initial", [True, False])
def test_a_lost_position_begins_nowhere(policy: GapPolicy, initial: bool) -> None:
    with pytest.raises(CannotStart, match="lost") as error:
        start(NONE, had_position=True, initial=initial, settings=RouteSettings(on_gap=policy))
    assert not error.value.temporary


@pytest.mark.parametrize("field", ["source_topic", "target_topic"])
def test_a_recreated_topic(field: str) -> None:
    position = stored(**{field: "another"})
    with pytest.raises(CannotStart, match="recreated") as error:
        start(position, had_position=True)
    assert not error.value.temporary
    for policy, offset in ((GapPolicy.EARLIEST, EARLIEST), (GapPolicy.LATEST, LATEST)):
        settings = RouteSettings(on_gap=policy, start="latest")
        beginning = start(position, had_position=True, settings=settings)
        assert (beginning.position, beginning.leader_epoch, beginning.committed) == (offset, -1, -1)
        assert "recreated" in beginning.gap


@pytest.mark.parametrize("policy", list(GapPolicy))
def test_a_position_of_another_cluster_begins_nowhere(policy: GapPolicy) -> None:
    with pytest.raises(CannotStart, match="cluster") as error:
        start(stored(source_cluster="Z"), settings=RouteSettings(on_gap=policy))
    assert not error.value.temporary


@pytest.mark.parametrize(("topics", "end"), [("t", "source"), ("copy", "target")])
@pytest.mark.parametrize("partitions", [None, 0])
def test_a_missing_topic_or_partition_may_come(
    topics: str, end: str, partitions: int | None
) -> None:
    counts = {"t": 1, "copy": 1}
    if partitions is None:
        del counts[topics]
    else:
        counts[topics] = partitions
    source = MemoryCluster(cluster_model("A", {k: v for k, v in counts.items() if k == "t"}))
    target = MemoryCluster(cluster_model("B", {k: v for k, v in counts.items() if k == "copy"}))
    with pytest.raises(CannotStart, match=end) as error:
        begin(Grant(OwnerEpoch(1), "copy"), NONE, source=source, target=target)
    assert error.value.temporary


# --- The expected topic

SOURCE_ID = uuid.UUID(int=7)


def start_of(
    expected: uuid.UUID, there: uuid.UUID, position: Position, **grant: object
) -> StartPosition:
    """Start as `start` does, with a source topic that has a real id."""
    source = MemoryCluster(cluster_model("A", {"t": 1}))
    source.model.hold(start=EARLIEST, end=LATEST)
    source.model.topic_ids["t"] = str(there)
    target = MemoryCluster(cluster_model("B", {"copy": 1}))
    fields = {
        "owner_epoch": OwnerEpoch(1),
        "target_topic": "copy",
        "source_topic_id": topic_id_text(expected),
        **grant,
    }
    return begin(Grant(**fields), position, source=source, target=target)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", list(GapPolicy))
@pytest.mark.parametrize(("end", "counts"), [("source", (1, 2)), ("target", (2, 1))])
def test_a_partition_that_one_end_lacks_begins_nowhere(
    policy: GapPolicy, end: str, counts: tuple[int, int]
) -> None:
    """No policy sends its records elsewhere. It may be added."""
    source = MemoryCluster(cluster_model("A", {"t": counts[0]}))
    target = MemoryCluster(cluster_model("B", {"copy": counts[1]}))
    grant = Grant(OwnerEpoch(1), "copy", settings=RouteSettings(on_gap=policy))
    lacking = Partition(AT.route, "t", 1)
    grants, positions = {AT: grant, lacking: grant}, {("copy", 0): NONE, ("copy", 1): NONE}
    state = read_target(grants, positions, target)
    count = Takeovers(MemoryPositions(Ledger(), "own"), source=source, target=target)
    found = {
        part: outcome
        for portion in find_starts(grants, positions, source=source, target=state, count=count)
        for part, outcome in portion.items()
    }
    failed = found[lacking]
    assert isinstance(failed, CannotStart)
    assert failed.temporary
    topic = "t" if end == "source" else "copy"
    assert str(failed) == f"topic {topic} has no partition 1 on the {end}"
    assert isinstance(found[AT], StartPosition), "the other one begins"


def test_a_recreated_topic_waits_for_the_leaders_decision() -> None:
    for policy in GapPolicy:
        with pytest.raises(CannotStart, match="recreated") as raised:
            start_of(SOURCE_ID, uuid.uuid4(), NONE, settings=RouteSettings(on_gap=policy))
        assert raised.value.temporary


@pytest.mark.parametrize("other", [{}, {"target_topic": "B-former"}])
@pytest.mark.parametrize(("initial", "offset"), [(False, EARLIEST), (True, LATEST)])
def test_a_restarted_topic_takes_no_position_of_another(
    other: dict[str, str], initial: bool, offset: int
) -> None:
    position = stored(source_topic="A-former", **other)
    settings = RouteSettings(start="latest")
    beginning = start_of(
        SOURCE_ID, SOURCE_ID, position, restarted=True, initial=initial, settings=settings
    )
    assert (beginning.position, beginning.committed, beginning.gap) == (offset, -1, "")


def test_a_restarted_topic_goes_on_at_its_own_position() -> None:
    position = stored(source_topic=str(SOURCE_ID))
    assert (
        start_of(SOURCE_ID, SOURCE_ID, position, restarted=True, had_position=True).position == 42
    )


def test_a_lost_position_is_no_reason_to_restart_again() -> None:
    with pytest.raises(CannotStart, match="lost"):
        start_of(SOURCE_ID, SOURCE_ID, NONE, restarted=True, had_position=True)


# --- The target's end


@pytest.mark.parametrize("acknowledged", [-1, 0, TARGET_END - 1, TARGET_END])
@pytest.mark.parametrize("policy", list(GapPolicy))
def test_a_target_that_holds_what_it_acknowledged(acknowledged: int, policy: GapPolicy) -> None:
    beginning = start(stored(target_end=acknowledged), settings=RouteSettings(on_gap=policy))
    assert (beginning.position, beginning.committed, beginning.gap) == (42, 42, "")
    assert beginning.target_end == acknowledged


def test_a_target_that_lost_records_stops_its_partition() -> None:
    with pytest.raises(CannotStart) as error:
        start(stored(target_end=1_250), had_position=True)
    assert str(error.value) == "target lost offsets 1,200 to 1,249 (on_gap: stop)"
    assert not error.value.temporary


@pytest.mark.parametrize("policy", [GapPolicy.EARLIEST, GapPolicy.LATEST])
def test_a_target_that_lost_records_is_a_gap_where_the_policy_goes_on(policy: GapPolicy) -> None:
    """It is committed at once: the next start must not count it again."""
    beginning = start(stored(target_end=1_250), settings=RouteSettings(on_gap=policy))
    assert beginning.gap == "target lost offsets 1,200 to 1,249"
    assert (beginning.position, beginning.leader_epoch) == (42, 7)
    assert (beginning.committed, beginning.target_end) == (-1, TARGET_END)


@pytest.mark.parametrize("field", ["source_topic", "target_topic"])
def test_the_end_of_another_log_is_not_compared(field: str) -> None:
    position = stored(**{field: "another"}, target_end=1_250)
    settings = RouteSettings(on_gap=GapPolicy.EARLIEST)
    beginning = start(position, had_position=True, settings=settings)
    assert "recreated" in beginning.gap
    assert (beginning.position, beginning.target_end) == (EARLIEST, -1)


def test_without_the_targets_end_nothing_begins() -> None:
    source = MemoryCluster(cluster_model("A", {"t": 1}))
    target = MemoryCluster(cluster_model("B", {"copy": 1}))
    target.leaderless.add(("copy", 0))
    grant = Grant(OwnerEpoch(1), "copy")
    with pytest.raises(CannotStart, match="target: copy/0 has no leader") as error:
        begin(grant, stored(target_end=5), source=source, target=target)
    assert error.value.temporary
    assert begin(grant, stored(), source=source, target=target).position == 42


def test_the_marker_of_the_last_transaction_is_waited_for() -> None:
    """It may be on its way; or it lies where the last record was."""
    with pytest.raises(CannotStart, match="ends at 1,200, where the end of the last") as error:
        start(stored(target_end=TARGET_END, markers=1), had_position=True)
    assert error.value.temporary
    beginning = start(stored(target_end=TARGET_END - 1, markers=1), had_position=True)
    assert (beginning.target_end, beginning.markers) == (TARGET_END - 1, 1)


def test_more_than_the_marker_is_lost() -> None:
    with pytest.raises(CannotStart) as error:
        start(stored(target_end=TARGET_END + 1, markers=1), had_position=True)
    assert str(error.value) == "target lost offsets 1,200 to 1,201 (on_gap: stop)"


@pytest.mark.parametrize("delivery", Delivery)
def test_the_end_is_read_behind_a_producer_of_a_position_that_was_moved_by_hand(
    delivery: Delivery,
) -> None:
    """Its tail is read to the fence, whatever the delivery is meanwhile."""
    target = MemoryCluster(cluster_model("B", {"copy": 1}))
    target.model.hold(start=0, end=TARGET_END)
    moved = stored(target_end=-1, appends=DataProducer("w.0.x", 1, 0, UNCOUNTED))
    grant = Grant(OwnerEpoch(1), "copy", settings=RouteSettings(delivery=delivery))
    state = read_target({AT: grant}, {("copy", 0): moved}, target)
    assert state.ends == {("copy", 0): TARGET_END}


@pytest.mark.parametrize("restarted", [True, False])
def test_of_a_recreated_topic_nothing_is_copied_before_the_former_owner_is_fenced(
    restarted: bool,
) -> None:
    """Its late batches of the former topic would be appended among the records of the new one."""
    source = MemoryCluster(cluster_model("A", {"t": 1}))
    source.model.hold(start=EARLIEST, end=LATEST)
    target = MemoryCluster(cluster_model("B", {"copy": 1}))
    position = stored(source_topic="A-former", appends=DataProducer("w.0.run", 7, 0))
    settings = RouteSettings(on_gap=GapPolicy.EARLIEST)
    grant = Grant(OwnerEpoch(1), "copy", settings=settings, restarted=restarted)
    grants, key = {AT: grant}, ("copy", 0)
    state = read_target(grants, {key: position}, target)
    count = Takeovers(MemoryPositions(Ledger(), "own"), source=source, target=target)
    for behind, begins in (
        (ClusterUnavailable("no coordinator"), False),
        (TargetLost("target lost offsets"), True),
        (Behind(0, 9), True),
    ):
        seen = replace(state, behind={key: behind})
        (found,) = find_starts(grants, {key: position}, source=source, target=seen, count=count)
        assert isinstance(found[AT], StartPosition) is begins, behind
