"""Consumer groups with any name that Kafka takes, by REST and by commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from ureplicator_common.model import RouteSettings
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.memory_copied import BASE
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of

FIRST = ("orders", 0)
NAMES = (
    "/leading",
    "//leading/twice",
    "a/b",
    "a//b",
    "trailing/",
    "/",
    "100%",
    "%2Fleading",
    "a,b",
    " padded ",
    "two\nlines\n",
    ".",
    "..",
    "../overview",
    "größe/日本",
    "a?b#c&d=e+f;g",
    "l" * 1_000,
    "日" * 300,
    "",
)


@pytest.fixture
def copied(rest: RestFixture) -> RestFixture:
    rest.publish(RouteSettings())
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    for name in NAMES:
        rest.groups.add(name, {FIRST: 30})
    return rest


@pytest.fixture
def url(copied: RestFixture) -> Iterator[str]:
    with serving(copied) as url:
        yield url


@pytest.mark.parametrize("name", NAMES)
def test_rest_takes_it(copied: RestFixture, name: str) -> None:
    shown = copied.client.get(f"/group?name={quote(name, safe='')}")
    assert (shown.status_code, shown.get_json()["group"]) == (200, name)
    planned = copied.client.post("/failover?dry_run=true", json={"groups": [name]})
    assert [group["group"] for group in planned.get_json()["groups"]] == [name]
    if name:
        shown = copied.client.get(f"/groups/{quote(name, safe='')}")
        assert (shown.status_code, shown.get_json()["group"]) == (200, name)


@pytest.mark.parametrize("name", NAMES)
def test_commands_take_it(url: str, name: str) -> None:
    shown = run("groups", "show", name, "--json", url=url)
    assert json.loads(shown.stdout)["group"] == name
    translated = run("offsets", "translate", "--group", name, "--json", url=url)
    assert json.loads(translated.stdout)["group"] == name
    planned = run("failover", "plan", "--group", name, "--json", url=url)
    assert [group["group"] for group in json.loads(planned.stdout)["groups"]] == [name]


def test_several_groups_fail_over_at_once(copied: RestFixture, url: str) -> None:
    words = ("--group", "a,b", "--group", "/leading", "--groups", "100%, a/b")
    applied = run("failover", "apply", *words, url=url)
    assert applied.exit_code == 0, applied.stderr
    assert {commit[0] for commit in copied.groups_there.commits} == {
        "a,b",
        "/leading",
        "100%",
        "a/b",
    }
    assert copied.groups_there.offset("a,b", FIRST) == BASE + 30


@pytest.mark.parametrize("name", ["/orders", "orders/", "//x"])
def test_a_name_that_no_topic_has_is_not_redirected(rest: RestFixture, url: str, name: str) -> None:
    problem_of(rest.client.get(f"/topics/{quote(name, safe='')}"), 404)
    refused = run("topics", "show", name, url=url)
    assert (refused.exit_code, f"{name!r} is not whitelisted" in refused.stderr) == (1, True)


@pytest.mark.parametrize("words", [("topics", "pause"), ("instances", "drain")])
@pytest.mark.parametrize("name", [".", "..", ""])
def test_what_cannot_be_part_of_a_path_is_refused(
    url: str, words: tuple[str, str], name: str
) -> None:
    refused = run(*words, name, url=url)
    assert (refused.exit_code, refused.stderr) == (1, f"{name!r} is not a name\n")


def test_names_that_look_alike_are_told_apart(url: str) -> None:
    """A name with blanks at its ends, without a character, or with one that is not seen stands in quotes."""
    listed = run("groups", "list", url=url)
    shown = [line.split("│")[1].strip() for line in listed.stdout.splitlines() if "│" in line]
    assert {"''", "' padded '", r"'two\nlines\n'", "a,b", "größe/日本"} <= set(shown)
    assert run("groups", "show", "", url=url).stdout.startswith("'' on source.target: ")
