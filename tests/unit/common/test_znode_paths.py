"""Paths of nodes: each lies below its parent, and topics are leaves."""

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.leaf_nodes import leaf_of
from ureplicator_common.model import Partition, Route, TopicKey, WorkerId
from ureplicator_common.znodes.paths import Paths

clusters = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)
routes = st.builds(Route, clusters, clusters)
workers = st.builds(WorkerId, st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True))


@given(routes, topics, st.integers(min_value=0, max_value=10_000), workers)
def test_every_node_lies_below_its_parent_in_the_skeleton(
    route: Route, topic: str, number: int, worker: WorkerId
) -> None:
    paths = Paths("local")
    key = TopicKey(route, topic)
    assert Partition.parse(f"{key}/{number}") == Partition(route, topic, number)
    assert paths.topic(key) == f"{paths.topics}/{route.source}.{route.target}/{topic}"
    assert paths.ideal_topic(key).startswith(f"{paths.ideal}/{route}/")
    for path, parent in [
        (paths.controller("c"), paths.controllers),
        (paths.worker_live(worker), paths.workers_live),
        (paths.worker_known(worker), paths.workers_known),
        (paths.route(route), paths.routes),
        (paths.assignment(worker), paths.assignments),
        (paths.current_state(worker), paths.current),
        (paths.measures.load(worker), paths.measures.loads),
        (paths.measures.usage(worker), paths.measures.usages),
    ]:
        assert path.rpartition("/")[0] == parent
        assert parent in paths.skeleton
    assert paths.leader.rpartition("/")[0] == paths.root


def test_topics_of_a_route_are_leaves_and_their_folders_are_not() -> None:
    paths, key = Paths("test"), TopicKey(Route("west", "east"), "orders")
    is_leaf = leaf_of(paths)
    topics = (
        paths.topic(key),
        paths.ideal_topic(key),
        paths.target("east", "orders"),
        paths.audits.state(key),
    )
    assert all(map(is_leaf, topics))
    folders = (paths.root, paths.topics, paths.ideal, paths.audits.states, paths.skeleton[-1])
    assert not any(map(is_leaf, (*folders, *(path.rpartition("/")[0] for path in topics))))
