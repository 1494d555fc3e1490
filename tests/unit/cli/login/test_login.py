"""The token of the operators' command: where it comes from, and that it goes to the controller only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import NewRest

SECRET = "operator-" + "0123456789abcdef"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    return path


@pytest.fixture
def closed_url(new_rest: NewRest, tmp_path: Path) -> Iterator[str]:
    operators = tmp_path / "operators"
    operators.write_text(f"olga {SECRET}\n")
    access = {"mode": "tokens", "operator_tokens_file": str(operators)}
    with serving(new_rest(access=access)) as url:
        yield url


def test_without_a_token_the_refusal_says_so(closed_url: str) -> None:
    result = run("status", url=closed_url)
    assert result.exit_code == 1
    assert "needs a token" in result.stderr


def test_the_token_comes_from_an_option_or_the_environment(
    closed_url: str, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("freeze", "--token-file", token, url=closed_url).exit_code == 0
    monkeypatch.setenv("UREPLICATOR_TOKEN_FILE", str(token))
    assert run("export", url=closed_url).exit_code == 0
    assert run("topics", url=closed_url).exit_code == 0


@pytest.mark.parametrize("content", [None, "", "two words", "é"])
def test_a_file_without_one_token(closed_url: str, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "other"
    if content is not None:
        path.write_text(content)
    result = run("status", "--token-file", path, url=closed_url)
    assert result.exit_code == 1
    assert str(path) in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_token_is_not_sent_on(token: Path) -> None:
    """No redirection is followed."""
    seen: list[str] = []

    @Request.application
    def elsewhere(request: Request) -> Response:
        seen.append(request.path)
        return Response("", 302, {"Location": "/elsewhere"})

    server = make_server("127.0.0.1", 0, elsewhere)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    result = run("topics", "--token-file", token, url=f"http://127.0.0.1:{server.server_port}")
    thread.join()
    server.server_close()
    assert result.exit_code == 1
    assert seen == ["/topics"]


def test_neither_netrc_nor_a_proxy_counts(
    closed_url: str, token: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login user password another\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert run("status", "--token-file", token, url=closed_url).exit_code == 0
