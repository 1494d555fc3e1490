"""The end of a request in the bytes that a connection has brought so far.

It is stricter than a general server: a request has at most one `Content-Length` and no
`Transfer-Encoding`, so that no two programs on the way can differ about where it ends (request
smuggling). No client of REST needs chunks.

Source: RFC 9112, sections 5, 6 and 11.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
_END = b"\r\n\r\n"
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_PATH = re.compile(rb"[A-Z]+ (/[!->@-~]*)")
_LENGTH = re.compile(rb"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Complete:
    """`length_bytes`: of the whole request; what follows belongs to the next one."""

    length_bytes: int


@dataclass(frozen=True, slots=True)
class Incomplete:
    """`continue_expected`: the client waits for `100 Continue` before it sends the body."""

    continue_expected: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that gets no thread."""

    status: HTTPStatus
    detail: str


Verdict = Complete | Incomplete | Refused


def request_end(received: bytes | bytearray) -> Verdict:
    """Verdict on the first request in `received`: whole, not whole yet, or refused."""
    end = received.find(_END, 0, MAX_HEAD_BYTES)
    if end < 0:
        return _TOO_LONG if len(received) >= MAX_HEAD_BYTES else Incomplete()
    _, *lines = bytes(received[:end]).split(b"\r\n")
    fields = [_FIELD.fullmatch(line) for line in lines]
    values: dict[bytes, list[bytes]] = {}
    for field in fields:
        if field is None:
            return _refused(HTTPStatus.BAD_REQUEST, "a header is not of the form 'name: value'")
        values.setdefault(field[1].lower(), []).append(field[2].strip())
    body = _body_bytes(values)
    if isinstance(body, Refused):
        return body
    length_bytes = end + len(_END) + body
    if length_bytes <= len(received):
        return Complete(length_bytes)
    return Incomplete([value.lower() for value in values.get(b"expect", ())] == [b"100-continue"])


def path_in(received: bytes | bytearray) -> str:
    """Path that the first request asks for, as it was sent; `/` if its first line has none."""
    found = _PATH.match(received)
    return found[1].decode("ascii") if found else "/"


def _body_bytes(values: dict[bytes, list[bytes]]) -> int | Refused:
    if b"transfer-encoding" in values:
        return _refused(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length, not chunks")
    lengths = values.get(b"content-length", [b"0"])
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        return _refused(HTTPStatus.BAD_REQUEST, "Content-Length is not one number")
    if int(lengths[0]) > MAX_BODY_BYTES:
        return _refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MAX_BODY_BYTES} bytes"
        )
    return int(lengths[0])


def _refused(status: HTTPStatus, detail: str) -> Refused:
    return Refused(status, detail)


_TOO_LONG = Refused(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers have less than {MAX_HEAD_BYTES} bytes"
)
