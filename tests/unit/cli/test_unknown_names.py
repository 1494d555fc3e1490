"""Names that the fleet does not have, in commands: refused, or with a note where they may come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import RestFixture


@pytest.fixture
def url(rest: RestFixture) -> Iterator[str]:
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.add_worker("rack-1")
    with serving(rest) as url:
        yield url


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (
            ("limits", "set", "topic", "ordres", "1MB/s"),
            "topic source.target/ordres is not whitelisted; did you mean 'source.target/orders'?",
        ),
        (
            ("limits", "set", "worker", "rack1", "1MB/s"),
            "worker rack1 is not live or known; did you mean 'rack-1'?",
        ),
        (("limits", "clear", "worker", "x"), "worker x is not live or known"),
        (
            ("blacklist", "add", "order"),
            "order is not whitelisted on source.target; did you mean 'orders'?",
        ),
    ],
)
def test_a_name_that_may_come_later_has_a_note(url: str, words: tuple[str, ...], note: str) -> None:
    done = run(*words, url=url)
    assert (done.exit_code, done.stderr) == (0, f"note: {note}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("limits", "set", "topic", "orders", "1MB/s"),
        ("limits", "set", "worker", "rack-1", "1MB/s"),
        ("limits", "set", "route", "source.target", "1MB/s"),
        ("blacklist", "add", "orders"),
    ],
)
def test_a_name_that_is_there_has_none(url: str, words: tuple[str, ...]) -> None:
    done = run(*words, url=url)
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (
            ("topics", "list", "--route", "source.tarket"),
            "no route source.tarket is configured; did you mean 'source.target'?",
        ),
        (("topics", "show", "ordres"), "'ordres' is not whitelisted; did you mean 'orders'?"),
        (("topics", "pause", "ordres"), "not whitelisted on source.target; did you mean 'orders'?"),
        (("topics", "delete", "ordres"), "whitelisted on source.target; did you mean 'orders'?"),
        (("topics", "expand", "ordres", "3"), "on source.target; did you mean 'orders'?"),
        (("positions", "set", "ordres", "earliest"), "did you mean 'orders'?"),
        (("audits", "request", "ordres"), "did you mean 'orders'?"),
        (("failover", "plan", "--topics", "ordres"), "did you mean 'orders'?"),
        (
            ("offsets", "translate", "--topic", "ordres", "--partition", "0", "--offset", "1"),
            "did you mean 'orders'?",
        ),
        (("topics", "list", "--src", "sorce"), "is configured; did you mean 'source'?"),
        (("topics", "list", "--dst", "targt"), "is configured; did you mean 'target'?"),
        (
            ("instances", "show", "rack1"),
            "no worker 'rack1' is live or known; did you mean 'rack-1'?",
        ),
        (("instances", "drain", "rack1"), "did you mean 'rack-1'?"),
        (("instances", "forget", "rack1"), "did you mean 'rack-1'?"),
        (("limits", "set", "route", "west.north", "1MB/s"), "no route west.north is configured"),
        (
            ("routes", "pause", "source.targt"),
            "no route source.targt is configured; did you mean 'source.target'?",
        ),
    ],
)
def test_any_other_is_refused(url: str, words: tuple[str, ...], refusal: str) -> None:
    done = run(*words, url=url)
    assert (done.exit_code, refusal in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("routes", "pause"),
        ("tasks", "show"),
        ("limits", "clear", "route"),
        ("limits", "clear", "worker"),
        ("instances", "drain"),
        ("topics", "pause"),
    ],
)
@pytest.mark.parametrize("name", ["/leading", "a/b", "a//b", "trailing/"])
def test_a_name_with_slashes_is_refused_by_a_controller(
    url: str, words: tuple[str, ...], name: str
) -> None:
    """Werkzeug merges slashes and redirects, to another name."""
    done = run(*words, name, url=url)
    assert done.exit_code == 1
    assert name in done.stderr
    assert f"{name}/pause" not in done.stderr
    assert "no resource" not in done.stderr
    assert "not a uReplicator controller" not in done.stderr
