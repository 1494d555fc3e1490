"""`ureplicator apply` over a live REST server on the twins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ureplicator_cli.fleet_file.steps import MAX_BODY_BYTES, MAX_TOPICS, steps
from ureplicator_common.model import Limited, TopicKey, TopicState, WorkerId
from ureplicator_common.znode_contents import KnownWorker, Switches, TopicIntent
from ureplicator_common.znodes.fleet import decode_switches, encode_switches
from ureplicator_common.znodes.topics import encode_blacklisted
from ureplicator_common.znodes.workers import decode_known_worker, encode_known_worker
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

NOTHING: dict[str, Any] = {
    "fleet": "test",
    "switches": {"autoBalancing": True, "frozen": False, "pausedRoutes": [], "limits": {}},
    "workers": {},
    "blacklist": {},
    "topics": {},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.yaml"


def write(file: Path, **sections: Any) -> Path:
    file.write_text(yaml.safe_dump({"version": 1, "fleet": "test", **sections}))
    return file


def listed(rest: RestFixture, topic: str) -> bool:
    return rest.other_client.get(rest.paths.blacklisted(TopicKey(ROUTE, topic))) is not None


def test_a_file_without_fields_adds_topics_and_is_idempotent(
    rest: RestFixture, url: str, file: Path
) -> None:
    write(file, topics={"source.target": {"orders": None, "quiet": {"state": "paused"}}})
    dry = run("apply", file, "--dry-run", url=url)
    assert dry.exit_code == 0, dry.output
    assert dry.stdout.splitlines()[-1] == "2 created (dry run: nothing was written)"
    assert rest.intent("orders") is None
    done = run("apply", file, url=url)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:-1] == dry.stdout.splitlines()[:-1]
    before = rest.tree()
    again = run("apply", file, url=url)
    assert again.stdout == "2 unchanged\n"
    assert rest.tree() == before


def test_an_export_applied_to_its_own_fleet_changes_nothing(
    rest: RestFixture, url: str, file: Path
) -> None:
    filled(rest)
    run("export", file, url=url)
    before = rest.tree()
    for options in ((), ("--prune",)):
        result = run("apply", file, *options, url=url)
        assert (result.exit_code, result.stdout) == (0, "5 unchanged\n")
    assert rest.tree() == before


def filled(rest: RestFixture) -> None:
    rest.put_intent(
        "orders", TopicIntent(4, 3, had_position=frozenset({0, 1, 3}), target_topic="orders")
    )
    rest.put_intent("quiet", TopicIntent(1, 1, state=TopicState.PAUSED, target_topic="quiet"))
    rest.put(rest.paths.blacklisted(TopicKey(ROUTE, "spam")), encode_blacklisted("r"))
    data = encode_known_worker(KnownWorker(4, blacklisted=True, draining=True))
    rest.put(rest.paths.worker_known(WorkerId("w3")), data)
    switches = Switches(paused_routes=frozenset({ROUTE}), limits={Limited.route(ROUTE): 50_000})
    rest.put(rest.paths.settings, encode_switches(switches))


def test_without_prune_what_the_file_does_not_name_stays(
    rest: RestFixture, url: str, file: Path
) -> None:
    filled(rest)
    before = rest.tree()
    write(file, workers={}, blacklist={"source.target": []}, topics={"source.target": {}})
    assert run("apply", file, url=url).stdout == "no items\n"
    assert rest.tree() == before


def test_prune_removes_what_the_file_does_not_name(rest: RestFixture, url: str, file: Path) -> None:
    filled(rest)
    write(
        file,
        workers={},
        blacklist={"source.target": []},
        topics={"source.target": {"orders": None}},
    )
    before = rest.tree()
    dry = run("apply", file, "--prune", "--dry-run", url=url)
    assert rest.tree() == before
    done = run("apply", file, "--prune", url=url)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "changed   workers.w3: blacklisted: true -> false; draining: true -> false",
        "deleted   topics.source.target.quiet",
        "changed   blacklist.source.target.spam: removed from the blacklist",
        "2 changed, 1 deleted, 1 unchanged",
    ]
    assert dry.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    quiet = rest.intent("quiet")
    assert quiet is not None
    assert quiet.state is TopicState.DELETING
    assert not listed(rest, "spam")
    node = rest.other_client.get(rest.paths.worker_known(WorkerId("w3")))
    assert node is not None
    known = decode_known_worker(node.data)
    assert (known.max_slots, known.is_drained) == (4, False)
    again = run("apply", file, "--prune", url=url)
    assert again.stdout.splitlines()[-1] == "1 unchanged"


@pytest.mark.parametrize("sections", [{}, {"topics": {}}, {"blacklist": {}}])
def test_prune_leaves_sections_and_routes_alone_that_the_file_lacks(
    rest: RestFixture, url: str, file: Path, sections: dict[str, Any]
) -> None:
    filled(rest)
    before = rest.tree()
    assert run("apply", write(file, **sections), "--prune", url=url).stdout == "no items\n"
    assert rest.tree() == before


def test_switches_that_are_missing_stay(rest: RestFixture, url: str, file: Path) -> None:
    filled(rest)
    result = run("apply", write(file, switches={"pausedRoutes": []}), url=url)
    assert (
        result.stdout.splitlines()[0] == "changed   switches: pausedRoutes: source.target -> none"
    )
    node = rest.other_client.get(rest.paths.settings)
    assert node is not None
    switches = decode_switches(node.data)
    assert (switches.paused_routes, len(switches.limits)) == (frozenset(), 1)


def test_settings_of_routes_become_as_in_the_file(rest: RestFixture, url: str, file: Path) -> None:
    run("routes", "set", "source.target", "on_gap=latest", url=url)
    settings = {"source.target": {"delivery": "exactly_once", "naming": {"prefix": "x."}}}
    write(file, switches={"routeSettings": settings})
    done = run("apply", file, url=url)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("changed   switches: routeSettings: source.target {")
    shown = rest.call("GET", "/routes").get_json()["routes"]["source.target"]
    assert shown["changes"] == settings["source.target"]
    assert run("apply", file, url=url).stdout.splitlines()[-1] == "1 unchanged"


def test_what_is_refused_is_reported_and_the_rest_is_done(
    rest: RestFixture, url: str, file: Path
) -> None:
    write(file, topics={"source.target": {"nowhere": None, "orders": None, "typo": {"stat": 1}}})
    result = run("apply", file, url=url)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "refused   topics.source.target.nowhere.topic: topic nowhere does not exist on the source"
        " cluster source (create the topic there first)",
        result.stderr.splitlines()[1],
    ]
    assert result.stderr.splitlines()[1].startswith("refused   topics.source.target.typo.stat: ")
    assert result.stdout.splitlines()[-1] == "1 created, 2 refused"
    assert rest.intent("orders") is not None


def test_a_route_that_is_not_configured_is_refused_for_each_topic(url: str, file: Path) -> None:
    write(file, topics={"west.east": {"a": None, "b": None}, "source.target": {"orders": None}})
    result = run("apply", file, url=url)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "1 created, 2 refused")


def test_json(url: str, file: Path) -> None:
    write(file, topics={"source.target": {"orders": None}})
    result = run("apply", file, "--json", url=url)
    body = json.loads(result.stdout)
    assert (body["dryRun"], body["items"][0]["result"]) == (False, "created")


def test_a_file_of_another_fleet_is_refused(url: str, file: Path) -> None:
    file.write_text("version: 1\nfleet: other\n")
    result = run("apply", file, url=url)
    assert (result.exit_code, "fleet other" in result.stderr) == (1, True)


def test_requests_are_within_the_limits_of_rest() -> None:
    entry = {"targetTopic": "t" * 249, "stopped": "s" * 700}
    topics = {f"{number:05}{'n' * 200}": entry for number in range(1_000)}
    document = {"topics": {"a.b": topics, "c.d": topics}}
    found = list(steps(document, NOTHING, prune=False))
    bodies = [request.body for request in found]
    assert all(len(json.dumps(body)) < 64 * 1024 for body in bodies)
    assert all(len(body["topics"]) <= MAX_TOPICS for body in bodies if body)
    assert max(len(json.dumps(body)) for body in bodies) > MAX_BODY_BYTES // 2
    sent = [
        (request.query["src"], topic)
        for request in found
        if request.body
        for topic in request.body["topics"]
    ]
    assert sent == [(source, topic) for source in "ac" for topic in topics]
