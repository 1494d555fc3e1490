"""The process of a slot that evaluates queries (`host`).

    python -m ureplicator_worker.sql <descriptor of the socket>

It ends with its socket, and with the copier.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Callable

from ureplicator_worker.copier.record.channel import CopierGone
from ureplicator_worker.copier.record.frames import Head
from ureplicator_worker.copier.record.host import end_with_parent
from ureplicator_worker.sql.host import SqlHost
from ureplicator_worker.sql.read_ahead import ReadAhead
from ureplicator_worker.sql.session import SparkSql


def main() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    peer = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.ExitStack() as sessions:

        def start(config: Head) -> SparkSql:
            session = SparkSql(memory_bytes=config["memory"], udfs=config["udfs"])
            sessions.callback(session.close)
            return session

        serve(peer, start)


def serve(peer: socket.socket, start: Callable[[Head], SparkSql]) -> None:
    try:
        host = SqlHost(ReadAhead(peer), start=start)
        if host.begin():
            while host.step():
                pass
    except (CopierGone, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        peer.close()


if __name__ == "__main__":
    main()
