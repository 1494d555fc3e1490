"""Secrets of a configuration, and texts without them.

Two safeguards: whatever a key says is a secret is masked in the configuration, and the very values, also
those in files that it names, are removed from every member of the archive, as they are and as headers and
URLs have them. Logs may hold secrets of others, too: there, what follows words such as `password=` goes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ureplicator_common.config.properties import MASK, is_secret

SHORT = 8
"""A secret with fewer characters is removed as a whole word only, so that texts stay legible."""
_FILE = re.compile(r"(_file|\.file|\.location)$")
_SECRET_FILE = re.compile(r"digest|password|secret|token|credential|key", re.I)
_PATTERNS = (
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.S),
    re.compile(r"(://)[^/\s@\"']+:[^/\s@\"']+(?=@)"),
    re.compile(r"(\bauthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+)[^\s\"',;]+", re.I),
    re.compile(
        r"((?:password|passwd|passphrase|secret|token|api[_-]?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;}\]]+",
        re.I,
    ),
)


def masked_tree(tree: Any) -> Any:
    """A configuration with the value of every secret key masked."""
    if isinstance(tree, Mapping):
        return {
            key: MASK if _names_secret(key) and value else masked_tree(value)
            for key, value in tree.items()
        }
    return [masked_tree(item) for item in tree] if isinstance(tree, list) else tree


def secrets_in(tree: Any) -> frozenset[str]:
    """Values of secret keys, and what is in the files that keys name. Files that cannot be read have none."""
    return frozenset(secret for secret in _secrets(tree) if secret)


class Redactor:
    """Texts without certain secrets."""

    def __init__(self, secrets: Collection[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        ordered = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(_pattern, ordered))) if ordered else None

    def without_secrets(self, text: str) -> str:
        return self._known.sub(MASK, text) if self._known else text

    def without_any(self, text: str) -> str:
        """The lines of a log without secrets, and without what looks like one."""
        text = self.without_secrets(text)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<1>{MASK}", text)
        return text


def _names_secret(key: Any) -> bool:
    return isinstance(key, str) and is_secret(key) and not _FILE.search(key)


def _secrets(tree: Any) -> Iterator[str]:
    if isinstance(tree, list):
        for item in tree:
            yield from _secrets(item)
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            if isinstance(value, Mapping | list) and not _names_secret(key):
                yield from _secrets(value)
            elif _names_secret(key):
                yield from _scalars(value)
            elif (
                isinstance(value, str) and _FILE.search(str(key)) and _SECRET_FILE.search(str(key))
            ):
                yield from _in_file(str(key), value)


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _scalars(item)
    else:
        yield from _parts(str(value))


def _in_file(key: str, path: str) -> Iterator[str]:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return
    if "tokens_file" in key:
        for line in text.splitlines():
            yield from line.split()[1:2]
    elif "digest" in key:
        yield text.strip().partition(":")[2]
    else:
        yield from _parts(text)


def _parts(text: str) -> Iterator[str]:
    """A value, and each line of one with several, as a log may break it."""
    text = text.strip()
    yield text
    lines = text.splitlines()
    if len(lines) > 1:
        yield from (line for line in lines if not line.startswith("-----") and len(line) >= SHORT)


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield ascii(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]


def _pattern(form: str) -> str:
    return re.escape(form) if len(form) >= SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
