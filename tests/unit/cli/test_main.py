"""The command against a live REST server on the twins: output, and above all exit codes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from ureplicator_cli.main import cli
from ureplicator_cli.output import duration
from ureplicator_common.kafka import BatchTime, Lifetime
from ureplicator_common.model import (
    EventKind,
    Partition,
    PartitionState,
    PastEvent,
    WorkerId,
    position_group,
)
from ureplicator_common.znodes import encode_history
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

CONFIG = """
fleet: local
zookeeper: {hosts: "z:1"}
clusters: {a: {bootstrap.servers: "a:1"}, b: {bootstrap.servers: "b:1"}}
routes: [{source: a, target: b}]
"""


@pytest.fixture
def rest() -> RestFixture:
    return RestFixture()


@pytest.fixture
def url(rest: RestFixture) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, rest.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(CONFIG)
    return path


def run(*words: str, url: str = "") -> Result:
    return CliRunner().invoke(cli, words, env={"UREPLICATOR_URL": url} if url else {})


# --- check-config


def test_a_valid_configuration(config: Path) -> None:
    result = run("check-config", str(config))
    assert result.exit_code == 0
    assert "valid (fleet local, routes a.b)" in result.stdout


def test_an_invalid_configuration_reports_every_fault(config: Path) -> None:
    result = run("check-config", str(config), "--set", "worker.slots=0", "--set", "x.y=1")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["worker.slots", "x"]


@pytest.mark.parametrize("role", ["check-config", "controller", "worker"])
def test_a_missing_configuration_is_one_line(tmp_path: Path, role: str) -> None:
    result = run(role, str(tmp_path / "no.yaml"))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["check-config"],
        ["nonsense"],
        ["topics", "nonsense"],
        ["topics", "add"],
        ["topics", "expand", "orders"],
        ["topics", "expand", "orders", "many"],
        ["topics", "--nonsense"],
        ["instances", "--nonsense"],
        ["instances", "drain"],
    ],
)
def test_wrong_usage(words: list[str]) -> None:
    assert run(*words).exit_code == 2


@pytest.mark.parametrize("name", ["", "a/b", "..", "@leader", "x" * 101, "ü"])
@pytest.mark.parametrize("role", ["controller", "worker"])
def test_an_id_that_is_no_name_of_a_node(config: Path, role: str, name: str) -> None:
    result = run(role, str(config), "--id", name)
    assert result.exit_code == 2
    assert "--id" in result.stderr


@pytest.mark.parametrize(
    "words", [[], ["-h"], ["topics", "-h"], ["instances", "-h"], ["worker", "-h"], ["--version"]]
)
def test_help(words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code in (0, 2)  # click exits with 2 for the bare command
    assert result.output


# --- topics


def test_a_topics_life(url: str) -> None:
    added = run("topics", "add", "orders", "--partitions", "2", url=url)
    assert (added.exit_code, added.stderr) == (0, "")
    assert "2 partitions" in added.stdout
    assert "4 partitions" in run("topics", "expand", "orders", "4", url=url).stdout
    assert run("topics", url=url).stdout == "orders\n"
    assert run("topics", "list", url=url).stdout == "orders\n"
    assert "no longer" in run("topics", "delete", "orders", url=url).stdout


def test_a_refusal_is_one_line_and_names_the_hint(url: str) -> None:
    run("topics", "add", "orders", url=url)
    for words in (["add", "orders"], ["add", "nowhere"], ["expand", "orders", "9"]):
        result = run("topics", *words, url=url)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert "(" in result.stderr


def test_names_that_need_quoting(url: str) -> None:
    result = run("topics", "show", "a/b?c#d %", url=url)
    assert result.exit_code == 1
    assert "'a/b?c#d %' is not whitelisted" in result.stderr


def test_showing_a_topic(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    rest.live("w1")
    rest.place("orders", {0: "w1", 1: "w1"})
    rest.say("w1", "orders", {0: PartitionState.ONLINE, 1: PartitionState.ERROR}, reason="[big]")
    table = run("topics", "show", "orders", url=url).stdout
    assert "w1 ONLINE" in table
    assert "[big]" in table
    assert "not placed yet" in table


def test_showing_how_far_behind_a_topic_is(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    group = position_group(fleet="test", route=ROUTE)
    logs = rest.logs["source"]
    for number in range(3):
        logs.hold("orders", number, 0, 100)
    for number, offset in ((0, 40), (1, 100)):
        rest.positions.put(group, "orders", number, offset)
    logs.logs["orders", 0].times = [BatchTime(0, 99, rest.clock.wall_ms() - 600_000)]
    logs.lives["orders"] = Lifetime(retention_ms=1_800_000)
    rows = [
        [cell.strip() for cell in line.strip("│┃").split("│")]
        for line in run("topics", "show", "orders", url=url).stdout.splitlines()
        if line.startswith("│")
    ]
    assert [row[3:6] for row in rows] == [
        ["40", "60", "10 min"],
        ["100", "0", "0 s"],
        ["", "", ""],
        ["", "", ""],
    ]
    whys = ("may delete it in 20 min", "", "never committed", "no leader")
    assert all(why in row[6] for row, why in zip(rows, whys, strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.2, "0 s"), (119.4, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_json_output(url: str) -> None:
    assert json.loads(run("topics", "add", "orders", "--json", url=url).stdout)["partitions"] == 4
    assert json.loads(run("topics", "list", "--json", url=url).stdout) == {"topics": ["orders"]}
    for words in (["topics", "show", "orders"], ["instances"], ["status"]):
        assert json.loads(run(*words, "--json", url=url).stdout)


def test_pausing_and_resuming(url: str) -> None:
    run("topics", "add", "orders", url=url)
    assert (
        run("topics", "pause", "orders", url=url).stdout == "orders: is paused on source.target\n"
    )
    assert "is active" in run("topics", "resume", "orders", url=url).stdout
    assert run("topics", "pause", "quiet", url=url).exit_code == 1


# --- instances, status


def test_instances(rest: RestFixture, url: str) -> None:
    rest.live("w1")
    run("topics", "add", "orders", url=url)
    rest.place("orders", {0: "w1"})
    rest.say("w1", "orders", {0: PartitionState.ONLINE})
    assert "h:7" in run("instances", url=url).stdout
    assert "orders" in run("instances", "w1", url=url).stdout
    assert run("instances", "w9", url=url).exit_code == 1


def test_draining_and_restoring(rest: RestFixture, url: str) -> None:
    rest.live("w1")
    assert "draining" in run("instances", "drain", "w1", url=url).stdout
    shown = json.loads(run("instances", "w1", "--json", url=url).stdout)
    assert shown["workers"]["w1"]["draining"] is True
    assert "restored" in run("instances", "restore", "w1", url=url).stdout
    assert run("instances", "drain", "w9", url=url).exit_code == 1
    rest.live("drain")
    shown = json.loads(run("instances", "show", "drain", "--json", url=url).stdout)
    assert list(shown["workers"]) == ["drain"], "a worker may be called like a command"


def test_status(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    rest.lead("c2")
    result = run("status", url=url)
    assert result.exit_code == 0
    assert "leader      c2" in result.stdout
    assert "4: 0 online, 4 offline, 0 in error" in result.stdout
    assert "not placed yet" in result.stdout


def test_status_without_zookeeper(rest: RestFixture, url: str) -> None:
    with rest.zookeeper_away():
        result = run("status", url=url)
    assert result.exit_code == 1
    assert "ZooKeeper is away" in result.stderr


# --- blacklist, balance, freeze, rebalance, history


def test_the_blacklist(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    assert "no longer copied" in run("blacklist", "add", "orders/3", url=url).stdout
    assert "orders/3" in run("blacklist", url=url).stdout
    listed = json.loads(run("blacklist", "list", "--json", url=url).stdout)["blacklist"]
    assert [(each["topic"], each["partition"]) for each in listed] == [("orders", 3)]
    for what in ("orders/3", "orders/9", "orders/x", "nowhere/0", "a b"):
        refused = run("blacklist", "add", what, url=url)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.count("\n") == 1
    assert run("blacklist", "remove", "orders/3", url=url).exit_code == 0
    assert run("blacklist", "add", "quiet", url=url).exit_code == 0
    assert "quiet" in run("blacklist", url=url).stdout
    assert json.loads(run("blacklist", "--json", url=url).stdout)["blacklist"] == []


def test_balancing_and_freezing(url: str) -> None:
    assert run("balance", "off", url=url).stdout == "balancing is off\n"
    assert run("freeze", url=url).stdout == "the fleet is frozen\n"
    shown = run("balance", "status", url=url).stdout
    assert "balancing is off" in shown
    assert "frozen" in shown
    shown_json = json.loads(run("balance", "status", "--json", url=url).stdout)
    assert shown_json == {"auto_balancing": False, "frozen": True}
    assert run("unfreeze", url=url).exit_code == 0
    assert run("balance", "on", url=url).stdout == "balancing is on\n"


def test_rebalancing(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    refused = run("rebalance", "--dry-run", url=url)
    assert (refused.exit_code, refused.stderr) == (
        1,
        "nobody leads: nothing would be done (start a controller)\n",
    )
    rest.lead()
    rest.live("w1")
    assert "orders/0" in run("rebalance", "--dry-run", url=url).stdout
    assert "request" in run("rebalance", url=url).stdout
    assert json.loads(run("rebalance", "--json", url=url).stdout)["rebalance"] == "asked"


def test_history(rest: RestFixture, url: str) -> None:
    moved = PastEvent(
        0,
        EventKind.MOVE,
        "w1 is gone",
        1_000,
        partition=Partition(ROUTE, "orders", 3),
        source=WorkerId("w1"),
        took_ms=1_500,
    )
    left = PastEvent(1, EventKind.WORKER, "drained", 2_000, worker=WorkerId("w1"))
    rest.put(rest.paths.history_block(0), encode_history([moved, left]))
    shown = run("history", url=url).stdout
    assert "orders/3" in shown
    assert "1.5 s" in shown
    assert "drained" in shown
    only = run("history", "--topic", "orders", "--limit", "5", "--json", url=url)
    assert [each["number"] for each in json.loads(only.stdout)["history"]] == [0]
    assert run("history", "--limit", "0", url=url).exit_code == 2


def test_positions_are_deleted_only_on_request(rest: RestFixture, url: str) -> None:
    for flags, forgotten in (([], False), (["--forget-positions"], True)):
        run("topics", "add", "orders", url=url)
        assert run("topics", "delete", "orders", *flags, url=url).exit_code == 0
        intent = rest.intent("orders")
        assert intent is not None
        assert intent.forget_positions == forgotten
        rest.remove("orders")


# --- No controller


def test_no_controller_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    result = run("topics", "--url", f"http://127.0.0.1:{port}")
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"cannot reach a controller at http://127.0.0.1:{port}: Connection refused\n"
    )


@pytest.mark.parametrize("url", ["a b", "http://", "ftp://127.0.0.1"])
def test_a_wrong_url(url: str) -> None:
    result = run("topics", "list", "--url", url)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


@Request.application
def another_server(request: Request) -> Response:
    return Response("hi")


def test_another_server_listens() -> None:
    server = make_server("127.0.0.1", 0, another_server)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    result = run("status", "--url", f"http://127.0.0.1:{server.server_port}")
    thread.join()
    server.server_close()
    assert result.exit_code == 1
    assert "not a uReplicator controller" in result.stderr


def test_no_role_is_imported_before_it_runs() -> None:
    script = (
        "import sys, ureplicator_cli.main;"
        "print([name for name in sys.modules if name.split('.')[0] in"
        " ('pyspark', 'flask', 'kazoo', 'confluent_kafka', 'ureplicator_controller',"
        " 'ureplicator_worker')])"
    )
    command = [sys.executable, "-c", script]
    process = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert process.stdout == "[]\n"
