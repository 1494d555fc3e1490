"""Record of an audit that was run from a terminal: its result in the state of the topic.

It is merged like an auditor's. A fleet whose ZooKeeper cannot be reached from there keeps no record; the
result itself is not lost by that.
"""

from __future__ import annotations

import socket
import uuid
from contextlib import closing
from functools import partial

from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination.zookeeper import open_coordination
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znodes import Paths
from ureplicator_worker.audit.result import AuditResult
from ureplicator_worker.auditor.nodes import AuditNodes
from ureplicator_worker.auditor.outcome import outcome_of, run_of, with_result

CONNECT_TIMEOUT_S = 5.0


def record(settings: Settings, result: AuditResult, *, began_ms: int, report: str) -> None:
    """`began_ms`: before the positions were read. Raises OperatingError."""
    coordination = open_coordination(settings.zookeeper)
    with closing(coordination):
        coordination.connect(CONNECT_TIMEOUT_S)
        name = f"command on {socket.gethostname()}"
        nodes = AuditNodes(coordination, paths=Paths(settings.fleet), auditor=name)
        record_in(nodes, result, auditor=name, began_ms=began_ms, report=report)


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
