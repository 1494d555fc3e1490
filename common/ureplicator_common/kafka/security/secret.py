"""A secret of the configuration: the value itself, or the file that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ureplicator_common.kafka import ClusterUnavailable


@dataclass(frozen=True, slots=True)
class Secret:
    """Neither `repr` nor `str` shows the value."""

    key: str
    """The property that names it."""
    value: str = field(default="", repr=False)
    file: str = ""

    def read(self) -> str:
        """The value at this moment, without the line end of its file. Raises ClusterUnavailable."""
        if not self.file:
            return self.value
        try:
            text = Path(self.file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ClusterUnavailable(f"{self.key}: {self.file} cannot be read: {reason}") from None
        if not text:
            raise ClusterUnavailable(f"{self.key}: {self.file} is empty")
        return text
