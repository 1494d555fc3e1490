"""Errors of reading ranges of records."""

from __future__ import annotations

from ureplicator_common.errors import PermanentError, TemporaryError


class RangeUnavailable(TemporaryError):
    """Nothing was read for longer than allowed; the text names the last obstacle."""


class OffsetOutOfRange(PermanentError):
    """The log does not hold the offset: retention passed it, or the log ends before it."""


class LogChanged(PermanentError):
    """The log is not the one that was read before: truncated, or its topic deleted or recreated."""


class RecordsUnreadable(PermanentError):
    """A stored batch is corrupt, or larger than allowed when decoded."""


class ReadRefused(PermanentError):
    """The cluster does not permit reading."""
