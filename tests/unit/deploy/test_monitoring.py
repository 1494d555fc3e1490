"""Alerts and dashboards ask for metrics and labels that the processes serve; each alert has a runbook."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from ureplicator_common.model import position_group
from ureplicator_testkit.control.rest_fixture import ROUTE
from ureplicator_testkit.deploy.chart import tool
from ureplicator_testkit.docs import metrics

ROOT = Path(__file__).parents[3]
FILES = ROOT / "deploy/helm/ureplicator/files"
ALERT_FILE = FILES / "alerts.yaml"
DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))
RUNBOOKS = ROOT / "docs/runbooks"
GROUP = position_group(fleet="test", route=ROUTE)
ALERTS = 17
METRIC = re.compile(r"\b(ureplicator_\w+)(?:\{([^}]*)\})?")
BY = re.compile(r"\bby \(([^)]*)\)")


def rules() -> list[Mapping[str, Any]]:
    [group] = yaml.safe_load(ALERT_FILE.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[Mapping[str, Any]]:
    return [panel for file in DASHBOARDS for panel in json.loads(file.read_text())["panels"]]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + shown


@pytest.fixture(scope="module")
def served() -> Mapping[str, set[str]]:
    """Name of a sample -> its labels, of every process."""
    labels: dict[str, set[str]] = defaultdict(set)
    for served_by in metrics.PROCESSES.values():
        for metric in served_by():
            for name in _sample_names(metric):
                of_buckets = {"le"} if name.endswith("_bucket") else set()
                labels[name] |= {metrics.FLEET, *metrics.labels(metric)} | of_buckets
    return labels


def _sample_names(metric: Metric) -> Iterator[str]:
    if metric.type == "counter":
        yield metric.name + "_total"
    elif metric.type in ("histogram", "summary"):
        yield from (metric.name + ending for ending in ("_sum", "_count", "_bucket"))
    else:
        yield metric.name


# --- What they ask for


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_is_served(expression: str, served: Mapping[str, set[str]]) -> None:
    grouped = {name.strip() for found in BY.findall(expression) for name in found.split(",")}
    found = METRIC.findall(expression)
    assert found
    for name, matchers in found:
        assert name in served, name
        named = set(re.findall(r"(\w+)\s*[=!]", matchers)) | grouped
        assert named <= served[name], name


def test_every_alert_names_the_fleet_and_no_process() -> None:
    for rule in rules():
        grouped = BY.findall(rule["expr"])
        assert grouped, rule["alert"]
        assert all(found.split(",")[0] == metrics.FLEET for found in grouped), rule["alert"]


def test_every_panel_is_of_the_chosen_fleet() -> None:
    for panel in panels():
        for target in panel["targets"]:
            assert all('fleet="$fleet"' in found for _, found in METRIC.findall(target["expr"]))


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_fleet_is_chosen_among_those_that_are_scraped(
    file: Path, served: Mapping[str, set[str]]
) -> None:
    [_, variable] = json.loads(file.read_text())["templating"]["list"]
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
    assert found
    assert (variable["name"], found[2]) == (metrics.FLEET, metrics.FLEET)
    assert found[1] in served


@pytest.mark.parametrize("expression", expressions())
def test_brackets_are_closed(expression: str) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)


# --- Alerts


def test_alerts_are_few_and_named_once() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) <= ALERTS


def test_every_alert_has_a_runbook_with_its_expression() -> None:
    for rule in rules():
        page = (RUNBOOKS / rule["annotations"]["runbook"]).read_text()
        assert f"`{rule['alert']}`, {rule['labels']['severity']}: `{rule['expr']}`" in page
        assert ("for" not in rule) or f" for {rule['for']}." in page
        assert "\n1. " in page


def test_every_runbook_is_of_an_alert() -> None:
    used = {rule["annotations"]["runbook"] for rule in rules()} | {"README.md"}
    assert {page.name for page in RUNBOOKS.glob("*.md")} == used


def test_every_alert_fires_and_resolves() -> None:
    promtool = tool("promtool")
    for what, file in (
        ("check", ALERT_FILE),
        ("test", ROOT / "deploy/prometheus/alerts-test.yaml"),
    ):
        done = subprocess.run(  # noqa: S603
            [promtool, what, "rules", str(file)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_shown_firing_and_resolving() -> None:
    tests = yaml.safe_load((ROOT / "deploy/prometheus/alerts-test.yaml").read_text())["tests"]
    states = [
        (state["alertname"], bool(state["exp_alerts"]))
        for test in tests
        for state in test["alert_rule_test"]
    ]
    assert states == [(rule["alert"], fires) for rule in rules() for fires in (False, True, False)]


# --- Dashboards


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_are_numbered_titled_and_apart(file: Path) -> None:
    shown = json.loads(file.read_text())["panels"]
    numbers, titles = ({panel[name] for panel in shown} for name in ("id", "title"))
    assert len(numbers) == len(titles) == len(shown)
    cells = [cell for panel in shown for cell in _cells(panel["gridPos"])]
    assert len(set(cells)) == len(cells)
    assert all(0 <= x < 24 for x, _ in cells)


def test_dashboards_have_names_of_their_own() -> None:
    named = [json.loads(file.read_text()) for file in DASHBOARDS]
    assert len({dashboard["uid"] for dashboard in named}) == len(
        {dashboard["title"] for dashboard in named}
    )
    assert len({dashboard["uid"] for dashboard in named}) == len(DASHBOARDS)


def _cells(at: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(at["x"], at["x"] + at["w"]):
        for y in range(at["y"], at["y"] + at["h"]):
            yield x, y
