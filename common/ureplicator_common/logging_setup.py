"""One line per event on stderr: time in ISO 8601 with its zone, level, logger, text.

    2026-01-31T12:00:00.123+00:00 INFO ureplicator_controller.daemon: leading with epoch 7

With `--log-json` each event is a JSON object in one line. A traceback takes more than one line as text;
in JSON it is a field.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from ureplicator_common.printable import printable

NOISY = ("kazoo", "py4j", "urllib3", "werkzeug", "kafka")
"""Libraries that log much at INFO; only their warnings are kept."""


def set_up(
    *,
    as_json: bool = False,
    level: int = logging.INFO,
    stream: TextIO | None = None,
    name: str = "",
) -> None:
    """Configure the root logger of this process. Called once, by an entry point.

    `name` is of the process, where several share one stream: it replaces the logger's name in each line,
    and is a field of its own in JSON.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(name) if as_json else Lines(name))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for library in NOISY:
        logging.getLogger(library).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)


def writes_json() -> bool:
    """True if this process was set up to log JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


class Lines(logging.Formatter):
    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        text = printable(" ".join(record.getMessage().splitlines()))
        line = f"{_time(record)} {record.levelname} {self._name or record.name}: {text}"
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info))
        return line


class JsonLines(logging.Formatter):
    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        if self._name:
            event["process"] = self._name
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
