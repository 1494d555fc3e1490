"""`ureplicator top` and `ureplicator status --watch`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from ureplicator_cli.rest_client import RestClient, RestFailure
from ureplicator_cli.terminal.live import Shown, pictures, read
from ureplicator_cli.terminal.picture import Picture, plain_lines, rate, rendered
from ureplicator_common.model import PartitionState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import RestFixture

ESCAPE = "down \x1b[2J\x9b31m"


@pytest.fixture
def failing(rest: RestFixture) -> RestFixture:
    """A partition in error, with a reason that would clear the screen."""
    rest.put_leader("c1")
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
    rest.place("orders", {0: "w1"})
    rest.add_worker("w1")
    rest.put_states("w1", "orders", {0: PartitionState.ERROR}, reason=ESCAPE)
    return rest


def on_terminal(shown: Shown) -> str:
    """Characters that a terminal gets."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    picture = rendered(shown.picture, age_s=shown.age_s, failure=shown.failure, whole=True)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("words", [("top", "--interval", "0.1"), ("status", "--watch", "0.1")])
def test_plain_lines_in_a_pipe(failing: RestFixture, url: str, words: tuple[str, ...]) -> None:
    result = run(*words, "--count", "2", url=url)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "\x1b" not in result.stdout
    assert "\x9b" not in result.stdout
    assert (
        sum("leader c1, 1 of 1 workers, 0 of 1 online, 1 in error" in line for line in lines) == 2
    )
    assert sum("mismatches: partition=source.target/orders/0" in line for line in lines) == 2
    assert any(r"reason=down \x1b[2J\x9b31m" in line for line in lines)
    assert any("workers: worker=w1 slots=2" in line for line in lines)


def test_no_escape_sequence_of_a_reason_reaches_a_terminal(failing: RestFixture, url: str) -> None:
    text = on_terminal(Shown(read(RestClient(url)), 0.0, ""))
    assert "orders/0" in text
    assert r"down \x1b[2J\x9b31m" in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text


def test_last_picture_stays_with_its_age(failing: RestFixture, url: str) -> None:
    picture = read(RestClient(url))
    answers: Iterator[Picture | RestFailure] = iter(
        [RestFailure("none yet"), picture, RestFailure("cannot reach \x1b"), picture]
    )
    times = iter([0.0, 1.0, 10.0, 10.0, 40.0, 70.0, 70.0])

    def answer() -> Picture:
        found = next(answers)
        if isinstance(found, RestFailure):
            raise found
        return found

    shown = pictures(answer, now_s=lambda: next(times))
    first, second, third, fourth = (next(shown) for _ in range(4))
    assert first == Shown(None, 1.0, "none yet")
    assert second == Shown(picture, 0.0, "")
    assert third == Shown(picture, 30.0, "cannot reach \x1b")
    assert fourth == Shown(picture, 0.0, "")
    assert "30 s old, cannot reach \\x1b: leader c1" in on_terminal(third)
    assert "mismatches" in on_terminal(third)
    assert "no picture yet: none yet" in on_terminal(first)


def test_away_from_the_beginning() -> None:
    result = run("top", "--count", "1", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "no picture yet: cannot reach a controller" in result.stdout


def test_stale_lines_are_not_repeated(failing: RestFixture, url: str) -> None:
    picture = read(RestClient(url))
    [line] = plain_lines(picture, time="t", age_s=90.0, failure="gone")
    assert line.startswith("t 90 s old, gone: leader c1")
    noted = replace(picture, notes=("mass loss",))
    assert "t condition mass loss" in list(plain_lines(noted, time="t", age_s=0.0, failure=""))


def test_watch_has_no_json(url: str) -> None:
    assert run("status", "--watch", "--json", url=url).exit_code == 2


@pytest.mark.parametrize(
    ("bytes_per_s", "text"), [(None, ""), (12, "12 B/s"), (2_500_000, "2.5 MB/s")]
)
def test_rates(bytes_per_s: float | None, text: str) -> None:
    assert rate(bytes_per_s) == text
