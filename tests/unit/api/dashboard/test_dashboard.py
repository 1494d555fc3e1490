"""The dashboard's script and labels against the responses that it is drawn from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from ureplicator_common.audits.standing import AuditState
from ureplicator_common.cutovers import CutoverState
from ureplicator_common.model import PartitionState, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.http.models.audits import (
    AuditDetails,
    AuditSummary,
    AuditUnderWay,
    PastAudit,
    ShownFinding,
    VerifiedPartition,
)
from ureplicator_controller.api.http.models.cutovers import (
    CutoverDetails,
    CutoverLateWrite,
    CutoverPlanFields,
    CutoverStep,
    CutoverSummary,
)
from ureplicator_testkit.control.rest_fixture import RestFixture

PATHS = {
    "ready": "/ready",
    "validation": "/validation",
    "instances": "/instances",
    "progress": "/offset",
    "balancing": "/admin/autobalancing_status",
    "freeze": "/admin/freeze",
    "configured": "/routes",
    "verification": "/audits",
}
OF_SCRIPTS = {"length", "values", "replaceChildren", "classList"}


@pytest.fixture
def excluded_topics(rest: RestFixture) -> RestFixture:
    rest.add_worker("w1")
    rest.put_intent("orders", TopicIntent(2, 2, state=TopicState.PAUSED, target_topic="orders"))
    rest.put_intent("quiet", TopicIntent(3, 3, blacklisted=frozenset({1}), target_topic="quiet"))
    rest.put_intent(
        "gone", TopicIntent(1, 1, stopped="source topic was deleted", target_topic="gone")
    )
    rest.place("quiet", {0: "w1", 1: None, 2: None})
    rest.put_states("w1", "quiet", {0: PartitionState.ONLINE})
    return rest


def asset(rest: RestFixture, path: str) -> str:
    response = rest.call("GET", path)
    text = response.text
    response.close()
    return text


def responses(rest: RestFixture) -> Mapping[str, Any]:
    return {name: rest.call("GET", path).get_json() for name, path in PATHS.items()}


def test_the_script_reads_only_fields_of_the_responses(excluded_topics: RestFixture) -> None:
    script = asset(excluded_topics, "/dashboard/dashboard.js")
    shown = responses(excluded_topics)
    known = {
        **shown,
        "excluded": shown["validation"]["excluded"][0],
        "worker": shown["instances"]["workers"]["w1"],
        "held": shown["instances"]["workers"]["w1"]["partitions"][0],
    }
    for name, response in known.items():
        read = set(re.findall(rf"\b{name}\.(\w+)", script)) - OF_SCRIPTS
        assert read, name
        assert read <= response.keys(), name
    for path in PATHS.values():
        assert f'"{path}"' in script
        assert f'href="{path[1:]}"' in asset(excluded_topics, "/")


def test_the_script_of_audits_reads_only_fields_of_the_responses(
    excluded_topics: RestFixture,
) -> None:
    script = asset(excluded_topics, "/dashboard/audits.js")
    fields: Mapping[str, type[BaseModel]] = {
        "audit": AuditSummary,
        "details": AuditDetails,
        "running": AuditUnderWay,
        "last": PastAudit,
        "finding": ShownFinding,
        "range": VerifiedPartition,
    }
    for name, model in fields.items():
        read = set(re.findall(rf"\b{name}\.(\w+)", script)) - OF_SCRIPTS
        known = {info.alias or field for field, info in model.model_fields.items()}
        assert read, name
        assert read <= known, name
    for state in AuditState:
        assert re.search(rf'^  "?{state}"?: {{', script, re.MULTILINE), state


def test_the_scripts_of_cutovers_read_only_fields_of_the_responses(rest: RestFixture) -> None:
    scripts = "".join(
        asset(rest, f"/dashboard/pages/{name}.js") for name in ("steps", "cutovers", "cutover")
    )
    fields: Mapping[str, type[BaseModel]] = {
        "details": CutoverDetails,
        "summary": CutoverSummary,
        "plan": CutoverPlanFields,
        "step": CutoverStep,
        "write": CutoverLateWrite,
    }
    for name, model in fields.items():
        read = set(re.findall(rf"(?<!\.)\b{name}\.(\w+)", scripts)) - OF_SCRIPTS
        assert read, name
        assert read <= model.model_fields.keys() | {"times"}, name
    assert re.findall(r"^  ([A-Z]+): ", scripts, re.MULTILINE) == list(CutoverState)


def test_every_partition_has_a_cell(excluded_topics: RestFixture) -> None:
    """The page draws held, excluded and mismatched partitions, which together are all of them."""
    shown = responses(excluded_topics)
    drawn = {
        (row["topic"], row["partition"])
        for worker in shown["instances"]["workers"].values()
        for row in worker["partitions"]
    }
    drawn |= {(row["topic"], row["partition"]) for row in shown["validation"]["mismatches"]}
    drawn |= {
        (row["topic"], number)
        for row in shown["validation"]["excluded"]
        for number in row["partitions"]
    }
    assert len(drawn) == shown["validation"]["numTopicPartitions"] == 6
    assert {row["topic"] for row in shown["progress"]["topics"]} == {"orders", "quiet", "gone"}


def test_the_legend_explains_excluded_and_stopped_cells(rest: RestFixture) -> None:
    page = asset(rest, "/")
    style = asset(rest, "/dashboard/dashboard.css")
    legend = dict(re.findall(r'class="cell (\w+)">0</span> ([^<\n]+)', page))
    assert legend["excluded"] == "paused or blacklisted"
    assert legend["error"] == "in error or stopped"
    assert all(f".cell.{kind} " in style for kind in legend)
