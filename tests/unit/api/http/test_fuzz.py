"""Every call as its own schema describes it, and as it does not: no fault of ours, no undeclared
response, and nothing changed by a call that was refused.

Each input is sent as it came, and again with names put in that the fleet knows, since a random name
ends at 404. The inputs are the same in each run; `FUZZ_EXAMPLES=2000 pytest tests/unit/api/http/test_fuzz.py`
tries many more.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    response_headers_conformance,
)

from ureplicator_common.model import PartitionState, TopicState, WorkerId
from ureplicator_common.znode_contents import KnownWorker, TopicIntent
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.fuzzing import CHECKS, put_in, same_inputs

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "5"))
CHECKED = [*CHECKS, response_headers_conformance]
KNOWN = ({"topic": "orders", "worker": "w1"}, {"partition": "1"})

with closing(RestFixture(described=True)) as described:
    SCHEMA = schemathesis.openapi.from_wsgi("/openapi.json", described.app)
CALLS = [(method, path) for path, item in SCHEMA.items() for method in item]


def furnish(rest: RestFixture) -> None:
    """A fleet with something to read and to change, whatever was done to it before."""
    for topic in ("orders", "gone", "quiet"):
        if rest.intent(topic) is not None:
            rest.remove(topic)
    blacklisted = frozenset({2})
    rest.put_intent("orders", TopicIntent(3, 3, blacklisted=blacklisted, target_topic="orders"))
    rest.put_intent("gone", TopicIntent(1, 1, TopicState.DELETING, target_topic="gone"))
    known = encode_known_worker(KnownWorker(2, draining=True))
    rest.put(rest.paths.worker_known(WorkerId("w2")), known)


@pytest.fixture
def inhabited(rest: RestFixture) -> RestFixture:
    rest.put_leader()
    rest.add_worker("w1")
    rest.place("orders", {0: "w1", 1: "w1", 2: None})
    states = {0: PartitionState.ONLINE, 1: PartitionState.ERROR}
    rest.put_states("w1", "orders", states, reason="too large")
    rest.target.put("orders", 3)
    for number in range(3):
        rest.logs["source"].hold("orders", number, 0, 9)
    furnish(rest)
    return rest


def whole(rest: RestFixture) -> Any:
    """All that a call can change: ZooKeeper and the target."""
    return rest.tree(), rest.target.topics()


def send(rest: RestFixture, case: Any, *, negative: bool) -> None:
    furnish(rest)
    before = whole(rest)
    response = case.call(app=rest.app)
    assert b"Traceback" not in response.content
    is_to_be_refused = negative and not refuses_items(case, response)
    checks = [*CHECKED, negative_data_rejection] if is_to_be_refused else CHECKED
    case.validate_response(response, checks=checks)
    if response.status_code >= 400:
        assert whole(rest) == before, f"{response.status_code} changed something"


def refuses_items(case: Any, response: Any) -> bool:
    """True if a call of many items, which refuses each by itself, has refused one with a problem."""
    if case.path != "/import/topics" or response.status_code != 200:
        return False
    return any(
        item["result"] == "refused" and item["problem"] for item in response.json()["topics"]
    )


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_call(inhabited: RestFixture, method: str, path: str, mode: GenerationMode) -> None:
    operation = SCHEMA[path][method]
    negative = mode is GenerationMode.NEGATIVE

    @same_inputs(EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=mode))
    def fuzz(case: Any) -> None:
        send(inhabited, case, negative=negative)
        for known in KNOWN:
            put_in(case, known)
            send(inhabited, case, negative=False)

    try:
        fuzz()
    except Unsatisfiable:
        assert negative, "the schema allows nothing"
        pytest.skip("no input of this call can be wrong")
