"""A whole worker in a process of its own, without Kafka and ZooKeeper: to be killed and stopped.

Coordination is the twin in memory, copiers are stubs on real Spark, fencing is only recorded. The
test plays the leader and the servers, by one JSON list a line on a control connection (its port is in
the log, `control PORT`):

    ["assign", {"a.b/t/0": 1}]     write the assignment       ["whitelist", "a.b/t", 4]
    ["suspend"]  ["restore"]       disconnect the worker      ["expire"]
    ["frozen"]                     block the loop             ["fence", false]
    ["seen"]                       nothing

The response to each is one line: what the fleet sees of the worker.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from ureplicator_common import logging_setup
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Create, Set
from ureplicator_common.errors import TemporaryError
from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings, TopicKey, WorkerId
from ureplicator_common.znode_contents import Assignment, AssignmentEntry, KnownWorker, TopicIntent
from ureplicator_common.znodes.codec import decode
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import encode_assignment, encode_known_worker
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_worker.daemon import Worker
from ureplicator_worker.engines.event_loop import EventLoop

STUB = "ureplicator_testkit.copier.stub_copier:copy"


def settings(*, port: int, slots: int, **worker: Any) -> Settings:
    return Settings.model_validate(
        {
            "fleet": "test",
            "zookeeper": {"hosts": "127.0.0.1:1", "session_timeout_s": 1},
            "clusters": {
                "a": {"bootstrap.servers": "127.0.0.1:1"},
                "b": {"bootstrap.servers": "127.0.0.1:2"},
            },
            "routes": [{"source": "a", "target": "b"}],
            "worker": {"slots": slots, "port": port, "drain_timeout_s": 5, **worker},
        }
    )


class Stage:
    """The part of the leader and of the servers."""

    def __init__(self, client: MemoryCoordination, store: MemoryStore) -> None:
        self._client = client
        self._leader = MemoryCoordination(store)
        self._paths = Paths("test")
        self._id = WorkerId("w")
        self.fenced: list[str] = []
        self.fence_works = True
        for path in self._paths.skeleton:
            self._leader.ensure(path)
        self.put(self._paths.route(Route("a", "b")), encode_route(RouteSettings()))
        known = encode_known_worker(KnownWorker(max_slots=2))
        self.put(self._paths.worker_known(self._id), known)

    def put(self, path: str, data: bytes) -> None:
        node = self._leader.get(path)
        if node is None:
            self._leader.ensure(path.rpartition("/")[0])
            self._leader.transact([Create(path, data)])
        else:
            self._leader.transact([Set(path, data, node.stat.version)])

    def fence(self, route: Route, ids: Sequence[str]) -> None:
        if not self.fence_works:
            raise TemporaryError("127.0.0.1:2 does not respond")
        self.fenced += ids

    def command(self, name: str, *args: Any) -> None:
        match name:
            case "assign":
                entries = {
                    Partition.parse(text): AssignmentEntry(OwnerEpoch(epoch))
                    for text, epoch in args[0].items()
                }
                path = self._paths.assignment(self._id)
                self.put(path, encode_assignment(Assignment(entries)))
            case "whitelist":
                route, _, topic = args[0].partition("/")
                intent = TopicIntent(
                    partitions=args[1], initial_partitions=args[1], target_topic=topic
                )
                path = self._paths.topic(TopicKey(Route.parse(route), topic))
                self.put(path, encode_intent(intent))
            case "fence":
                self.fence_works = args[0]
            case "frozen":
                EventLoop.step = lambda self, event: time.sleep(3600)  # type: ignore[method-assign]
            case "suspend" | "restore" | "expire":
                getattr(self._client, name)()
            case _:
                raise ValueError(name)

    def seen(self) -> dict[str, Any]:
        """State of the worker as the fleet sees it."""
        current = self._leader.get(self._paths.current_state(self._id))
        live = self._leader.get(self._paths.worker_live(self._id))
        return {
            "live": None if live is None else decode(live.data),
            "liveOwner": 0 if live is None else live.stat.owner,
            "current": None if current is None else decode(current.data),
            "fenced": self.fenced,
        }

    def serve(self) -> None:
        stage = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    name, *args = json.loads(line)
                    if name != "seen":
                        stage.command(name, *args)
                    self.wfile.write(json.dumps(stage.seen()).encode() + b"\n")

        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            os.write(1, f"control {server.server_address[1]}\n".encode())
            server.serve_forever()


def main(port: int, slots: int, watchdog_s: float) -> int:
    logging_setup.set_up()
    store = MemoryStore()
    client = MemoryCoordination(store)
    stage = Stage(client, store)
    worker = Worker(
        settings(port=port, slots=slots, watchdog_s=watchdog_s),
        id="w",
        coordination=client,
        connect=lambda timeout_s: None,
        fence=stage.fence,
        copier_entry=STUB,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    threading.Thread(target=stage.serve, daemon=True).start()
    return worker.run()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
