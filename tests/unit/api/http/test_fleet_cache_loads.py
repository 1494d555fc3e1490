"""States of the fleet cache while workers write their loads."""

from __future__ import annotations

import pytest

from ureplicator_common.model import Partition, PartitionState
from ureplicator_common.znode_contents import PartitionLoad, TopicIntent
from ureplicator_controller.api.services.fleet_cache import LOADS_MAX_AGE_S, FleetCache
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

PARTITION = Partition(ROUTE, "orders", 0)


@pytest.fixture
def cache(rest: RestFixture) -> FleetCache:
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
    rest.add_worker("w1")
    rest.put_loads("w1", {PARTITION: PartitionLoad(bytes_per_s=1.0)})
    return FleetCache(rest.coordination, fleet="test", clock=rest.clock)


def rate(cache: FleetCache) -> float:
    (loads,) = cache.current().snapshot.loads.values()
    return loads[PARTITION].bytes_per_s


def test_new_figures_of_a_load_make_no_new_state_until_they_are_old(
    rest: RestFixture, cache: FleetCache
) -> None:
    before = cache.current()
    for _ in range(3):
        rest.put_loads("w1", {PARTITION: PartitionLoad(bytes_per_s=2.0)})
        assert cache.current() is before
    rest.clock.advance(LOADS_MAX_AGE_S)
    assert rate(cache) == 2.0


def test_any_other_change_is_shown_at_once_with_the_loads(
    rest: RestFixture, cache: FleetCache
) -> None:
    cache.current()
    rest.put_loads("w1", {PARTITION: PartitionLoad(bytes_per_s=2.0)})
    cache.current()
    rest.put_states("w1", "orders", {0: PartitionState.ONLINE})
    assert cache.current().view.of(PARTITION)
    assert rate(cache) == 2.0


def test_a_worker_that_reports_loads_for_the_first_time_is_a_change(
    rest: RestFixture, cache: FleetCache
) -> None:
    before = cache.current()
    rest.add_worker("w2")
    rest.put_loads("w2", {})
    after = cache.current()
    assert after is not before
    assert len(after.snapshot.loads) == 2


def test_a_node_that_is_gone_is_a_change(rest: RestFixture, cache: FleetCache) -> None:
    before = cache.current()
    rest.put_loads("w1", {PARTITION: PartitionLoad(bytes_per_s=2.0)})
    rest.remove("orders")
    assert cache.current() is not before
    assert not cache.current().snapshot.topics
