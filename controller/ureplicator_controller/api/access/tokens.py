"""Tokens as their files hold them, and the one that a client presents.

A line is a name, a token and, if it ends, a time:

    alice    sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
    grafana  1cf24dba5fb0a30e26e83b2ac5b9  until=2026-12-31T00:00:00Z

Tokens are compared by their SHA-256, each with all of them, so that the time says nothing about how much
of a token is right. A hash without salt is enough for random tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ureplicator_controller.api.access.roles import Role

MIN_LENGTH = 20
"""Characters of a token: a random one of 20 hexadecimal digits has 80 bits."""
_NAME = re.compile(r"[a-zA-Z0-9._@-]{1,64}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_TOKEN = re.compile(rf"[!-~]{{{MIN_LENGTH},512}}")
_UNTIL = "until="


class InvalidTokens(Exception):
    """A file that cannot be used; the text names the line and no token."""


@dataclass(frozen=True, slots=True)
class Token:
    """One line of a file. `until_s`: seconds since the epoch, or infinity."""

    name: str
    role: Role
    digest: bytes
    until_s: float = float("inf")


def parse_tokens(text: str, role: Role) -> tuple[Token, ...]:
    """The tokens of a file. Raises InvalidTokens."""
    lines = enumerate(text.splitlines(), start=1)
    return tuple(
        _parsed(number, line.split(), role)
        for number, line in lines
        if line.strip() and not line.lstrip().startswith("#")
    )


def find_token(tokens: Iterable[Token], presented: str, *, now_s: float) -> Token | None:
    """The token that a client presents, unless it has expired."""
    digest = digest_of(presented)
    found = [token for token in tokens if hmac.compare_digest(token.digest, digest)]
    valid = [token for token in found if now_s < token.until_s]
    return max(valid, key=lambda token: token.role, default=None)


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _parsed(number: int, words: list[str], role: Role) -> Token:
    if len(words) not in (2, 3) or not _NAME.fullmatch(words[0]):
        raise InvalidTokens(f"line {number} is not of the form: name token [until=TIME]")
    hashed = _HASH.fullmatch(words[1])
    if not hashed and (words[1].startswith("sha256:") or not _TOKEN.fullmatch(words[1])):
        raise InvalidTokens(
            f"line {number}: the token of {words[0]} is neither sha256:<64 hexadecimal digits> nor"
            f" at least {MIN_LENGTH} printable characters"
        )
    digest = bytes.fromhex(hashed[1]) if hashed else digest_of(words[1])
    return Token(words[0], role, digest, _until_s(number, words[2]) if words[2:] else float("inf"))


def _until_s(number: int, word: str) -> float:
    try:
        until = datetime.fromisoformat(word.removeprefix(_UNTIL))
    except ValueError:
        until = None
    if until is None or until.tzinfo is None or not word.startswith(_UNTIL):
        raise InvalidTokens(f"line {number}: the end is not of the form until=2026-12-31T00:00:00Z")
    return until.timestamp()
