"""Signatures of files: something changed if they did, without a look into the files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Signature = tuple[tuple[str, int, int, int], ...]


def signature(files: Iterable[str]) -> Signature:
    """Changes when a file changes, is replaced, appears or vanishes."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: str) -> tuple[str, int, int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return file, 0, 0, 0
    return file, found.st_mtime_ns, found.st_size, found.st_ino
