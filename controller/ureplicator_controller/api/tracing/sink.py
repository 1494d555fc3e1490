"""Where spans go; nowhere by default."""

from __future__ import annotations

from typing import Protocol

from ureplicator_controller.core.spans import Span


class Spans(Protocol):
    """Where spans go. No call waits or raises."""

    def send(self, span: Span) -> None: ...


class NoSpans:
    """Tracing is off."""

    def send(self, span: Span) -> None:
        pass
