"""The offset map over a takeover: what a former owner copied behind the position is in it, if it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import NO_PLACE
from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_testkit.copier.fenced_fleet import FENCED, FencedFleet
from ureplicator_testkit.copier.ledger_fleet import WorkerLine, put
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, committed
from ureplicator_testkit.kafka.map_log import MemoryMapLog
from ureplicator_testkit.records.batches import TRANSACTIONAL, batch, marker
from ureplicator_worker.copier.behind import Behind, Place, Span
from ureplicator_worker.copier.ownership.map_commits import MapCommits, begun
from ureplicator_worker.copier.position_values import Counted, StartPosition
from ureplicator_worker.copier.raw.partition import offsets_behind
from ureplicator_worker.copier.raw.target_offsets import target_offset
from ureplicator_worker.copier.start_position import StartDecision, counted_records

PARTITION = Partition(Route("a", "b"), "t", 0)
PLACED, KEY = Partition(ROUTE, "t", 0), ("t", 0)
COUNTED = Counted(source=100, target=40, spans=(Span(100, 7),))
SPANS = (Span(102, 2), Span(109, 1))


def beginning(position: int = 100, **more: object) -> StartPosition:
    return StartPosition(position, 0, 100, "A", "source-id", "target-id", **more)  # type: ignore[arg-type]


def counted(behind: Behind, *spans: Span) -> Counted | None:
    return counted_records(StartDecision(beginning(), behind=behind), Place(107, 0, spans))


def test_records_without_a_hole_at_the_target_are_mapped() -> None:
    assert counted(Behind(7, 48, first=40), Span(100, 7)) == COUNTED


@pytest.mark.parametrize(("first", "spans"), [(-1, (Span(100, 7),)), (40, ())])
def test_records_of_an_unknown_place_are_not(first: int, spans: tuple[Span, ...]) -> None:
    """Consumers there are sent back to the position."""
    assert counted(Behind(7, 48, first=first), *spans) is None


def test_counted_records_and_what_follows_are_found_at_the_target() -> None:
    """The control record lies between them."""
    offsets = offsets_behind(COUNTED, end=48)
    offsets.acknowledged(107, None, target=48, records=3, transactional=False)
    found = [target_offset(offsets.segments(), source) for source in (99, 100, 106, 107, 109, 110)]
    assert found == [None, 40, 46, 48, 50, 51]


def test_holes_of_the_source_do_not_hide_what_was_counted() -> None:
    counted = Counted(100, 40, SPANS)
    offsets = offsets_behind(counted, end=44)
    found = [target_offset(offsets.segments(), source) for source in (99, 100, 102, 103, 109)]
    assert found == [None, 40, 40, 41, 42]
    view = MapView.of(counted.segments())
    assert [view.forward(source) for source in (99, 100, 102, 103, 104, 109)] == [
        *(None, 40, 40, 41, 42, 42)
    ]


def test_nothing_of_what_was_counted_counts_as_repeated() -> None:
    offsets = offsets_behind(COUNTED, end=48)
    offsets.acknowledged(107, None, target=48, records=3, transactional=False)
    assert [segment.repeated for segment in offsets.segments()] == [False, False]


def test_the_map_goes_on_behind_the_stored_position() -> None:
    """It does not go on where copying begins: the first commitment has the rows of what was counted."""
    written = begun(PARTITION, beginning(107, counted=COUNTED, mapped=33, map_chunks=2))
    assert (written.begin, written.mapped, written.former) == ((100, 40), 33, 2)


def test_the_map_is_interrupted_where_nobody_knows_what_lies_behind() -> None:
    written = begun(PARTITION, beginning(107, mapped=33, map_chunks=2))
    assert (written.begin, written.former) == (NO_PLACE, 2)


class MappedFleet(FencedFleet):
    """All of its workers write one offset map."""

    def __init__(self) -> None:
        self.log = MemoryMapLog()
        settings = replace(FENCED, offset_map=True)
        super().__init__(PROTOCOLS[0], "w1", "w2", settings=settings)

    def _process(self, name: str) -> WorkerLine:
        line = super()._process(name)
        line.ownership._maps = MapCommits(self.log)
        return line

    def appends(self, begun: int) -> None:
        """A transaction of the source that is aborted, and two that are committed, between plain records."""
        log = self.source.logs[KEY]
        for producer, commit in ((begun, False), (begun + 1, True), (begun + 2, True)):
            rows = [(0, None, b"%d-%d" % (producer, number), ()) for number in range(3)]
            log.put(batch(rows, producer_id=producer, attributes=TRANSACTIONAL))
            log.put(marker(base_offset=0, producer_id=producer, commit=commit))
            put(self, 0, 2)

    def assert_exact(self) -> None:
        maps = RouteMaps(frozenset([PLACED]))
        maps.add(self.log.rows)
        view = maps.view(PLACED, self.ledger.read(KEY))
        places = {row.value: row.offset for row in committed(self.target, KEY, stable=False)}
        for row in committed(self.source, KEY):
            at = places[row.value]
            assert (view.forward(row.offset), view.backward(at)) == (at, row.offset)


@pytest.fixture
def fleet() -> Iterator[MappedFleet]:
    fleet = MappedFleet()
    yield fleet
    fleet.close()


@pytest.mark.parametrize("seed", range(25))
def test_the_map_is_exact_over_owners_that_are_lost_in_a_row(fleet: MappedFleet, seed: int) -> None:
    """They are lost before they have copied anything, before their first commit, and after it."""
    random = Random(seed)  # noqa: S311
    fleet.give(0, "w1")
    for lost in range(12):
        if random.random() < 0.6:
            fleet.appends(1_000 + 10 * lost)
        else:
            put(fleet, 0, random.randrange(3))
        fleet.turns(random.choice((1, 2, 3, 4, 8, 40)), skip_s=random.choice((0.001, 0.1)))
        fleet.kill("w1")
    fleet.run_until_copied()
    fleet.turns(20)
    fleet.assert_exact()
