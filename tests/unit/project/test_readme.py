"""README says what is so: its configuration, its commands, its calls, its links."""

import re
from pathlib import Path

import pytest
from click import Command, Group

from ureplicator_cli.main import cli
from ureplicator_common.config.settings import load_settings
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.docs.readme import BEGIN, END, README, keys, with_table

ROOT = README.parent


@pytest.fixture(scope="module")
def text() -> str:
    return README.read_text()


def test_the_table_of_the_configuration_is_that_of_the_settings(text: str) -> None:
    assert text.count(BEGIN) == text.count(END) == 1
    assert with_table(text) == text, (
        "run: PYTHONPATH=tests/support python -m ureplicator_testkit.docs.readme"
    )


def test_the_example_is_a_good_configuration(text: str, tmp_path: Path) -> None:
    found = re.search(r"<!-- example -->\n```yaml\n(.*?)```", text, re.DOTALL)
    assert found
    config = tmp_path / "config.yaml"
    config.write_text(found[1])
    assert load_settings(config, environ={}).fleet == "production"


def test_keys_that_the_text_names_exist(text: str) -> None:
    sections = {key.split(".")[0] for key in keys()}
    named = set(re.findall(r"`([a-z]+(?:\.[a-z_]+)+)`", text))
    ours = {key for key in named if key.split(".")[0] in sections}
    assert ours
    assert ours - set(keys()) == set()


def test_commands_exist(text: str) -> None:
    lines = re.findall(r"^\$? ?ureplicator ([a-z -]+)", text, re.MULTILINE)
    assert len(lines) > 5
    for line in lines:
        command: Command = cli
        for word in line.split():
            if not isinstance(command, Group) or word.startswith("-"):
                break
            found = command.commands.get(word)
            assert found, f"ureplicator {line}: {word} is no command"
            command = found


def test_calls_exist(text: str) -> None:
    adapter = RestFixture().app.url_map.bind("")
    calls = re.findall(r"`(GET|POST|PUT|DELETE) (/[^` ]*)", text)
    assert len(calls) > 10
    for method, path in calls:
        named = path.partition("?")[0].replace("{partition}", "0")
        adapter.match(re.sub(r"\{\w+\}", "x", named), method=method)


def test_scripts_and_links_exist(text: str) -> None:
    scripts = set(re.findall(r"scripts/\w+", text))
    links = set(re.findall(r"\]\(([^)#]+)\)", text))
    assert scripts
    assert [name for name in sorted(scripts | links) if not (ROOT / name).exists()] == []
