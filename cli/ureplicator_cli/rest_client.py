"""Client of the controllers' REST: a JSON object, or a failure in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import requests

from ureplicator_cli.hints import in_commands
from ureplicator_cli.output import fail

DEFAULT_URL = "http://127.0.0.1:9000"
TIMEOUT_S = 30.0
"""A time longer than a controller waits for a cluster that is away: its response gives the better
reason."""


class RestFailure(Exception):
    """A call that was refused, failed or did not reach a controller; the text is one line for people.

    `refused`: a controller has judged the request, and will not carry it out. `status`: of the response; 0:
    there was none.
    """

    def __init__(self, text: str, *, refused: bool = False, status: int = 0) -> None:
        super().__init__(text)
        self.refused = refused
        self.status = status


def quoted(name: str) -> str:
    """A name as one segment of a path. Ends the process if it cannot be one: clients resolve `..`."""
    if name in ("", ".", ".."):
        fail(f"{name!r} is not a name")
    return query_value(name)


def query_value(name: str) -> str:
    """A name as the value of a parameter in a URL."""
    return quote(name, safe="")


def request(
    method: str,
    url: str,
    path: str,
    *,
    src: str = "",
    dst: str = "",
    body: Mapping[str, Any] | None = None,
    query: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Response of REST. Ends the process on a failure. Empty query parameters are left out."""
    parameters = {"src": src, "dst": dst, **(query or {})}
    given = {name: text for name, text in parameters.items() if text}
    try:
        return RestClient(url).call(method, path, query=given, body=body)
    except RestFailure as error:
        fail(in_commands(str(error)))


@dataclass(frozen=True, slots=True)
class Login:
    """Files for the login, from the options of a command."""

    token_file: Path | None = None
    ca_file: Path | None = None


def use(context: click.Context, **options: Path | None) -> None:
    """Remember options of the login for the clients of a command."""
    given = {name: path for name, path in options.items() if path is not None}
    context.meta[_LOGIN] = replace(context.meta.get(_LOGIN, Login()), **given)


_LOGIN = "ureplicator_cli.login"


def login_of_command() -> Login:
    """The login of a command; empty outside of a command."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_LOGIN, Login()) if context else Login()


class RestClient:
    """Calls the controller at one URL; `host:port` is accepted as a URL.

    Neither `.netrc` nor variables of proxies count, and no redirection is followed: a token goes to the
    controller and nowhere else.
    """

    def __init__(
        self, url: str, *, login: Login | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        """`login`: that of the command, unless given."""
        self._timeout_s = timeout_s
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        login = login or login_of_command()
        self._session = requests.Session()
        self._session.trust_env = False
        if login.ca_file:
            self._session.verify = str(login.ca_file)
        if login.token_file:
            self._session.headers["Authorization"] = f"Bearer {token_in(login.token_file)}"

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The JSON object of the response. Raises RestFailure."""
        response = self._response(method, path, query=query, body=body)
        content = _json_object(response)
        if response.ok and content is not None:
            return content
        text = _refusal(self._url, response.status_code, content)
        status = response.status_code
        raise RestFailure(text, refused=400 <= status < 500, status=status)

    def text(self, path: str) -> str:
        """The text of a response to GET. Raises RestFailure."""
        response = self._response("GET", path)
        if response.ok:
            return response.text
        raise RestFailure(_refusal(self._url, response.status_code, _json_object(response)))

    @property
    def secrets(self) -> frozenset[str]:
        """The token of the login, if there is one."""
        return frozenset(str(self._session.headers.get("Authorization", "")).split()[1:])

    def _response(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> requests.Response:
        """Raises RestFailure."""
        try:
            with self._session as session:
                return session.request(
                    method,
                    self._url + path,
                    params=query,
                    json=body,
                    timeout=self._timeout_s,
                    allow_redirects=False,
                )
        except requests.exceptions.ConnectionError as error:
            raise RestFailure(
                f"cannot reach a controller at {self._url}: {_cause(error)}"
            ) from error
        except requests.exceptions.RequestException as error:
            raise RestFailure(f"{self._url}: {error}") from error


def token_in(path: Path) -> str:
    """The token of a file that holds nothing else. Ends the process if it cannot be read."""
    try:
        words = path.read_text("ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"the token file {path} cannot be read: {getattr(error, 'strerror', 'not ASCII')}")
    if len(words) != 1:
        fail(f"the token file {path} must hold one token and nothing else")
    return words[0]


def _json_object(response: requests.Response) -> dict[str, Any] | None:
    try:
        content = response.json()
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _refusal(url: str, status: int, problem: Mapping[str, Any] | None) -> str:
    if not problem or "detail" not in problem:
        return f"{url}: unexpected response, status {status}: not a uReplicator controller"
    field = f"{problem['field']}: " if problem.get("field") else ""
    hint = f" ({problem['hint']})" if problem.get("hint") else ""
    return f"{field}{problem['detail']}{hint}"


def _cause(error: BaseException) -> str:
    """The operating system's message, from below three libraries' wrappers."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        reason = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        inner = reason if isinstance(reason, BaseException) else None
        seen = inner or seen.__cause__ or seen.__context__
    return "connection failed"
