"""ZooKeeper for an audit from a terminal: how the topic is copied, and the record of the result.

The settings by which workers copy are there, not in the file: operators change them while the fleet runs. The
result is merged into the state of the topic like an auditor's. If ZooKeeper is away by then, no record is
kept; the result itself is not lost by that.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination.zookeeper import open_coordination
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_common.znodes.paths import Paths
from ureplicator_worker.audit.result import AuditResult
from ureplicator_worker.auditor.nodes import AuditNodes
from ureplicator_worker.auditor.outcome import outcome_of, run_of, with_result

CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class CopiedAs:
    """Settings by which a topic is copied, and its name at the target."""

    settings: RouteSettings
    target_topic: str


def copied_as(settings: Settings, config: RouteConfig, topic: str) -> CopiedAs:
    """Raises OperatingError."""
    with _opened(settings, _name()) as nodes:
        return copied_as_in(nodes, config, topic)


def copied_as_in(nodes: AuditNodes, config: RouteConfig, topic: str) -> CopiedAs:
    """The file counts as long as no leader has published the route. Raises OperatingError."""
    live = nodes.settings(config.route) or config.settings
    intent = nodes.intent(TopicKey(config.route, topic))
    named = live.target_topic(topic) if intent is None else intent.target_topic
    return CopiedAs(live, named)


def record(settings: Settings, result: AuditResult, *, began_ms: int, report: str) -> None:
    """`began_ms`: before the positions were read. Raises OperatingError."""
    name = _name()
    with _opened(settings, name) as nodes:
        record_in(nodes, result, auditor=name, began_ms=began_ms, report=report)


def _name() -> str:
    return f"command on {socket.gethostname()}"


@contextmanager
def _opened(settings: Settings, name: str) -> Iterator[AuditNodes]:
    coordination = open_coordination(settings.zookeeper)
    with closing(coordination):
        coordination.connect(CONNECT_TIMEOUT_S)
        yield AuditNodes(coordination, paths=Paths(settings.fleet), auditor=name)


def record_in(
    nodes: AuditNodes, result: AuditResult, *, auditor: str, began_ms: int, report: str
) -> None:
    """A topic that is not whitelisted has no state."""
    key = TopicKey(Route.parse(result.route), result.topic)
    intent = nodes.intent(key)
    if intent is None:
        return
    run = run_of(
        result,
        id=uuid.uuid4().hex,
        auditor=auditor,
        started_ms=began_ms,
        ended_ms=max(began_ms, result.ended_ms),
        outcome=outcome_of(result),
        report=report,
    )
    nodes.write(key, partial(with_result, result=result, run=run, intent=intent, at_ms=began_ms))
