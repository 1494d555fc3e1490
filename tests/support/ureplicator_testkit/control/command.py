"""The `ureplicator` command against REST on the twins, over a real socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result
from werkzeug.serving import make_server

from ureplicator_cli.commands import cli
from ureplicator_testkit.control.rest_fixture import RestFixture

POLL_S = 0.01
"""Interval between two checks of the server for a request to stop."""


@contextmanager
def serving(rest: RestFixture) -> Iterator[str]:
    """Serve REST on a free port; the value is its URL."""
    server = make_server("127.0.0.1", 0, rest.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(*words: str | Path, url: str = "") -> Result:
    """Run the command in this process; the URL comes from the environment."""
    return CliRunner().invoke(
        cli, [str(word) for word in words], env={"UREPLICATOR_URL": url} if url else {}
    )
