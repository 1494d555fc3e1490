"""A target is checked before exactly once without transactions: what is refused, and what only said."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable, TopicRefused
from ureplicator_common.kafka.client import Broker, ClusterView
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.producer_memory import (
    IDLE,
    PRODUCER,
    PRODUCER_KEPT_S,
    TRANSACTIONAL_ID,
)
from ureplicator_testkit.kafka.coordinator import Coordinator
from ureplicator_worker.copier.ownership import target_check
from ureplicator_worker.copier.ownership.target_check import (
    PASSED_S,
    SOON_S,
    CheckedTarget,
    KafkaTargetCheck,
)

DEFAULTS = {PRODUCER: "86400000", TRANSACTIONAL_ID: "604800000", IDLE: "600000"}


class Trials:
    """Outcomes of trials, in turn; then they pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outcomes: list[str | Exception] = []
        self.ids: list[str] = []
        monkeypatch.setattr(target_check, "probe_sequences", self._probe)

    def _probe(self, client: Any, *, topic: str, transactional_id: str, time_ms: int) -> str:
        self.ids.append(transactional_id)
        assert (topic, time_ms) == ("probes", 2_000)
        outcome = self.outcomes.pop(0) if self.outcomes else ""
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    return Trials(monkeypatch)


def target(**scripts: list[Any]) -> Coordinator:
    client = Coordinator(**scripts)
    client.settings = dict(DEFAULTS)
    client.view_found = ClusterView("c", {1: Broker(1, "h", 1)}, {}, {})
    return client


def check_of(client: Coordinator) -> KafkaTargetCheck:
    runs = iter(range(100))
    return KafkaTargetCheck(
        client, topic="probes", new_id=lambda: f"id.{next(runs)}", wall_s=lambda: 2.0
    )


def test_a_target_that_passes_is_not_asked_again_for_long(trials: Trials) -> None:
    client = target()
    check = check_of(client)
    assert check.checked() == check.checked() == CheckedTarget()
    assert (client.requests, trials.ids) == (["DescribeConfigs"], ["id.0"])
    client.clock.advance(PASSED_S + 1)
    assert check.checked() == CheckedTarget()
    assert (client.requests, trials.ids) == (["DescribeConfigs"] * 2, ["id.0"])


def test_settings_that_are_too_short_are_refused_until_they_change(trials: Trials) -> None:
    client = target()
    client.settings[PRODUCER] = "60000"
    check = check_of(client)
    reason = (
        "target: exactly once is refused: producer.id.expiration.ms = 60000, too short beside"
        " connections.max.idle.ms = 600000"
    )
    assert check.checked().refusal == reason
    assert trials.ids == []
    client.settings[PRODUCER] = "7200000"
    assert check.checked().refusal == reason
    client.clock.advance(SOON_S + 1)
    assert check.checked() == CheckedTarget("", 3_600)


def test_what_a_trial_finds_is_refused_until_it_passes(trials: Trials) -> None:
    trials.outcomes = ["it forgets"]
    client = target()
    check = check_of(client)
    assert check.checked().refusal == "target: exactly once is refused: it forgets"
    client.clock.advance(SOON_S + 1)
    assert check.checked() == CheckedTarget()
    assert trials.ids == ["id.0", "id.1"]


@pytest.mark.parametrize("error", [ClusterUnavailable("no leader"), TopicRefused("no right")])
def test_a_trial_without_a_result_refuses_nothing(
    trials: Trials, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    trials.outcomes = [error, error]
    client = target()
    check = check_of(client)
    for _ in range(3):
        assert check.checked() == CheckedTarget()
        client.clock.advance(SOON_S + 1)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [str(error)]
    assert len(trials.ids) == 3


def test_settings_that_are_not_shown_refuse_nothing(
    trials: Trials, caplog: pytest.LogCaptureFixture
) -> None:
    client = target(DescribeConfigs=[int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])
    check = check_of(client)
    assert check.checked() == CheckedTarget("", PRODUCER_KEPT_S)
    (record,) = caplog.records
    assert "the principal lacks DESCRIBE_CONFIGS on the cluster" in record.getMessage()
    client.settings[PRODUCER] = "7200000"
    client.clock.advance(SOON_S + 1)
    assert check.checked() == CheckedTarget("", 3_600)


def test_what_was_read_once_counts_while_brokers_do_not_respond(trials: Trials) -> None:
    client = target()
    client.settings[PRODUCER] = "7200000"
    check = check_of(client)
    assert check.checked().kept_s == 3_600
    client.view_found = ClusterView("c", {}, {}, {})
    client.clock.advance(PASSED_S + 1)
    assert check.checked() == CheckedTarget("", 3_600)
