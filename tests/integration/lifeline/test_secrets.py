"""Secrets of a copier run are in nothing that Spark shows or writes: pages, REST, event log, logs, files."""

from __future__ import annotations

import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.spark import spark_properties
from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_testkit.spark import engines
from ureplicator_worker.core.events import CopierEnded, CopierLost, Event
from ureplicator_worker.engines.spark import SparkEngine
from ureplicator_worker.lifeline import messages
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId, Grant
from ureplicator_worker.lifeline.server import Disconnected, LifelineServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

COPIER = CopierId(0, 1)
PARTITION = Partition(Route("a", "b"), "raises", 0)
PASSWORD = "planted-4711-password"  # noqa: S105
SHOWN = "slot 0: described"
PAGE_S = 90
"""At log level ALL a page takes its time."""


class Run:
    """A copier on Spark, and all that Spark shows of it."""

    def __init__(self, folder: Path) -> None:
        self.events = folder / "events"
        self.events.mkdir()
        self.received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.lifeline = LifelineServer(host="127.0.0.1")
        self.lifeline.start(lambda copier, message: self.received.put(message))
        self.spark = SparkEngine(
            name="secrets",
            slots=1,
            properties={
                **spark_properties(WorkerSettings(slots=1, spark=engines.stub_properties()), ()),
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": str(self.events),
                "spark.eventLog.compress": "false",
            },
            put=self.put,
            on_job_ended=self.lifeline.revoke,
            on_jvm_failed=lambda reason: None,
            silence_s=60,
            copier_entry=engines.STUB,
        )
        self.spark.start()
        self.spark._context.setLogLevel("ALL")

    def put(self, event: Event) -> None:
        if isinstance(event, CopierEnded | CopierLost):
            self.ended.put(event.reason)

    def config(self) -> CopierConfig:
        return CopierConfig(
            fleet="f",
            worker="w",
            slot=0,
            run=1,
            host=self.lifeline.address[0],
            port=self.lifeline.address[1],
            token=self.lifeline.admit(COPIER),
            clusters={"a": {"bootstrap.servers": "127.0.0.1:1", "sasl.password": PASSWORD}},
            commit_interval_s=1.0,
            transaction_interval_s=0.1,
            buffer_bytes=1,
            silence_s=60.0,
        )

    def message(self, kind: type[Any]) -> Any:
        while not isinstance(message := self.received.get(timeout=60), kind):
            assert not isinstance(message, Disconnected)
        return message

    def let_copier_raise(self) -> str:
        """Have the job fail, with its traceback in the logs; the reason."""
        self.lifeline.send(COPIER, messages.Add({PARTITION: OwnerEpoch(1)}))
        request = self.message(messages.ProofRequest)
        granted = {PARTITION: Grant(OwnerEpoch(1), "raises")}
        self.lifeline.send(COPIER, messages.ProofResponse(request.request_id, granted, {}))
        return self.ended.get(timeout=60)

    def pages(self) -> str:
        """All of REST, and every page that one of the others links to."""
        base = self.spark.ui_url
        application = requests.get(f"{base}/api/v1/applications", timeout=PAGE_S).json()[0]["id"]
        rest = [
            f"/api/v1/applications/{application}/{what}"
            for what in (
                "jobs",
                "stages?details=true&withSummaries=true",
                "stages/0?details=true",
                "stages/0/0/taskList",
                "allexecutors",
                "allmiscellaneousprocess",
                "environment",
                "storage/rdd",
                "executors/driver/threads",
            )
        ]
        found = {path: requests.get(base + path, timeout=PAGE_S) for path in rest}
        assert all(response.ok for response in found.values())
        waiting = {"/jobs/"}
        while waiting:
            path = waiting.pop()
            found[path] = requests.get(base + path, timeout=PAGE_S)
            links = re.findall(r'href="(?:' + re.escape(base) + r')?(/[^"]*)"', found[path].text)
            pages = {link.replace("&amp;", "&") for link in links if "/static/" not in link}
            waiting |= {page for page in pages if "kill" not in page} - found.keys()
        return "\n".join(response.text for response in found.values())

    def files(self) -> bytes:
        """Event log, Spark's log at its lowest level, and all else that it left on disk."""
        assert self.spark._scratch is not None
        folders = (self.events, self.spark._scratch)
        paths = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return b"\n".join(path.read_bytes() for path in paths)

    def close(self) -> None:
        engines.stop(self.spark)
        self.lifeline.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.close()


def test_neither_token_nor_properties_of_clusters_are_shown_or_written(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    config = run.config()
    run.spark.start_copier(COPIER, config, SHOWN)
    run.message(messages.Hello)
    seen = [run.pages()]
    assert "RuntimeError: cannot copy" in run.let_copier_raise()
    seen += [run.pages(), run.files().decode(errors="replace"), repr(config)]
    run.spark.stop()
    event_log = b"\n".join(p.read_bytes() for p in run.events.rglob("*") if p.is_file()).decode()
    output = "".join(capfd.readouterr())
    for text in (seen[1], event_log):
        assert SHOWN in text
        assert "RuntimeError: cannot copy" in text
    for text in (*seen, event_log, output):
        assert config.token not in text
        assert PASSWORD not in text
