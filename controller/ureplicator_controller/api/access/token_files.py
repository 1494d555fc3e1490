"""The files of tokens, read again when they change.

A file that becomes unreadable or wrong is an error in the log, and its last content stays in force: a
mistake in a file must not lock out the operators who would mend it. To revoke all tokens, empty it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.file_signatures import Signature, signature
from ureplicator_controller.api.access.roles import Role
from ureplicator_controller.api.access.tokens import InvalidTokens, Token, parse_tokens

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _File:
    path: Path
    role: Role
    read: Signature | None = None
    tokens: tuple[Token, ...] = ()
    fault: str = ""


class TokenFiles:
    """All tokens. Raises ConfigurationError if a file cannot be read at first."""

    def __init__(self, paths: Mapping[Role, str]) -> None:
        self._files = [_File(Path(path), role) for role, path in paths.items() if path]
        self._lock = Lock()
        for file in self._files:
            _refresh(file)
            if file.fault:
                raise ConfigurationError(file.fault)

    def tokens(self) -> Iterable[Token]:
        """The tokens that are in force."""
        with self._lock:
            for file in self._files:
                _refresh(file)
            return tuple(token for file in self._files for token in file.tokens)


def _refresh(file: _File) -> None:
    """Read a file that has changed."""
    try:
        now = signature((str(file.path),))
        if now != file.read:
            file.tokens = parse_tokens(file.path.read_text("ascii"), file.role)
            file.read, file.fault = now, ""
    except OSError as error:
        _failed(file, f"tokens of {file.path} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        _failed(file, f"tokens of {file.path} cannot be read: not ASCII")
    except InvalidTokens as error:
        _failed(file, f"tokens of {file.path} cannot be read: {error}")


def _failed(file: _File, fault: str) -> None:
    if fault != file.fault:
        log.error("%s; those read before stay in force", fault)
        file.fault = fault
