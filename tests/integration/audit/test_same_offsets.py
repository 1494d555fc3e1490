"""`ureplicator offsets same` on real brokers: a copy with the same offsets, and one with mapped ones."""

from __future__ import annotations

import json

import pytest
from click.testing import Result

from ureplicator_common.model import RouteSettings
from ureplicator_testkit.control.command import run
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import COUNT, EXACTLY_ONCE, SAME, Takeover
from ureplicator_testkit.records.topics import NewRecord, delete_records, produce, sample_records
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.timeout(300)

TURNS = 4


def copied(lane: RealLane, settings: RouteSettings) -> None:
    """A topic with transactions at the source, of which some were aborted, and its copy."""
    owners = Takeover(lane)
    owners.make(1)
    for turn in range(TURNS):
        lane.fill_in_turn(turn)
    lane.fill(sample_records(COUNT))
    owners.finish(settings=settings)


def same(lane: RealLane, zookeeper: ZooKeeperServer, *more: str) -> Result:
    config = lane.folder / "fleet.yaml"
    clusters = {ROUTE.source: lane.source.bootstrap, ROUTE.target: lane.target.bootstrap}
    content = {
        "fleet": lane.fleet,
        "zookeeper": {"hosts": zookeeper.hosts},
        "clusters": {name: {"bootstrap.servers": at} for name, at in clusters.items()},
        "routes": [{"source": ROUTE.source, "target": ROUTE.target}],
    }
    config.write_text(json.dumps(content))
    return run("offsets", "same", lane.topic, "--config", config, "--master", "local[1]", *more)


def test_each_record_is_at_the_same_offset(lane: RealLane, zookeeper: ZooKeeperServer) -> None:
    """Also where either log has lost its beginning, and until somebody else writes to the target."""
    copied(lane, SAME)
    (end,) = lane.target_ends().values()
    records = TURNS * 150 + TURNS // 2 * 20 + COUNT
    done = same(lane, zookeeper)
    assert done.exit_code == 0, done.stderr
    found = f"partition 0: same from 0 to {end} ({records:,} records)"
    assert done.stdout.splitlines()[1:] == [found]
    delete_records(lane.source.bootstrap, lane.topic, {0: 40})
    delete_records(lane.target.bootstrap, lane.topic, {0: 140})
    produce(lane.target.bootstrap, lane.topic, [NewRecord(b"foreign")])
    done = same(lane, zookeeper)
    assert done.exit_code == 1, done.stderr
    (line,) = done.stdout.splitlines()[1:]
    assert line == (
        f"partition 0: different from 140 to {end} ({records - 140:,} records are the same):"
        f" {end} of the target is not at the source; 1 foreign;"
        " the target deleted its first records: what is before is not compared"
    )


def test_mapped_offsets_differ_behind_the_first_transaction(
    lane: RealLane, zookeeper: ZooKeeperServer
) -> None:
    copied(lane, EXACTLY_ONCE)
    done = same(lane, zookeeper, "--json")
    assert done.exit_code == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["state"] == "different"
    first = found["findings"][0]
    assert (first["kind"], first["sourceOffset"], first["targetOffset"]) == ("shifted", 171, 150)
    totals = found["totals"]
    assert totals["compared"] - totals["shifted"] == 150
    assert not totals["missing"] + totals["foreign"] + totals["altered"] + totals["reordered"]
