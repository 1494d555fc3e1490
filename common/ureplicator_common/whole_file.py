"""Files that appear under their name when they are complete."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file beside `path` that takes its place at the end, or is removed where the block raises.

    The name of the file beside it cannot be guessed and must be free: in a folder that others may write to, a
    link that lies in wait is never followed. `mode`: as of os.open, less the umask. Raises OSError.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
