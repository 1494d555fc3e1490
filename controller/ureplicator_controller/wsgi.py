"""WSGI entry point: the REST application of one controller, with its real dependencies.

The daemon starts gunicorn by exec (see `api.rest_process`). Importing this module opens nothing:
gunicorn calls `application` in its worker process, after its fork, and only there the connection to
ZooKeeper is opened, since a client that was opened before a fork hangs. It connects in the background:
REST responds from the start, with 503 and the reason until ZooKeeper is available.

A thread waits for the daemon's pipe to close, and then ends both processes of gunicorn. Ending only this
one is not enough: its parent would start another.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

from flask import Flask

from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.coordination import Unavailable
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination, open_coordination
from ureplicator_common.garbage_collection import collect_seldom
from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.claim_requests import KafkaClaimLog
from ureplicator_common.kafka.client import ClusterClient, open_client
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_common.kafka.principal_requests import KafkaPrincipalReader
from ureplicator_common.kafka.transactions.writer_requests import KafkaWriters
from ureplicator_common.logging_setup import set_up
from ureplicator_controller.api.app import TIMELINE, Dependencies, create_app
from ureplicator_controller.api.rest_process import ENVIRONMENT, WsgiConfig
from ureplicator_controller.api.tracing.sink import NoSpans, Spans
from ureplicator_controller.engines.groups.clusters import open_route
from ureplicator_controller.engines.periodic_thread import PeriodicThread

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 1.5
"""Time of one ZooKeeper request: every call gets a response in 2 s, if only a 503."""
CLUSTER_TIMEOUT_S = 5.0
LAG_TIMEOUT_S = 4.0
"""Time of one request of a lag collection: no call waits for it, and it covers thousands of partitions."""
FIRST_CONNECT_TIMEOUT_S = 2.0
STOP_TIMEOUT_S = 5.0
FIRST_SAMPLE_S = 3.0
"""Time from the start to the first sample of the timeline."""


def application() -> Flask:
    """The application, from the environment that the daemon set."""
    config = WsgiConfig.from_json(os.environ[ENVIRONMENT])
    set_up(as_json=config.log_json)
    collect_seldom()
    if config.pipe_fd >= 0:
        watch_daemon(config.pipe_fd, ended=partial(end_gunicorn, os.getppid()))
    settings = load_settings(config.config, environ=os.environ, overrides=config.overrides)
    app = create_app(dependencies(settings, id=config.id))
    sampler = PeriodicThread(
        app.extensions[TIMELINE].run_once,
        name="timeline",
        first_after_s=min(FIRST_SAMPLE_S, settings.controller.timeline.interval_s),
    )
    sampler.start()
    return app


def dependencies(settings: Settings, *, id: str) -> Dependencies:
    return Dependencies(
        settings=settings,
        coordination=_connect(settings),
        admins=lambda name: ConfluentTopicAdmin(
            settings.cluster(name), name=name, timeout_s=CLUSTER_TIMEOUT_S
        ),
        positions=lambda name: KafkaPositionReader(_client(settings, name)),
        logs=lambda name: KafkaLogReader(_client(settings, name)),
        claims=lambda name: KafkaClaimLog(_client(settings, name)),
        principals=lambda name: KafkaPrincipalReader(_client(settings, name)),
        acls=lambda name: KafkaAclAdmin(_client(settings, name), name=name),
        writers=lambda name: KafkaWriters(_client(settings, name)),
        groups=lambda route: open_route(
            fleet=settings.fleet,
            route=route,
            source=open_client(route.source, settings.cluster(route.source)),
            target=open_client(route.target, settings.cluster(route.target)),
        ),
        spans=_spans(settings, id),
        id=id,
    )


def _spans(settings: Settings, id: str) -> Spans:
    endpoint = settings.controller.tracing.endpoint
    if not endpoint:
        return NoSpans()
    # 15 MB that REST has no use for otherwise
    from ureplicator_controller.api.tracing.export import ExportedSpans

    return ExportedSpans(endpoint, fleet=settings.fleet, id=id)


def watch_daemon(pipe_fd: int, *, ended: Callable[[], None]) -> threading.Thread:
    """Call `ended` when the daemon's end of the pipe is closed."""

    def wait() -> None:
        while os.read(pipe_fd, 1):
            pass
        ended()

    thread = threading.Thread(target=wait, name="daemon watch", daemon=True)
    thread.start()
    return thread


def end_gunicorn(master_pid: int) -> None:
    """Stop gunicorn's parent process, which stops this one; exit in any case."""
    log.info("the controller process has ended: stopping REST")
    if stop_master(master_pid):
        threading.Event().wait(STOP_TIMEOUT_S)
    os._exit(0)


def stop_master(master_pid: int) -> bool:
    """Send SIGTERM to gunicorn's parent process; False if it is dead.

    A process whose parent died belongs to another one, such as init: that one is left alone.
    """
    if os.getppid() != master_pid:
        return False
    os.kill(master_pid, signal.SIGTERM)
    return True


def _connect(settings: Settings) -> ZooKeeperCoordination:
    coordination = open_coordination(settings.zookeeper, request_timeout_s=REQUEST_TIMEOUT_S)
    try:
        coordination.connect(FIRST_CONNECT_TIMEOUT_S)
    except Unavailable as error:
        log.warning("REST starts without ZooKeeper: %s", error)
    return coordination


def _client(settings: Settings, name: str) -> ClusterClient:
    return open_client(name, settings.cluster(name), timeout_s=LAG_TIMEOUT_S)
