"""What gunicorn serves: the REST application of one controller, wired to the real world.

The daemon starts gunicorn by exec (see `api.serving`). Importing this module opens nothing:
gunicorn calls `application` in its worker process, after its fork, and only there the connection
to ZooKeeper is made, since a client that was opened before a fork hangs. It is made in the
background: REST answers from the first moment on, with 503 and the reason until ZooKeeper does.

A thread waits for the daemon's pipe to close, and then ends gunicorn's two processes. It must not
be this one alone: its parent would start another.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

from flask import Flask

from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.coordination import Unavailable
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_common.logging_setup import set_up
from ureplicator_controller.api.app import Dependencies, create_app
from ureplicator_controller.api.rest_process import ENVIRONMENT, WsgiConfig

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 1.5
"""Of one ZooKeeper request: whoever asks gets an answer, if only a 503, in 2 s."""
CLUSTER_TIMEOUT_S = 5.0
LOOK_TIMEOUT_S = 4.0
"""Of one request of a look at the partitions: nobody waits for these, and they ask for thousands."""
FIRST_CONNECT_S = 2.0
GRACE_S = 5.0


def application() -> Flask:
    """The application, from the environment that the daemon set."""
    config = WsgiConfig.from_json(os.environ[ENVIRONMENT])
    set_up(as_json=config.log_json)
    if config.pipe_fd >= 0:
        watch(config.pipe_fd, end=_end_gunicorn)
    settings = load_settings(config.config, environ=os.environ, overrides=config.overrides)
    return create_app(dependencies(settings, id=config.id))


def dependencies(settings: Settings, *, id: str) -> Dependencies:
    return Dependencies(
        settings=settings,
        coordination=_connect(settings),
        admins=lambda name: ConfluentTopicAdmin(
            settings.cluster(name), timeout_s=CLUSTER_TIMEOUT_S
        ),
        positions=lambda name: KafkaPositionReader(_client(settings, name)),
        logs=lambda name: KafkaLogReader(_client(settings, name)),
        id=id,
    )


def watch(pipe_fd: int, *, end: Callable[[], None]) -> threading.Thread:
    """Call `end` when the other end of the pipe is closed."""

    def wait() -> None:
        while os.read(pipe_fd, 1):
            pass
        end()

    thread = threading.Thread(target=wait, name="daemon watch", daemon=True)
    thread.start()
    return thread


def _end_gunicorn() -> None:
    """Ask the parent to stop, which stops us; leave in any case."""
    log.info("the controller is gone: REST ends")
    os.kill(os.getppid(), signal.SIGTERM)
    threading.Event().wait(GRACE_S)
    os._exit(0)


def _connect(settings: Settings) -> ZooKeeperCoordination:
    coordination = ZooKeeperCoordination(
        hosts=settings.zookeeper.hosts,
        session_timeout_s=settings.zookeeper.session_timeout_s,
        request_timeout_s=REQUEST_TIMEOUT_S,
    )
    try:
        coordination.connect(FIRST_CONNECT_S)
    except Unavailable as error:
        log.warning("REST starts without ZooKeeper: %s", error)
    return coordination


def _client(settings: Settings, name: str) -> ClusterClient:
    return ClusterClient(settings.cluster(name)["bootstrap.servers"], timeout_s=LOOK_TIMEOUT_S)
