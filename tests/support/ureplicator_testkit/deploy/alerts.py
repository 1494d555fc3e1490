"""The alerts that fire for metrics as processes serve them, judged by promtool.

    calm 10 min --> state 90 min, `during` while it lasts --> calm 90 min

promtool has the durations of the rules pass, so what is scraped once stands for the whole time.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from ureplicator_testkit.deploy.chart import ROOT, tool

ALERT_FILE = ROOT / "deploy/helm/ureplicator/files/alerts.yaml"
PREFIX = "UReplicator"
CALM_MIN, STATE_MIN = 10, 90
FIRING_MIN = CALM_MIN + 45
"""Longer than any `for`; alerts on `increase(...[1h])` fire for an hour."""
EVALUATED_EVERY = "5m"
"""Of the rules: an evaluation of each minute takes four times as long, and finds the same."""
Series = Mapping[str, float]
_METRIC = re.compile(r"\bureplicator_\w+")


def series(instance: str, text: str) -> Iterator[tuple[str, float]]:
    """Series with the address that Prometheus adds, and their values."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**sample.labels, "instance": instance}
            shown = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
            yield f"{sample.name}{{{shown}}}", sample.value


@dataclass(frozen=True, slots=True)
class Course:
    """Series that are scraped before, during and after a state."""

    calm: Series
    during: Series
    after: Series

    def values(self, names: Collection[str]) -> list[dict[str, str]]:
        """Values of the metrics with these names, as promtool takes them."""
        spans = ((self.calm, CALM_MIN), (self.during, STATE_MIN), (self.after, STATE_MIN))
        return [
            {
                "series": name,
                "values": " ".join(
                    f"{found[name]:.6f}x{minutes - 1}" if name in found else f"_x{minutes}"
                    for found, minutes in spans
                ),
            }
            for name in sorted({*self.calm, *self.during, *self.after})
            if name.partition("{")[0] in names
        ]


def judged(
    course: Course, alerts: Iterable[str], folder: Path, *, fleet: str, rules: Path = ALERT_FILE
) -> str:
    """Faults that promtool finds: exactly these alerts, without their prefix, are to fire in the state
    for this fleet, and none before and after it."""
    checks = [
        (CALM_MIN - 1, []),
        (FIRING_MIN, sorted(alerts)),
        (CALM_MIN + 2 * STATE_MIN - 1, []),
    ]
    test = {
        "interval": "1m",
        "input_series": course.values(_METRIC.findall(rules.read_text())),
        "promql_expr_test": [
            {
                "expr": 'group by (alertname, fleet) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [
                    {"labels": f'{{alertname="{PREFIX}{alert}",fleet="{fleet}"}}', "value": 1}
                    for alert in expected
                ],
            }
            for minute, expected in checks
        ],
    }
    file = folder / "test.yaml"
    tests = {"rule_files": [str(rules)], "evaluation_interval": EVALUATED_EVERY, "tests": [test]}
    file.write_text(json.dumps(tests))  # YAML, too, and written in a hundredth of its time
    done = subprocess.run(  # noqa: S603
        [tool("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def rule_names() -> set[str]:
    """Names of all alerts, without their prefix."""
    [group] = yaml.safe_load(ALERT_FILE.read_text())["groups"]
    return {rule["alert"].removeprefix(PREFIX) for rule in group["rules"]}
