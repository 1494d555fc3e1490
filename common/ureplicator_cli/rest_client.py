"""A client of the controllers' REST for people and scripts: a JSON object, or one line of failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import requests

DEFAULT_URL = "http://127.0.0.1:9000"
TIMEOUT_S = 30.0
"""Above what a controller itself waits for clusters that are away: its answer says more than ours."""


class RestFailure(Exception):
    """Refused, failed or not reached; the text is one line for people.

    `refused`: a controller has judged what was asked, and will not do it.
    """

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


def quoted(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


class RestClient:
    """Speaks to the controller at one URL; `host:port` is one too."""

    def __init__(self, url: str) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The answer's JSON object. Raises RestFailure."""
        try:
            answer = requests.request(
                method, self._url + path, params=query, json=body, timeout=TIMEOUT_S
            )
        except requests.exceptions.ConnectionError as error:
            raise RestFailure(f"no controller answers at {self._url}: {_cause(error)}") from error
        except requests.exceptions.RequestException as error:
            raise RestFailure(f"{self._url}: {error}") from error
        content = _json_object(answer)
        if answer.ok and content is not None:
            return content
        text = _refusal(self._url, answer.status_code, content)
        raise RestFailure(text, refused=400 <= answer.status_code < 500)


def _json_object(answer: requests.Response) -> dict[str, Any] | None:
    try:
        content = answer.json()
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _refusal(url: str, status: int, problem: Mapping[str, Any] | None) -> str:
    if not problem or "detail" not in problem:
        return f"{url} answered {status}, not as a controller would"
    field = f"{problem['field']}: " if problem.get("field") else ""
    hint = f" ({problem['hint']})" if problem.get("hint") else ""
    return f"{field}{problem['detail']}{hint}"


def _cause(error: BaseException) -> str:
    """The operating system's own words, from under three libraries'."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        reason = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        inner = reason if isinstance(reason, BaseException) else None
        seen = inner or seen.__cause__ or seen.__context__
    return "connection failed"
