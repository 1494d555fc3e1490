"""README and docs are true: links, commands, calls, settings, metrics, configuration samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ureplicator_cli.commands import cli
from ureplicator_common._version import __version__
from ureplicator_common.config.settings import load_settings
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.docs import chart_values, configuration, metrics, samples
from ureplicator_testkit.docs.pages import README, ROOT, anchor, pages
from ureplicator_testkit.docs.samples import blocks, inline_code

PRODUCT = ("cli", "common", "controller", "worker")
SOURCES = (*PRODUCT, "tests", "scripts")
CALL = re.compile(r"(GET|POST|PUT|DELETE) (/\S*)")
MODULE = re.compile(
    r"(?<![\w./{}*-])\w+(?:/\w+)+\.py\b|(?<![\w./\x22-])ureplicator_\w+(?:\.(?!py\b)[a-z]\w+)+\b"
)


@pytest.fixture(scope="module")
def rest() -> Iterator[RestFixture]:
    fixture = RestFixture()
    yield fixture
    fixture.close()


def of_today() -> list[tuple[str, str]]:
    """Inline code of the pages that describe this version, not how it came to be."""
    return [
        (page, code)
        for page, code in inline_code()
        if page != "CHANGELOG.md" and not page.startswith("docs/adr/0")
    ]


# --- Samples


def test_every_yaml_sample_is_a_valid_configuration(tmp_path: Path) -> None:
    found = [block for block in blocks() if block.language == "yaml"]
    assert len(found) >= 3
    for block in found:
        config = tmp_path / "config.yaml"
        config.write_text(block.text)
        assert load_settings(config, environ={}).fleet, block.page


def test_every_sample_response_names_its_call() -> None:
    unlabelled = [
        f"{block.page}: {block.text[:60]}"
        for block in blocks()
        if "curl " in block.text and "\n{" in block.text and not block.call
    ]
    assert unlabelled == []


# --- Commands, calls, settings, metrics


def test_commands_parse() -> None:
    lines = [
        (block.page, line)
        for block in blocks()
        for line in block.commands()
        if line.startswith("ureplicator ")
    ]
    assert len(lines) > 30
    for page, line in lines:
        try:
            parse(samples.words_of(line)[1:])
        except click.UsageError as error:
            raise AssertionError(f"{page}: {line}: {error.message}") from error


def test_commands_in_the_text_exist() -> None:
    lines = [(page, code) for page, code in of_today() if code.startswith("ureplicator ")]
    assert len(lines) > 10
    for page, line in lines:
        try:
            parse(samples.words_of(line)[1:])
        except click.MissingParameter:
            continue
        except click.UsageError as error:
            raise AssertionError(f"{page}: {line}: {error.message}") from error


def parse(words: list[str]) -> None:
    """Every word of a command line, as the command itself would. Raises UsageError."""
    command: click.Command = cli
    context: click.Context | None = None
    name = "ureplicator"
    while isinstance(command, click.Group):
        context = command.make_context(name, list(words), parent=context)
        found, sub, words = command.resolve_command(context, _rest_of(context))
        assert sub is not None
        command, name = sub, found or name
    command.make_context(name, list(words), parent=context)


def _rest_of(context: click.Context) -> list[str]:
    return [*context._protected_args, *context.args]


def test_calls_exist(rest: RestFixture) -> None:
    adapter = rest.app.url_map.bind("")
    calls = [
        (page, *found.groups())
        for page, code in inline_code()
        if (found := CALL.fullmatch(code.partition(" `")[0]))
    ]
    calls += [
        (block.page, *_curl(line))
        for block in blocks()
        for line in block.commands()
        if "curl " in line
    ]
    assert len(calls) > 50
    for page, method, path in calls:
        named = re.sub(r"\{partition\}", "0", path.partition("?")[0])
        try:
            adapter.match(re.sub(r"\{\w+\}", "x", named), method=method)
        except Exception as error:
            raise AssertionError(f"{page}: {method} {path}: {error}") from error


def _curl(line: str) -> tuple[str, str]:
    words = samples.words_of(line.partition(" | ")[0])
    url = next(word for word in words if word.startswith("localhost:"))
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    return method, "/" + url.partition("/")[2]


def test_settings_exist() -> None:
    known = configuration.keys()
    sections = {key.split(".")[0] for key in known}
    named = {
        (page, code)
        for page, code in inline_code()
        if re.fullmatch(r"[a-z\[\]]+(\.[a-z_]+)+", code) and code.split(".")[0] in sections
    }
    of_chart = {("docs/kubernetes.md", name) for name in chart_values.names()}
    unknown = {
        (page, code)
        for page, code in named - of_chart
        if not any(key == code or key.startswith(f"{code}.") for key in known)
    }
    assert len(named) > 10
    assert unknown == set()


def test_metrics_exist() -> None:
    named = {
        (page, name)
        for page, code in inline_code()
        for name in re.findall(r"\bureplicator_\w+(?![\w./])", code)
    }
    known = {
        metrics.full_name(metric) for served in metrics.PROCESSES.values() for metric in served()
    }
    assert len(named) > 30
    assert {(page, name) for page, name in named if name not in known} == set()


def test_every_labelled_metric_of_the_table_has_its_labels() -> None:
    """A family that REST serves without a sample would stand in the table without labels."""
    plain = {"zookeeper_connected", "leader_present", "controllers", "live_workers", "auditors"}
    plain |= {"unreadable_nodes", "lag_age_seconds"}
    found = {
        metrics.full_name(family) for family in metrics.of_rest() if not metrics.labels(family)
    }
    assert found == {f"ureplicator_{name}" for name in plain}


# --- Links and files


def test_links_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {anchor(title) for title in titles}


def test_files_that_the_text_names_exist() -> None:
    begin = (*(f"{name}/" for name in (*SOURCES, "docs", "typings")), ".ci/", ".github/")
    named = {
        (page, code.split()[0].partition("::")[0])
        for page, code in of_today()
        if code.startswith(begin)
    }
    named |= {
        (block.page, name)
        for block in blocks()
        for name in re.findall(r"\bscripts/\w+", block.text)
    }
    assert len(named) > 20
    assert [pair for pair in sorted(named) if not (ROOT / pair[1]).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) < 150


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__


def test_sources_cite_only_pages_of_the_repository() -> None:
    cited = {
        (path.relative_to(ROOT), name)
        for path in _sources(*SOURCES)
        for name in re.findall(r"\bDESIGN\b|[\w./-]+\.md\b", path.read_text())
        if path != Path(__file__)
    }
    known = {str(page.relative_to(ROOT)) for page in pages()} | {page.name for page in pages()}
    assert [pair for pair in sorted(cited) if pair[1] not in known] == []


def test_modules_that_texts_name_exist() -> None:
    """A path such as `copier/task.py` or a name such as `ureplicator_common.model`, in pages and sources."""
    texts = (*pages(), *_sources(*SOURCES))
    named = {
        name: text.relative_to(ROOT) for text in texts for name in MODULE.findall(text.read_text())
    }
    assert len(named) > 100
    paths = [f"/{path.relative_to(ROOT)}" for path in _sources(*SOURCES, "deploy")]
    known = [path.removesuffix("/__init__.py").removesuffix(".py") for path in paths]
    files = [module for module in known if f"{module}.py" in paths]
    assert [module for module in named.items() if not _exists(module[0], known, files)] == []


def _exists(name: str, known: list[str], files: list[str]) -> bool:
    """`name` is a module or a package, or something in a module."""
    path = "/" + name.removesuffix(".py").replace(".", "/")
    return any(module.endswith(path) for module in known) or any(
        module.endswith(path.rpartition("/")[0]) for module in files if not name.endswith(".py")
    )


def _sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))
