"""Every call of a real controller, as its own schema describes it and as it does not, beside a route that is
in the tree and in no configuration.

`tests/unit/api/http/test_fuzz.py` sees to it that wrong input is refused and changes nothing. Here the
servers are real, and each call is to get a response that its schema declares, and no fault of ours.
`FUZZ_EXAMPLES=50` tries as many inputs of each call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from ureplicator_common.coordination import Create
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.fuzzing import CHECKS, put_in, same_inputs
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2"))
STRAY = TopicKey(Route("gone", "elsewhere"), "stray")
KNOWN: tuple[Mapping[str, str], ...] = (
    {"src": "source", "dst": "target", "worker": "w1"},
    {"src": STRAY.route.source, "dst": STRAY.route.target, "topic": STRAY.topic, "partition": "0"},
)
TIMEOUT_S = 30


@pytest.fixture
def strayed(new_fleet: Callable[..., Fleet], fleet: str, tmp_path: Path) -> Iterator[Fleet]:
    """A controller without workers; the tree has a topic of a route that nobody configured."""
    with new_fleet(name=fleet, folder=tmp_path) as whole:
        whole.start(workers=0)
        add_stray(whole)
        yield whole  # hypothesis bears no threads that use random


def add_stray(fleet: Fleet) -> None:
    paths = Paths(fleet.name)
    coordination = ZooKeeperCoordination(hosts=fleet.zookeeper, session_timeout_s=TIMEOUT_S)
    with closing(coordination):
        coordination.connect(TIMEOUT_S)
        for path, data in (
            (paths.route(STRAY.route), encode_route(RouteSettings())),
            (paths.topic(STRAY), encode_intent(TopicIntent(2, 2, target_topic="stray"))),
        ):
            coordination.ensure(path.rpartition("/")[0])
            coordination.transact([Create(path, data)])


@pytest.mark.timeout(1_800)
def test_each_call_has_a_declared_response(
    strayed: Fleet, source_cluster: KafkaCluster, topic: str
) -> None:
    create_topic(source_cluster.bootstrap, topic, partitions=2)
    schema = schemathesis.openapi.from_dict(strayed.rest("GET", "/openapi.json"))
    schema.config.update(base_url=strayed.call("GET", "/health").url.removesuffix("/health"))
    calls = [(method, path) for path, item in schema.items() for method in item]
    assert len(calls) > 60
    sent = 0
    for method, path in calls:
        for mode in GenerationMode:
            sent += _fuzz(schema[path][method], topic, negative=mode is GenerationMode.NEGATIVE)
    assert sent > len(calls) * EXAMPLES
    listed = strayed.rest("GET", "/health")
    assert listed["status"] == "ok"
    print(f"{sent} requests to {len(calls)} calls")


def _fuzz(operation: Any, topic: str, *, negative: bool) -> int:
    """Returns how many requests were sent."""
    mode = GenerationMode.NEGATIVE if negative else GenerationMode.POSITIVE
    sent = 0

    @same_inputs(EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=mode))
    def each(case: Any) -> None:
        nonlocal sent
        _send(case)
        for known in ({**KNOWN[0], "topic": topic, "partition": "1"}, KNOWN[1]):
            put_in(case, known)
            _send(case)
        sent += 3

    try:
        each()
    except Unsatisfiable:
        assert negative, "the schema allows nothing"
    return sent


def _send(case: Any) -> None:
    response = case.call(timeout=TIMEOUT_S)
    assert b"Traceback" not in response.content
    case.validate_response(response, checks=list(CHECKS))
