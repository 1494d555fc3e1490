"""Addresses of controllers, and servers that are none."""

from __future__ import annotations

import socket
import threading

import pytest
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from ureplicator_testkit.control.command import run


def test_names_that_need_quoting(url: str) -> None:
    result = run("topics", "show", "a/b?c#d %", url=url)
    assert result.exit_code == 1
    assert "'a/b?c#d %' is not whitelisted" in result.stderr


def test_no_controller_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    result = run("topics", "--url", f"http://127.0.0.1:{port}")
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"cannot reach a controller at http://127.0.0.1:{port}: Connection refused\n"
    )


@pytest.mark.parametrize("url", ["a b", "http://", "ftp://127.0.0.1"])
def test_a_wrong_url(url: str) -> None:
    result = run("topics", "list", "--url", url)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


@Request.application
def another_server(request: Request) -> Response:
    return Response("hi")


def test_another_server_listens() -> None:
    server = make_server("127.0.0.1", 0, another_server)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    result = run("status", "--url", f"http://127.0.0.1:{server.server_port}")
    thread.join()
    server.server_close()
    assert result.exit_code == 1
    assert "not a uReplicator controller" in result.stderr


def test_an_address_is_a_url(url: str) -> None:
    assert run("status", url=url.removeprefix("http://")).exit_code == 0
