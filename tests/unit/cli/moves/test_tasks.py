"""`ureplicator tasks`, and a rebalance by the plan that was shown."""

from __future__ import annotations

import json

from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.fleet import encode_switches
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import RestFixture


def test_a_rebalance_is_followed_from_its_plan_to_its_end(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    rest.put_leader()
    rest.add_worker("w1")
    offered = run("rebalance", "--dry-run", url=url).stdout.splitlines()[-1]
    assert offered.startswith("apply exactly these with ureplicator rebalance --plan ")
    plan = offered.rpartition(" ")[2]
    requested = json.loads(run("rebalance", "--plan", plan, "--json", url=url).stdout)
    task = requested["request"]
    assert task in run("tasks", url=url).stdout
    assert run("tasks", "show", task, url=url).stdout.startswith("rebalance: waiting\n")
    late = run("tasks", "wait", task, "--timeout", "0", url=url)
    assert (late.exit_code, late.stdout.splitlines()[0]) == (1, "rebalance: waiting")
    assert run("tasks", "cancel", task, url=url).stdout == f"{task}: cancelled\n"
    assert run("tasks", "wait", task, url=url).exit_code == 1


def test_waiting_ends_with_the_task(rest: RestFixture, url: str) -> None:
    done = Switches(rebalance_requested="r1", rebalance_done="r1")
    rest.put(rest.paths.settings, encode_switches(done))
    waited = run("tasks", "wait", "r1", url=url)
    assert (waited.exit_code, waited.stdout.splitlines()[0]) == (0, "rebalance: done")
    assert json.loads(run("tasks", "show", "r1", "--json", url=url).stdout)["state"] == "done"
    assert json.loads(run("tasks", "--json", url=url).stdout)["tasks"]
    missing = run("tasks", "show", "r2", url=url)
    assert (missing.exit_code, "no task r2" in missing.stderr) == (1, True)


def test_an_outdated_plan_is_refused(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    rest.put_leader()
    rest.add_worker("w1")
    refused = run("rebalance", "--plan", "0" * 16, url=url)
    assert refused.exit_code == 1
    assert "is not due any more" in refused.stderr
