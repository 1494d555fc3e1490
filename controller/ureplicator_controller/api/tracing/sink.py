"""Destination of spans; none by default."""

from __future__ import annotations

from typing import Protocol

from ureplicator_controller.core.spans import Span


class Spans(Protocol):
    """Destination of spans. No call waits or raises."""

    def send(self, span: Span) -> None: ...


class NoSpans:
    """Tracing is off."""

    def send(self, span: Span) -> None:
        pass
