"""`ureplicator export` and `import` over a live REST server on the twins: through a file, and back."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ureplicator_common.coordination import Delete, with_ancestors
from ureplicator_common.model import Limited, TopicKey, TopicState, WorkerId
from ureplicator_common.znode_contents import KnownWorker, Switches, TopicIntent
from ureplicator_common.znodes.fleet import encode_switches
from ureplicator_common.znodes.topics import encode_blacklisted
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture


def filled(rest: RestFixture) -> None:
    for topic, partitions in (("orders", 4), ("quiet", 1)):
        rest.target.put(topic, partitions)
    orders, quiet = (rest.target.topics()[topic].topic_id for topic in ("orders", "quiet"))
    had_position = frozenset({0, 1, 3})
    intent = TopicIntent(
        4, 3, had_position=had_position, target_topic_id=orders, target_topic="orders"
    )
    rest.put_intent("orders", intent)
    rest.put_intent(
        "quiet",
        TopicIntent(1, 1, state=TopicState.PAUSED, target_topic_id=quiet, target_topic="quiet"),
    )
    rest.put(rest.paths.blacklisted(TopicKey(ROUTE, "spam")), encode_blacklisted("r"))
    data = encode_known_worker(KnownWorker(4, blacklisted=True, draining=True))
    rest.put(rest.paths.worker_known(WorkerId("w3")), data)
    rest.put(rest.paths.settings, encode_switches(Switches(auto_balancing=False)))


@pytest.fixture
def file(rest: RestFixture, url: str, tmp_path: Path) -> Path:
    """An export of a fleet that has everything; the fleet itself is wiped since."""
    filled(rest)
    path = tmp_path / "fleet.yaml"
    assert run("export", path, url=url).exit_code == 0
    wipe(rest)
    return path


def wipe(rest: RestFixture) -> None:
    """Wipe the tree in ZooKeeper."""
    below = sorted(rest.store.subtree(rest.paths.root), reverse=True)
    kept = {parent for path in rest.paths.skeleton for parent in with_ancestors(path)}
    rest.other_client.transact([Delete(path) for path in below if path not in kept])


def test_the_file_is_sorted_commented_yaml(file: Path) -> None:
    text = file.read_text()
    assert yaml.safe_load(text)["topics"]["source.target"]["orders"]["hadPosition"] == "0-1,3"
    assert text.startswith("# Topics and settings of fleet test, as its operators requested them.")
    assert [line for line in text.splitlines() if line and line[0] not in "# "] == [
        "version: 1",
        "fleet: test",
        "switches:",
        "workers:",
        "blacklist:",
        "topics:",
    ]
    assert "      partitions: 4\n      initialPartitions: 3\n" in text


def test_warnings_about_the_target_topic(rest: RestFixture, url: str, file: Path) -> None:
    rest.target.put("orders", 4)
    rest.target.defaults = {"message.timestamp.after.max.ms": "3600000"}
    result = run("import", file, url=url)
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if "orders" in line] == [
        "warning   topics.source.target.orders: target topic orders:"
        " message.timestamp.after.max.ms is 3600000, it refuses records that are further ahead of"
        " its clock (set it to 9223372036854775807)"
    ]


def test_to_standard_output(url: str) -> None:
    result = run("export", url=url)
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["topics"] == {}


def test_a_wiped_fleet_gets_everything_back(rest: RestFixture, url: str, file: Path) -> None:
    text = file.read_text()
    dry = run("import", file, "--dry-run", url=url)
    assert dry.exit_code == 0
    assert dry.stdout.splitlines()[-1] == "1 changed, 4 created (dry run: nothing was written)"
    assert rest.intent("orders") is None
    done = run("import", file, url=url)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:-1] == dry.stdout.splitlines()[:-1]
    assert done.stdout.splitlines()[0] == "changed   switches: autoBalancing: true -> false"
    again = run("import", file, url=url)
    assert again.stdout.splitlines()[-1] == "5 unchanged"
    run("export", file, url=url)
    assert file.read_text() == text


def test_a_refused_item_is_reported_and_the_others_are_imported(
    rest: RestFixture, url: str, file: Path
) -> None:
    rest.source.remove("orders")
    result = run("import", file, url=url)
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "refused   topics.source.target.orders.topic: topic orders does not exist"
    )
    assert result.stdout.splitlines()[-1] == "1 changed, 3 created, 1 refused"
    assert rest.intent("quiet") is not None


def test_what_was_changed_meanwhile_becomes_as_in_the_file(
    rest: RestFixture, url: str, file: Path
) -> None:
    text = file.read_text()
    rest.put_intent("orders", TopicIntent(4, 0, whole=True, restarted=True, target_topic="orders"))
    rest.put(rest.paths.blacklisted(TopicKey(ROUTE, "quiet")), encode_blacklisted("r"))
    done = run("import", file, url=url)
    assert done.exit_code == 0, done.output
    assert "removed from the route's blacklist" in done.stdout
    run("export", file, url=url)
    assert file.read_text() == text


def test_a_topic_that_the_file_blacklists_stays_blacklisted(
    rest: RestFixture, url: str, file: Path
) -> None:
    file.write_text(file.read_text().replace("- spam", "- quiet"))
    assert run("import", file, url=url).exit_code == 0
    assert rest.other_client.get(rest.paths.blacklisted(TopicKey(ROUTE, "quiet"))) is not None


def test_a_refused_field_is_reported_and_the_rest_of_its_item_is_imported(
    rest: RestFixture, url: str, file: Path
) -> None:
    rest.put_intent("quiet", TopicIntent(1, 0, had_position=frozenset({0}), target_topic="quiet"))
    result = run("import", file, url=url)
    assert result.exit_code == 1
    assert result.stderr.startswith("refused   topics.source.target.quiet.initialPartitions: it is")
    assert result.stdout.splitlines()[-1] == "2 changed, 3 created, 1 partly refused"
    intent = rest.intent("quiet")
    assert intent is not None
    assert intent.state is TopicState.PAUSED


def test_a_file_that_cannot_be_written(url: str, tmp_path: Path) -> None:
    result = run("export", tmp_path / "no" / "x.yaml", url=url)
    assert result.exit_code == 1
    assert "No such file or directory (name a file in an existing directory)" in result.stderr
    assert result.stderr.count("\n") == 1


def test_json_output(url: str, file: Path) -> None:
    result = run("import", file, "--json", "--dry-run", url=url)
    report = json.loads(result.stdout)
    assert report["dryRun"] is True
    assert [item["key"] for item in report["items"]] == [
        "switches",
        "workers.w3",
        "blacklist.source.target.spam",
        "topics.source.target.orders",
        "topics.source.target.quiet",
    ]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"version": 2}, "version"),
        ({"version": None}, "version"),
        ({"fleet": 7}, "fleet"),
        ({"fleet": "other"}, "fleet"),
        ({"topic": {}}, "topic"),
        ({"topics": []}, "topics"),
        ({"blacklist": {"source.target": "spam"}}, "blacklist.source.target"),
        ({"blacklist": {"west": []}}, "blacklist.west"),
        ({"topics": {"west": {}}}, "topics.west"),
        ({"topics": {"source.target": ["orders"]}}, "topics.source.target"),
        ({"topics": {"source.target": {"orders": 4}}}, "topics.source.target.orders"),
        ({"workers": {"w1": None}}, "workers.w1"),
    ],
)
def test_an_invalid_file_is_refused_as_a_whole_with_its_key(
    rest: RestFixture, url: str, file: Path, change: dict[str, Any], key: str
) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **change}))
    result = run("import", file, url=url)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{key}: ")
    assert rest.intent("quiet") is None


@pytest.mark.parametrize("text", ["", "[]", "a: b: c", "fleet: test\nfleet: test", "\0"])
def test_a_file_that_is_no_export(url: str, tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    result = run("import", path, url=url)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("command", ["import", "apply"])
def test_a_file_without_a_version_is_said_to_be_none(
    url: str, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("clusters: {}\n")
    result = run(command, path, url=url)
    assert result.exit_code == 1
    assert (
        result.stderr == "version: is missing: files of ureplicator export begin with version: 1\n"
    )


def test_a_field_of_an_item_is_named_by_its_whole_key(url: str, file: Path) -> None:
    file.write_text(file.read_text().replace("state: paused", "state: sleeping"))
    result = run("import", file, url=url)
    assert result.exit_code == 1
    assert "refused   topics.source.target.quiet.state: " in result.stderr


def test_without_a_controller_it_stops(rest: RestFixture, tmp_path: Path) -> None:
    with serving(rest) as gone:
        pass
    path = tmp_path / "fleet.yaml"
    assert run("export", path, url=gone).exit_code == 1
    assert not path.exists()


# --- Round trip


ids = st.sampled_from(("", "12", "0x1F", "no", "-_3qxQ"))
"""Some of them are not text to YAML unless quoted."""


@st.composite
def intents(draw: st.DrawFn) -> TopicIntent:
    partitions = draw(st.integers(1, 4))
    some = st.frozensets(st.integers(0, partitions - 1))
    return TopicIntent(
        partitions=partitions,
        initial_partitions=draw(st.integers(0, partitions)),
        state=draw(st.sampled_from((TopicState.ACTIVE, TopicState.PAUSED))),
        blacklisted=draw(some),
        had_position=draw(some),
        target_topic=draw(st.sampled_from(("orders", "copy.of-orders", "_1"))),
        whole=draw(st.booleans()),
        source_topic_id=draw(ids),
        target_topic_id=draw(ids.filter(bool)),  # one that is not known becomes known
        restarted=draw(st.booleans()),
        stopped=draw(st.sampled_from(("", "source topic: recreated # 'since'"))),
    )


workers = st.builds(KnownWorker, st.integers(0, 9), st.booleans(), st.booleans())
switches = st.builds(
    Switches,
    st.booleans(),
    st.booleans(),
    st.sampled_from([frozenset(), frozenset({ROUTE})]),
    st.sampled_from([{}, {Limited.route(ROUTE): 10_000, Limited.worker(WorkerId("w")): 10**12}]),
    route_settings=st.sampled_from([{}, {ROUTE: '{"naming":{"prefix":"no"},"on_gap":"latest"}'}]),
)


@settings(max_examples=12, deadline=None)
@given(intents(), workers, switches)
def test_import_restores_what_export_wrote(
    intent: TopicIntent, worker: KnownWorker, switched: Switches
) -> None:
    with ExitStack() as opened:
        first, second = (opened.enter_context(closing(RestFixture())) for _ in range(2))
        first.put_intent("orders", intent)
        first.put(first.paths.worker_known(WorkerId("w1")), encode_known_worker(worker))
        first.put(first.paths.settings, encode_switches(switched))
        folder = opened.enter_context(TemporaryDirectory())
        one, two = (opened.enter_context(serving(rest)) for rest in (first, second))
        before, after = Path(folder, "before"), Path(folder, "after")
        run("export", before, url=one)
        assert run("import", before, url=two).exit_code == 0
        run("export", after, url=two)
        assert after.read_text() == before.read_text()
